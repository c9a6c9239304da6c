"""Find and remove the folders of old jobs on a node.

The controller decides which jobs go, because only the controller knows whether it has all files of
a job. All functions run as the training user, who owns the folders.
"""

import os
import shutil
from typing import List, Sequence

from mxcluster.agent import claims
from mxcluster.agent.folder import JobFolder
from mxcluster.errors import MxclusterError
from mxcluster.file_io import disk_space
from mxcluster.model import protocol
from mxcluster.model.answers import DiskUse, Removed

PREFIX = ".removed-"  # of the name of a folder that is being removed


def old(root: str, keep: int) -> List[str]:
    """Return the ids of the ended jobs besides the newest `keep`, the oldest first.

    With `keep` 0 the node keeps all jobs. Args: `root` the folder of all job folders.
    """
    if not keep:
        return []
    found = []
    for name in claims.names(root):
        try:
            known = JobFolder(os.path.join(root, name)).status()
        except (MxclusterError, OSError):  # a damaged status: a person decides
            continue
        if known and known.has_ended:
            found.append((known.ended or known.started, name))
    return [name for _, name in sorted(found)[:-keep]]


def of_request(request: protocol.Remove) -> Removed:
    """Remove the folders of the jobs that `request` names."""
    return remove(request.jobs_dir, request.remove)


def remove(root: str, jobs: Sequence[str]) -> Removed:
    """Remove the folders of the ended `jobs`. A folder whose job has not ended stays.

    The function renames each folder first, so that no other command sees a part of a folder. It
    also removes what a killed call has left. Args: `root` the folder of all job folders.
    """
    removed: List[str] = []
    problems = _sweep(root) if jobs else []
    for job in jobs:
        folder = JobFolder(os.path.join(root, job))
        try:
            if os.path.lexists(folder.path):
                _refuse_active(folder)
                os.rename(folder.path, os.path.join(root, PREFIX + job))
            removed.append(job)
        except OSError as error:
            why = error.strerror or error
            problems.append("cannot remove %s (%s): remove this folder" % (folder.path, why))
        except MxclusterError as error:
            problems.append(str(error))
    return Removed(removed=removed, problems=problems + (_sweep(root) if removed else []))


def _refuse_active(folder: JobFolder) -> None:
    """Raise MxclusterError if the job of `folder` may still run, or if `folder` is a link."""
    if os.path.islink(folder.path):
        raise MxclusterError("%s is a link, so it stays: remove this link" % folder.path)
    known = folder.status()
    if known is None or not known.has_ended or claims.is_owned(folder):
        raise MxclusterError(
            "the job in %s has not ended, so its folder stays: end the job with stop.yml -e job=%s"
            % (folder.path, os.path.basename(folder.path))
        )


def _sweep(root: str) -> List[str]:
    """Remove all renamed folders in `root`. Return a line for each that stays."""
    problems: List[str] = []
    for name in os.listdir(root) if os.path.isdir(root) else []:
        path = os.path.join(root, name)
        if name.startswith(PREFIX):
            try:
                shutil.rmtree(path)  # follows no link
            except FileNotFoundError:  # another call removes the same folder
                continue
            except OSError as error:
                problems.append(
                    "cannot remove %s (%s): remove this folder as root"
                    % (error.filename or path, error.strerror or error)
                )
    return problems


def disk_use(root: str) -> DiskUse:
    """Return the disk space of all job folders in `root`."""
    paths = [os.path.join(root, name) for name in claims.names(root)]
    above = root
    while not os.path.isdir(above):
        above = os.path.dirname(above)
    return DiskUse(jobs=len(paths), bytes=sum(map(disk_space, paths)), free=JobFolder(above).free())
