"""Read what a node of a batch job needs from the folder that all nodes of the job share.

The requests of the head cross the network in plain text. So a request holds neither the token of
the job nor a secret, and the node reads them, and the script, from the shared folder.
"""

import os

from mxcluster import checkpoints, seal
from mxcluster.agent import batch_job
from mxcluster.agent.folder import JobFolder
from mxcluster.errors import BadInput
from mxcluster.model.protocol import SharedFolder, Start

NONCE = "nonce"  # the file of the head that every node must be able to read
# Files of the shared folder to which each node's folder gets a link.
LINKED = (checkpoints.FOLDER, checkpoints.RESUMED, "model.params")


def check(shared: SharedFolder) -> None:
    """Raise BadInput if this node does not see the folder of the head."""
    path = os.path.join(shared.path, NONCE)
    try:
        with open(path, encoding="ascii") as stream:
            is_same = stream.read() == shared.nonce
    except (OSError, ValueError):
        is_same = False
    if not is_same:
        raise BadInput(
            "%s is not the file that the first node has written, but all nodes must share this "
            "folder: set mxcluster_home to a folder of a shared file system" % path
        )


def complete(request: Start, shared: SharedFolder) -> Start:
    """Make the job folder of this node. Return `request` with the token, secrets and script.

    Raises OSError if the shared folder lacks the secrets of the job.
    """
    folder, source = JobFolder(request.job_dir), JobFolder(shared.path)
    folder.make()
    os.makedirs(source.file(checkpoints.FOLDER), exist_ok=True)
    for name in LINKED:
        if os.path.exists(source.file(name)) and not os.path.lexists(folder.file(name)):
            os.symlink(source.file(name), folder.file(name))
    return request.replaced(
        secret_env=source.read_secret_env() if shared.has_secrets else None,
        token=seal.read_token(source.path).decode(),
        script=batch_job.script_of(source),
    )
