"""Unpack the archives of the nodes, each into its own folder on the controller.

A node may have forged its archive, so this module checks the names and types of all members.
"""

import os
import shutil
import tarfile
import zlib
from typing import IO, Dict, Optional, Set, cast

from mxcluster.errors import BadInput
from mxcluster.job.report import files

KINDS = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE)
FORGED = "Another program changed the archive: find this program on the node"


def unpack_all(archives: Dict[str, Optional[str]], run_dir: str) -> Dict[str, str]:
    """Unpack the archives of all nodes into `run_dir`, and return {host: problem}.

    The files of a node go to nodes/<host>/, except for checkpoints, which go to checkpoints/. The
    files that an earlier call has unpacked stay if there is no archive now.

    Args: `archives` {host: path of the host's tar file, or None without a tar file}.
    """
    problems, moved = {}, set()  # type: Dict[str, str], Set[str]
    for host, path in sorted(archives.items()):
        folder = files.node_dir(run_dir, host)
        try:
            if not path or not os.path.exists(path):
                os.makedirs(folder, exist_ok=True)
                raise BadInput(
                    "the controller collected no archive from %s: fetch the results again with "
                    "train.yml -e attach=<job>" % host
                )
            shutil.rmtree(folder, ignore_errors=True)
            os.makedirs(folder)
            unpack(path, folder)
            move_checkpoints(folder, os.path.join(run_dir, "checkpoints"), host, moved)
        except (BadInput, OSError, EOFError, zlib.error, tarfile.TarError) as error:
            problems[host] = _message(error, path, os.path.basename(os.path.abspath(run_dir)))
    return problems


def unpack(path: str, folder: str) -> None:
    """Unpack the tar file `path` into `folder`, as files of the current user.

    A file that was private on the node gets the mode 0600 here, every other file 0644. The function
    ignores the owners, times and other permissions in the archive.

    The function checks all members before the first write. Raises BadInput for a name that leads
    out of the folder or occurs twice, and for a link, a device or a sparse file. A sparse file can
    need more room on the disk than the archive.
    """
    # Without compression, because a small compressed file could fill the disk.
    with tarfile.open(path, "r:") as tar:
        members = tar.getmembers()
        seen = set()  # type: Set[str]
        for member in members:
            name, fault = os.path.normpath(member.name), ""
            if os.path.isabs(member.name) or ".." in member.name.split("/"):
                fault = "its member %r leads out of the job folder"
            elif member.type not in KINDS or member.issparse():
                fault = "its member %r is neither a plain file nor a folder"
            elif name in seen:
                fault = "it has two members with the name %r"
            if fault:
                raise BadInput(
                    "the archive %s was not unpacked: %s. %s" % (path, fault % member.name, FORGED)
                )
            seen.add(name)
        for member in members:
            target = os.path.join(folder, os.path.normpath(member.name))
            if member.isdir():
                os.makedirs(target, exist_ok=True)
                continue
            os.makedirs(os.path.dirname(target), exist_ok=True)
            mode = 0o644 if member.mode & 0o044 else 0o600
            with open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as stream:
                # A member of KINDS that is no folder has content.
                shutil.copyfileobj(cast(IO[bytes], tar.extractfile(member)), stream, 1 << 20)


def _message(error: Exception, path: Optional[str], job: str) -> str:
    """Return the message about an `error` during the unpacking of `path`.

    Args: `path` of the archive, None without an archive; `job` the id of the job.
    """
    if isinstance(error, BadInput):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return (
            "the controller cannot use %s: %s. Correct this error, and fetch the results again"
            % (error.filename or path, error.strerror)
        )
    return "the archive %s is damaged (%s): fetch the results again with train.yml -e attach=%s" % (
        path,
        error,
        job,
    )


def move_checkpoints(folder: str, target: str, host: str, moved: Set[str]) -> None:
    """Move the checkpoint files of the node `host` from the node's `folder` to `target`.

    A file whose name is in `moved` gets the prefix "<host>-". The function adds the new names to
    `moved`.

    Args: `moved` the names of all files moved so far (set of str).
    """
    source = os.path.join(folder, "checkpoints")
    if not os.path.isdir(source):
        return
    os.makedirs(target, exist_ok=True)
    for name in sorted(os.listdir(source)):
        goal = "%s-%s" % (host, name) if name in moved else name
        moved.add(goal)
        # A folder of a script's checkpoint may have come while the job ran.
        if os.path.isdir(os.path.join(target, goal)):
            shutil.rmtree(os.path.join(target, goal))
        os.replace(os.path.join(source, name), os.path.join(target, goal))
    os.rmdir(source)
