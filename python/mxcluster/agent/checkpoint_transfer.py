"""Offer the checkpoints of a running job to the controller, and send the files in pieces.

See `mxcluster.job.checkpoints` for the files.
"""

import base64
import os
import stat
from typing import Any, Dict

from mxcluster.agent.folder import JobFolder
from mxcluster.errors import BadInput
from mxcluster.job import checkpoints
from mxcluster.model import protocol

Json = Dict[str, Any]

LARGEST_MANIFEST = 64 * 1024


def offered(folder: JobFolder) -> Json:
    """Return the checkpoint manifests that this node offers to the controller.

    The result is {"held": the name of the checkpoint that the job keeps for the controller,
    "parts": {file name of a manifest: the manifest's text}}, or {} without a manifest. This node's
    part of a checkpoint is complete when the part's manifest exists.
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
            except BadInput:  # the job has deleted this manifest since
                continue
    # The nodes of a batch job share the folder of checkpoints; worker 0's node has the note.
    held = [checkpoints.told(place.path, checkpoints.HELD) for place in folder.parts() or [folder]]
    return {"held": next(filter(None, held), ""), "parts": parts} if parts else {}


def take(folder: JobFolder, name: str) -> None:
    """Record that the controller has fetched the checkpoint `name`.

    The job may then delete the checkpoint on this node.
    """
    if checkpoints.FILE.fullmatch(name + ".json"):
        for place in folder.parts() or [folder]:
            if checkpoints.told(place.path, checkpoints.TAKEN) != name:
                checkpoints.tell(place.path, checkpoints.TAKEN, name)


def piece(request: protocol.Piece) -> Json:
    """Return {"data": a piece of a checkpoint file in base64}, and renew the job's lease.

    Without the renewal the lease could expire during a slow transfer. Raises BadInput if the file
    is not a checkpoint file, or if the file cannot be read.
    """
    folder, name = JobFolder(request.job_dir), request.file
    if not checkpoints.FILE.fullmatch(name):
        raise BadInput(
            "%r is not the name of a checkpoint file: use a file name from a checkpoint's manifest"
            % name
        )
    if folder.plan().lease:
        folder.renew_lease()
    return {
        "data": base64.b64encode(_read(folder, name, request.offset, request.most)).decode("ascii")
    }


def _read(folder: JobFolder, name: str, offset: int, most: int) -> bytes:
    path = os.path.join(folder.file(checkpoints.FOLDER), name)
    try:
        # Follow no link, and do not block on a FIFO.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise BadInput(
            "cannot read the checkpoint file %s on this node (%s): use the file name of an "
            "existing checkpoint, and let the training user read the file" % (path, error.strerror)
        ) from error
    with open(descriptor, "rb") as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise BadInput("%s is not a regular file: remove this path on the node" % path)
        stream.seek(offset)
        return stream.read(most)
