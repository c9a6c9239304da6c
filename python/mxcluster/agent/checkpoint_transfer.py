"""What a node offers of the checkpoints of a running job, and hands out in pieces (see `mxcluster.checkpoints`)."""
import base64
import os
import stat
from typing import Any, Dict

from mxcluster import checkpoints
from mxcluster.agent.folder import JobFolder
from mxcluster.errors import BadInput

Json = Dict[str, Any]

LARGEST_MANIFEST = 64 * 1024


def offered(folder: JobFolder) -> Json:
    """{"held": the name of the checkpoint that waits for the controller, "parts": {manifest that lies here: its text}}.

    A part is whole when its manifest is there; without any, {}.
    """
    try:
        names = os.listdir(folder.file(checkpoints.FOLDER))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    parts = {}
    for name in names:
        if name.endswith(".json") and checkpoints.FILE.fullmatch(name):
            try:
                parts[name] = _read(folder, name, 0, LARGEST_MANIFEST).decode("utf-8", "replace")
            except BadInput:  # forgotten meanwhile
                continue
    return {"held": checkpoints.told(folder.path, checkpoints.HELD), "parts": parts} if parts else {}


def take(folder: JobFolder, name: str) -> None:
    """The controller has all of the checkpoint `name`: it need not be held any more."""
    if checkpoints.FILE.fullmatch(name + ".json") and checkpoints.told(folder.path, checkpoints.TAKEN) != name:
        checkpoints.tell(folder.path, checkpoints.TAKEN, name)


def piece(folder: JobFolder, name: str, offset: int, most: int) -> Json:
    """{"data": up to `most` bytes of a checkpoint's file from `offset` on, in base64}. Renews the lease of a job that has one.

    One piece after the other, none of them costs the job its lease, however slow the line is.
    """
    if not checkpoints.FILE.fullmatch(name):
        raise BadInput("%r is no file of a checkpoint" % name)
    if float(folder.plan().get("lease") or 0):
        folder.renew_lease()
    return {"data": base64.b64encode(_read(folder, name, offset, most)).decode("ascii")}


def _read(folder: JobFolder, name: str, offset: int, most: int) -> bytes:
    path = os.path.join(folder.file(checkpoints.FOLDER), name)
    try:
        # No link is followed, and nobody waits for a pipe.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise BadInput("%s cannot be read (%s)" % (path, error.strerror)) from error
    with open(descriptor, "rb") as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise BadInput("%s is not a regular file" % path)
        stream.seek(offset)
        return stream.read(most)
