"""Read faults of this node from the kernel's log.

A fault of the kernel is a row of PATTERNS. On kernels with `kernel.dmesg_restrict=1` only root can
read the log, and the agent, which runs as the training user, finds no fault there.
"""

import os
import re
from typing import Dict, Optional, Pattern, Set

OOM = "oom"  # the kernel has killed a process to free memory
# {fault: the pattern of its records}. The group of the pattern is the pid of the process.
PATTERNS: Dict[str, Pattern[str]] = {OOM: re.compile(r"\bKill(?:ed)? process (\d+)\b")}
_RECORD = 8192  # bytes, longer than any record of /dev/kmsg


class KernelLog:
    """Reads faults from the kernel's log `path`, such as /dev/kmsg.

    The object starts to read at the end of the log, because old records stay in the log and the
    kernel reuses pids. If the log is unreadable, the object finds no fault.
    """

    def __init__(self, path: str) -> None:
        self._pids: Dict[str, Set[int]] = {fault: set() for fault in PATTERNS}
        try:
            self._log: Optional[int] = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            os.lseek(self._log, 0, os.SEEK_END)
        except OSError:
            self._log = None

    def pids(self, fault: str) -> Set[int]:
        """Return the pids of all records of `fault` since the object started to read the log."""
        while self._log is not None:
            try:
                record = os.read(self._log, _RECORD).decode("utf-8", "replace")
            except BlockingIOError:
                break
            except BrokenPipeError:  # the kernel overwrote unread records; read on at the oldest
                continue
            except OSError:
                self._log = None
                break
            if not record:
                break
            for name, pattern in PATTERNS.items():
                self._pids[name].update(map(int, pattern.findall(record)))
        return self._pids[fault]
