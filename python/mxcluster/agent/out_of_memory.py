"""Whether the kernel has killed a process for lack of memory. SIGKILL itself does not say who sent it.

Newer kernels count such kills: those of a control group (that of the job's unit) and those of the whole machine. CentOS 7's
kernel only writes them to its log, which everybody can read there.
"""
import os
import re
from typing import Dict, Optional, Set

PERIOD = 10.0  # seconds
_LOG_BYTES = 8192  # more than one record of /dev/kmsg can have


class Kills:
    """Remembers the counters of a moment ago; `root` is where /proc, /sys and /dev are (for tests)."""

    def __init__(self, root: str = "/"):
        self._root = root
        self._before = self._latest = counters(root)
        self._log = KernelLog(os.path.join(root, "dev/kmsg"))
        self._looked = 0.0

    def look(self, now: float) -> None:
        """Remember, from time to time (`now` is monotonic): what was killed long ago does not explain a death of now.

        The counter may grow some moments before the death is seen, so the last counters are kept for as long again.
        """
        if now - self._looked >= PERIOD:
            self._before, self._latest, self._looked = self._latest, counters(self._root), now

    def explain(self, pid: int) -> Optional[str]:
        """Why the process `pid`, which died of SIGKILL, was killed; None if it was not for lack of memory."""
        now = counters(self._root)
        more = {name for name, number in now.items() if number > self._before.get(name, 0)}
        self._before = self._latest = now
        if "group" in more and ("limit" in more or "limit" not in now):
            return "the memory that the job's unit may use was all used up"
        # A kill on the machine that the group has not seen was another's.
        if "group" in more or "machine" in more and "group" not in now or pid in self._log.killed():
            return "the memory of the node was all used up"
        return None


def counters(root: str = "/") -> Dict[str, int]:
    """{"group": kills in this process's control group, "limit": how often that was at its limit and nothing could be freed,
    "machine": kills on the whole machine}, as far as the kernel counts."""
    found = {}
    for line in _read(root, "proc/self/cgroup").splitlines():
        number, controllers, path = (line.split(":", 2) + ["", ""])[:3]
        path = path.lstrip("/")
        if controllers == "memory":
            texts = _read(root, os.path.join("sys/fs/cgroup/memory", path, "memory.oom_control"))
        elif number == "0":
            texts = _read(root, os.path.join("sys/fs/cgroup", path, "memory.events"))
        else:
            continue
        for name, key in (("group", "oom_kill"), ("limit", "oom")):
            count = _count(texts, key)
            if count is not None:
                found[name] = count
    count = _count(_read(root, "proc/vmstat"), "oom_kill")
    if count is not None:
        found["machine"] = count
    return found


class KernelLog:
    """What the kernel's log tells from now on, if it can be read: numbers of processes come again, and older records stay."""

    def __init__(self, path: str):
        self._killed = set()  # type: Set[int]
        try:
            self._log = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # type: Optional[int]
            os.lseek(self._log, 0, os.SEEK_END)
        except OSError:
            self._log = None

    def killed(self) -> Set[int]:
        """The processes that the kernel tells to have killed for lack of memory."""
        while self._log is not None:
            try:
                record = os.read(self._log, _LOG_BYTES)
            except BlockingIOError:
                break
            except BrokenPipeError:  # records were overwritten before they were read; the next read has the oldest one left
                continue
            except OSError:
                self._log = None
                break
            if not record:
                break
            self._killed |= {int(pid) for pid in re.findall(r"\bKill(?:ed)? process (\d+)\b", record.decode("utf-8", "replace"))}
        return self._killed


def _count(text: str, key: str) -> Optional[int]:
    match = re.search(r"^%s (\d+)$" % key, text, re.MULTILINE)
    return int(match.group(1)) if match else None


def _read(root: str, path: str) -> str:
    try:
        with open(os.path.join(root, path), encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""
