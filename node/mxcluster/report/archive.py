"""Unpacking what the nodes sent. A node is not trusted with more than its own folder on the controller."""
import os
import shutil
import tarfile
import zlib
from typing import Dict, Optional, Set

from mxcluster.errors import BadInput
from mxcluster.report import files


def unpack_all(archives: Dict[str, Optional[str]], run_dir: str) -> Dict[str, str]:
    """Unpack {host: tar file} to nodes/<host>/ and gather the checkpoints; returns {host: what went wrong}."""
    problems, moved = {}, set()
    for host, path in sorted(archives.items()):
        folder = files.node_dir(run_dir, host)
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        try:
            if not path:
                raise BadInput("nothing was collected from %s" % host)
            unpack(path, folder)
            files.read_status(run_dir, host)  # a status that is no JSON is a problem of this node, and of no other one
            move_checkpoints(folder, os.path.join(run_dir, "checkpoints"), host, moved)
        except (BadInput, OSError, EOFError, zlib.error, tarfile.TarError) as error:
            problems[host] = str(error)
    return problems


def unpack(path: str, folder: str) -> None:
    """Unpack the tar file `path` into `folder`.

    Raises BadInput, before anything is unpacked, if a name leads out of the folder or a member is a link or a device.
    """
    with tarfile.open(path) as tar:
        members = tar.getmembers()
        for member in members:
            if os.path.isabs(member.name) or ".." in member.name.split("/"):
                raise BadInput("%s holds the name %r, which leads out of the folder: refused" % (path, member.name))
            if not (member.isfile() or member.isdir()):
                raise BadInput("%s holds %r, which is neither a file nor a folder: refused" % (path, member.name))
        # The filter came with 3.12 and late releases of 3.10 and 3.11; the checks above hold without it.
        safe = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        tar.extractall(folder, members, **safe)


def move_checkpoints(folder: str, target: str, host: str, moved: Set[str]) -> None:
    """Move the checkpoints that a node sent to `target`; a name that is in `moved` already gets the host in front."""
    source = os.path.join(folder, "checkpoints")
    if not os.path.isdir(source):
        return
    os.makedirs(target, exist_ok=True)
    for name in sorted(os.listdir(source)):
        goal = "%s-%s" % (host, name) if name in moved else name
        moved.add(goal)
        os.replace(os.path.join(source, name), os.path.join(target, goal))
    os.rmdir(source)
