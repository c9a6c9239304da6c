"""Restore the files of a job folder that must not change while the job runs.

The job folder is the working directory of the job's scripts. A script that cleans its working
directory deletes plan.json, the token and the three cluster files. Without these files the node
answers no poll, and a healthy job of hours would be lost. The agent alone has their content.
"""

import os
import stat
from typing import Iterable, Optional, Tuple

Mark = Optional[Tuple[int, int, int]]


class Keeper:
    """Keeps the content of the files `paths`, and restores a file that was deleted or changed.

    The class detects a change by inode, size and mtime, without reading the file.
    """

    def __init__(self, paths: Iterable[str] = ()) -> None:
        self._contents = {}  # path -> bytes
        self._marks = {}  # path -> Mark
        for path in paths:
            if os.path.exists(path):
                with open(path, "rb") as stream:
                    self._contents[path] = stream.read()
                self._marks[path] = mark(path)

    def restore(self) -> Iterable[str]:
        """Restore deleted and changed files. Return the paths of these files.

        Raises OSError if a write fails.
        """
        changed = [path for path in self._contents if mark(path) != self._marks[path]]
        for path in changed:
            draft = os.path.join(
                os.path.dirname(path), ".%s.%d" % (os.path.basename(path), os.getpid())
            )
            with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as stream:
                stream.write(self._contents[path])
            self._marks[path] = mark(draft)  # before another process can change the file
            os.replace(draft, path)
        return changed


def mark(path: str) -> Mark:
    """Return (inode, size, mtime in ns) of the regular file `path`, else None.

    Each write to the file changes the result.
    """
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return (found.st_ino, found.st_size, found.st_mtime_ns) if stat.S_ISREG(found.st_mode) else None
