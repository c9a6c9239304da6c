"""What modules and controllers that were killed have left on a node: Ansible's temporary folders, and packed jobs."""
import glob
import os
import shutil
import stat
import tempfile
import time
from typing import Callable, List, Optional

OLD = 3600.0  # seconds after which no module still uses its folder, and no controller still fetches an archive
FOLDERS = "ansible_mxcluster_*_payload_*"


def sweep(spool: Optional[str] = None) -> List[str]:
    """Remove old temporary folders of our modules, and old archives in `spool`: a line for each that is still there.

    Only what is of this process's own user, in a folder where nobody else can put another thing in its place.
    """
    lines = []
    for path in ours(tempfile.gettempdir(), FOLDERS, stat.S_ISDIR) + (ours(spool, "*.tar", stat.S_ISREG) if spool else []):
        if os.path.isdir(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)
        if os.path.lexists(path):
            lines.append("%s is left of a module that was killed, and cannot be removed" % path)
    return lines


def ours(folder: str, pattern: str, kind: Callable[[int], bool]) -> List[str]:
    """The paths in `folder` that are old, of this process's user, and of this kind (of the module stat)."""
    try:
        above = os.stat(folder)
    except OSError:
        return []
    if above.st_uid not in (0, os.geteuid()) or above.st_mode & 0o022 and not above.st_mode & stat.S_ISVTX:
        return []
    found = []
    for path in sorted(glob.glob(os.path.join(folder, pattern))):
        try:
            seen = os.lstat(path)
        except OSError:  # somebody else was faster
            continue
        if seen.st_uid == os.geteuid() and kind(seen.st_mode) and time.time() - seen.st_mtime > OLD:
            found.append(path)
    return found
