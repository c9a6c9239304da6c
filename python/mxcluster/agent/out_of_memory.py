"""Detect OOM kills of processes.

The exit status of a process shows SIGKILL, but not the sender of the signal. Newer kernels count
OOM kills for each control group, such as the group of the job's unit, and for the whole node. The
kernel of CentOS 7 only writes OOM kills to its log, which all users can read. So the module reads
this log beside the counters (see `agent.kernel_log`).
"""

import os
import re
from typing import Dict, Optional

from mxcluster.agent.kernel_log import OOM, KernelLog

PERIOD = 10.0  # seconds


class Kills:
    """Explains deaths by SIGKILL with this node's OOM counters and the kernel's log.

    The object keeps the OOM counters of the last two periods. `root` is the folder that contains
    proc, sys and dev.
    """

    def __init__(self, root: str = "/") -> None:
        self._root = root
        self._before = self._latest = counters(root)
        self._log = KernelLog(os.path.join(root, "dev/kmsg"))
        self._looked = 0.0

    def look(self, now: float) -> None:
        """Save the current OOM counters if PERIOD seconds have passed since the last save.

        `now` is the monotonic time in seconds. An old OOM kill does not explain a new death. But
        the kernel may count an OOM kill shortly before the agent sees the death. The object
        therefore keeps the previous counters for one more period.
        """
        if now - self._looked >= PERIOD:
            self._before, self._latest, self._looked = self._latest, counters(self._root), now

    def explain(self, pid: Optional[int], contained: bool = False) -> Optional[str]:
        """Return the cause of an OOM kill of the process `pid` as a string.

        `contained`: True if the process ran in a container. The container's control group is gone
        by now, so only the node's counter shows the kill.

        Returns None if the counters and the kernel's log show no OOM kill.
        """
        now = counters(self._root)
        more = {name for name, number in now.items() if number > self._before.get(name, 0)}
        self._before = self._latest = now
        if contained and "machine" in more:
            return "the node or the container ran out of memory"
        if "group" in more and ("limit" in more or "limit" not in now):
            return "the job's unit reached its memory limit"
        # If the control group did not count an OOM kill on the node, the kill hit another group.
        is_counted = "group" in more or "machine" in more and "group" not in now
        if is_counted or pid in self._log.pids(OOM):
            return "the node ran out of memory"
        return None


def counters(root: str = "/") -> Dict[str, int]:
    """Return the OOM counters that this kernel provides.

    The result is {"group": OOM kills in the control group of this process, "limit": failed
    allocations of this group at its memory limit, "machine": OOM kills on the whole node}. A
    counter that the kernel lacks is missing. `root` is the folder that contains proc and sys.
    """
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


def _count(text: str, key: str) -> Optional[int]:
    match = re.search(r"^%s (\d+)$" % key, text, re.MULTILINE)
    return int(match.group(1)) if match else None


def _read(root: str, path: str) -> str:
    try:
        with open(os.path.join(root, path), encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""
