"""Read the quota of CPU time that limits this process, and what its control group has used.

Under a quota the kernel gives a control group so many seconds of CPU in each period, mostly 100 ms.
When all are used, the kernel throttles the group: its processes stop until the next period. So a
process computes at full speed in bursts, and its mean speed shows over several periods only.

Under cgroup v1 the kernel counts the CPU time of a group in another hierarchy than its quota.
"""

import contextlib
import os
import time
from typing import Dict, List, NamedTuple, Optional

from mxcluster.node import processes

# CPU seconds of the parent before it forked this process for its work.
OF_PARENT = []  # type: List[float]


class Use(NamedTuple):
    """What the processes of a control group have used so far."""

    cpu: float  # seconds
    throttled: float  # seconds of all CPUs on which the group was stopped


class Quota(NamedTuple):
    """The quota of a control group."""

    cpus: float
    folder: str  # of the control group
    is_new: bool  # True for cgroup v2

    def use(self) -> Optional[Use]:
        """Return what the group has used so far, None if the kernel does not tell."""
        stat = _table(os.path.join(self.folder, "cpu.stat"))
        if self.is_new:
            found = stat.get("usage_usec"), stat.get("throttled_usec", 0)
            return None if found[0] is None else Use(found[0] / 1e6, found[1] / 1e6)
        used = _number(self.folder, "cpuacct.usage")
        if used is None:
            place = os.path.relpath(self.folder, os.path.join(processes.CGROUPS, "cpu"))
            used = _number(os.path.join(processes.CGROUPS, "cpuacct", place), "cpuacct.usage")
        return None if used is None else Use(used / 1e9, stat.get("throttled_time", 0) / 1e9)


def tightest() -> Optional[Quota]:
    """Return the quota that gives this process the least CPU time, None without one.

    A quota of at least as many CPUs as this process may use is no limit.
    """
    found = []  # type: List[Quota]
    for folder, is_new in processes.control_groups(os.getpid(), "cpu"):
        while len(folder) >= len(processes.CGROUPS):
            found += [Quota(cpus, folder, is_new) for cpus in _quotas(folder, is_new)]
            folder = os.path.dirname(folder)
    limits = [one for one in found if one.cpus < len(os.sched_getaffinity(0))]
    return min(limits, default=None)


def least_pause(spent: float, part: float, limit: Optional[Quota]) -> float:
    """Return the seconds between two works so that they take at most `part` of the quota.

    Returns 0 if the quota is at least one CPU, or without a quota: such a node has CPU time enough.

    Args: `spent` the CPU seconds of one work; `part` of the CPU time under the quota, 0 to 1.
    """
    return spent / (part * limit.cpus) if limit and limit.cpus < 1 else 0.0


def own_cpu() -> float:
    """Return the CPU seconds of this process so far, with its start and imports.

    A fork has a new clock, so the time of its parent before the fork counts, too (`OF_PARENT`).
    """
    return time.process_time() + sum(OF_PARENT)


def _quotas(folder: str, is_new: bool) -> List[float]:
    """Return [number of CPUs] of the quota of the control group `folder`, [] without one."""
    with contextlib.suppress(OSError, ValueError, IndexError, ZeroDivisionError):
        texts = []  # type: List[str]
        for name in ("cpu.max",) if is_new else ("cpu.cfs_quota_us", "cpu.cfs_period_us"):
            with open(os.path.join(folder, name), encoding="ascii") as stream:
                texts += stream.read().split()
        number = int(texts[0]) / int(texts[1])  # "max" or -1 without a quota
        return [number] if number > 0 else []
    return []


def _table(path: str) -> Dict[str, int]:
    """Return {name: number} of a file of the kernel, {} if it cannot be read."""
    with contextlib.suppress(OSError, ValueError):
        with open(path, encoding="ascii") as stream:
            rows = [line.split() for line in stream]  # type: List[List[str]]
        return {row[0]: int(row[1]) for row in rows if len(row) == 2}
    return {}


def _number(folder: str, name: str) -> Optional[int]:
    with contextlib.suppress(OSError, ValueError):
        with open(os.path.join(folder, name), encoding="ascii") as stream:
            return int(stream.read())
    return None


class Steps(object):
    """The shortest time of a step that the quota of this process allows in the long run.

    All CPU time in the control group counts: that of the passes, of pushes and pulls, of reading
    data, and of other processes such as a server or an agent.
    """

    def __init__(self, quota: Optional[Quota]) -> None:
        self._quota, self._before = quota, quota.use() if quota else None

    def ended(self) -> float:
        """Return the seconds that the quota needs for the CPU time since the last call.

        Returns 0 without a quota.
        """
        now = self._quota.use() if self._quota else None
        before, self._before = self._before, now
        if not self._quota or now is None or before is None:
            return 0.0
        return max(0.0, now.cpu - before.cpu) / self._quota.cpus
