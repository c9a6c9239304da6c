"""Offer the checkpoints of a running job to the controller, and send the files in pieces.

See `mxcluster.checkpoints` for the files.
"""

import base64
import os
from typing import Optional

from mxcluster import checkpoints
from mxcluster.agent.folder import JobFolder
from mxcluster.agent.log_files import open_regular
from mxcluster.errors import BadInput
from mxcluster.model import protocol
from mxcluster.model.answers import PieceOfFile
from mxcluster.model.checkpoint import LARGEST_MANIFEST, Offer


def offered(folder: JobFolder) -> Optional[Offer]:
    """Return the checkpoints that this node offers to the controller, None without a manifest.

    This node's part of a checkpoint is complete when the part's manifest exists.
    """
    try:
        names = os.listdir(folder.file(checkpoints.FOLDER))
    except (FileNotFoundError, NotADirectoryError):
        return None
    parts = {}
    for name in names:
        if name.endswith(".json") and checkpoints.FILE.fullmatch(name):
            try:
                parts[name] = _read(folder, name, 0, LARGEST_MANIFEST).decode("utf-8", "replace")
            except BadInput:  # the job has deleted this manifest since
                continue
    # The nodes of a batch job share the folder of checkpoints; worker 0's node has the note.
    held = [
        checkpoints.read_note(place.path, checkpoints.HELD) for place in folder.parts() or [folder]
    ]
    return Offer(held=next(filter(None, held), ""), parts=parts) if parts else None


def take(folder: JobFolder, name: str) -> None:
    """Record that the controller has fetched the checkpoint `name`.

    The job may then delete the checkpoint on this node.
    """
    if checkpoints.FILE.fullmatch(name + ".json"):
        for place in folder.parts() or [folder]:
            if checkpoints.read_note(place.path, checkpoints.TAKEN) != name:
                checkpoints.write_note(place.path, checkpoints.TAKEN, name)


def piece(request: protocol.Piece) -> PieceOfFile:
    """Return a piece of a checkpoint file, and renew the job's lease.

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
    data = _read(folder, name, request.offset, request.most)
    return PieceOfFile(data=base64.b64encode(data).decode("ascii"))


def _read(folder: JobFolder, name: str, offset: int, most: int) -> bytes:
    path = os.path.join(folder.file(checkpoints.FOLDER), name)
    try:
        descriptor = open_regular(path)
    except OSError as error:
        raise BadInput(
            "cannot read the checkpoint file %s on this node (%s): use the file name of an "
            "existing checkpoint, and let the training user read the file" % (path, error.strerror)
        ) from error
    with open(descriptor, "rb") as stream:
        stream.seek(offset)
        return stream.read(most)
