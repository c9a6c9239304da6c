"""Remove files of killed modules and controllers: Ansible's temporary folders and packed jobs."""

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
    files of this process's user, in folders where no other user can replace them.
    """
    lines = []
    for path in ours(tempfile.gettempdir(), FOLDERS, stat.S_ISDIR) + (
        ours(spool, "*.tar", stat.S_ISREG) if spool else []
    ):
        if os.path.isdir(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)
        if os.path.lexists(path):
            lines.append(
                "%s, a leftover of a killed module or controller, cannot be removed: remove this "
                "path as root" % path
            )
    return lines


def ours(folder: str, pattern: str, kind: Callable[[int], bool]) -> List[str]:
    """Return the paths in `folder` that are older than OLD and belong to this process's user.

    `pattern`: a glob. `kind`: a function of the module stat, such as S_ISDIR. The result is empty
    if another user could replace files in `folder`.
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
    found = []
    for path in sorted(glob.glob(os.path.join(folder, pattern))):
        try:
            seen = os.lstat(path)
        except OSError:  # another process has removed the folder or archive
            continue
        if seen.st_uid == os.geteuid() and kind(seen.st_mode) and time.time() - seen.st_mtime > OLD:
            found.append(path)
    return found
