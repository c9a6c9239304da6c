"""Remove files of killed modules and controllers: Ansible's temporary folders and packed jobs."""

import contextlib
import glob
import os
import shutil
import stat
import tempfile
import time
from typing import Callable, List, Optional

# Seconds after which no module uses its folder any more, and no controller fetches an archive.
OLD = 3600.0
FOLDERS = "ansible_mxcluster_*_payload_*"


def sweep(spool: Optional[str] = None) -> List[str]:
    """Remove old temporary folders of mxcluster's modules, and old archives in the folder `spool`.

    Returns a line for each folder and archive that could not be removed. The function removes only
    files of this process's user, in folders where no other user can replace them. If `spool`
    belongs to this process's user, it also removes archives there that root gave to the login user.
    """
    lines = []
    for path in ours(tempfile.gettempdir(), FOLDERS, stat.S_ISDIR) + (
        ours(spool, "*.tar", stat.S_ISREG, given_away=True) if spool else []
    ):
        if os.path.isdir(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):  # a concurrent run may have removed the archive
                os.unlink(path)
        if os.path.lexists(path):
            lines.append(
                "%s, a leftover of a killed module or controller, cannot be removed: remove this "
                "path as root" % path
            )
    return lines


def ours(
    folder: str, pattern: str, kind: Callable[[int], bool], given_away: bool = False
) -> List[str]:
    """Return the paths in `folder` that are older than OLD and belong to this process's user.

    `pattern`: a glob. `kind`: a function of the module stat, such as S_ISDIR. `given_away`: ignore
    the owner of a path if only this process's user can change `folder`, because this user created
    every path there. The result is empty if another user could replace files in `folder`.
    """
    try:
        above = os.stat(folder)
    except OSError:
        return []
    if (
        above.st_uid not in (0, os.geteuid())
        or above.st_mode & 0o022
        and not above.st_mode & stat.S_ISVTX
    ):
        return []
    alone = above.st_uid == os.geteuid() and not above.st_mode & 0o022
    found = []
    for path in sorted(glob.glob(os.path.join(folder, pattern))):
        try:
            seen = os.lstat(path)
        except OSError:  # another process has removed the folder or archive
            continue
        mine = seen.st_uid == os.geteuid() or given_away and alone
        if mine and kind(seen.st_mode) and time.time() - seen.st_mtime > OLD:
            found.append(path)
    return found
