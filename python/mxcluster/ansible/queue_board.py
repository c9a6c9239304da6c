"""Agree between the forks of one run of Ansible on the end of a wait.

Each fork runs the tasks of one node. The board is a folder in the temporary folder of this run of
Ansible, with a file for each node that has room, and one file for the end of the wait.
"""

import contextlib
import fcntl
import os
from typing import Callable, Sequence

from mxcluster.file_io import replace

READY = ".ready-"  # prefix of the file of a node
# The file with the result of the wait. The first result counts for all nodes. Otherwise a node that
# loses its room at the last moment would wait alone.
RESULT = "result"
GO, END = "go", "end"  # the results: start the job, or give the wait up


def agreed(path: str, make: Callable[[], str]) -> str:
    """Return the text of the private file `path`, which the first fork gets from `make`.

    All forks get the same text, even if the first fork is slow.
    """
    with open(os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600), "r+") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        text = stream.read()
        if not text:
            text = make()
            stream.write(text)
            stream.flush()  # before the lock is released
    return text


class QueueBoard:
    """The board of a wait, as the fork of `host` uses it. Args: `path` of the folder."""

    def __init__(self, path: str, host: str) -> None:
        self._path, self._host = path, host
        os.makedirs(path, exist_ok=True)

    def post(self, has_room: bool, hosts: Sequence[str]) -> None:
        """Tell whether this node has room. If all `hosts` have room, the wait ends with GO."""
        own = os.path.join(self._path, READY + self._host)
        if has_room:
            replace(own, "")
        else:
            with contextlib.suppress(FileNotFoundError):
                os.remove(own)
        if all(os.path.exists(os.path.join(self._path, READY + host)) for host in hosts):
            self.end(GO)

    def end(self, result: str) -> str:
        """End the wait with GO or END, and return the result that counts."""
        return agreed(os.path.join(self._path, RESULT), lambda: result)

    def result(self) -> str:
        """Return GO or END, or "" while the wait goes on."""
        path = os.path.join(self._path, RESULT)
        return agreed(path, str) if os.path.exists(path) else ""
