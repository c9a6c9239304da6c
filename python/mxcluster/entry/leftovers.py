"""Remove temporary folders of killed Ansible modules, and job archives of killed controllers.

A line of tmpfiles.d would need root and systemd, which not every node has.
"""

import contextlib
import glob
import os
import shutil
import stat
import tempfile
import time
from typing import Callable, List, Optional

# Seconds. The module or controller of an older folder or archive has ended.
OLD = 3600.0
FOLDERS = "ansible_mxcluster_*_payload_*"


def sweep(spool: Optional[str] = None) -> List[str]:
    """Remove old temporary folders of mxcluster's modules, and old archives in the folder `spool`.

    "Old" means older than OLD seconds. The function skips files of other users, and folders in
    which another user can replace files. If `spool` belongs to this process's user, the function
    also removes archives there that root gave to the login user. Returns a message for each folder
    or archive that is still there.
    """
    lines = []
    for path in _old_paths(tempfile.gettempdir(), FOLDERS, stat.S_ISDIR) + (
        _old_paths(spool, "*.tar", stat.S_ISREG, given_away=True) if spool else []
    ):
        if os.path.isdir(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):  # a concurrent run may have removed the archive
                os.unlink(path)
        if os.path.lexists(path):
            lines.append(
                "cannot remove %s, a leftover of a killed module or controller: remove this path "
                "as root" % path
            )
    return lines


def _old_paths(
    folder: str, pattern: str, kind: Callable[[int], bool], given_away: bool = False
) -> List[str]:
    """Return the sorted paths in `folder` that belong to this user and are older than OLD seconds.

    `pattern`: a glob for file names. `kind`: a test of the file type from the module stat, such as
    S_ISDIR. `given_away`: ignore the owner of a path if only this user can change `folder`, because
    this user then created every path there. Returns [] if another user could replace files in
    `folder`.
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
