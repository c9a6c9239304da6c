"""Measure what the processes of a job use on this node, in a process of its own.

    python -m mxcluster.agent.meter

The agent starts this process in the job folder, and ends it. The meter finds the processes in
status.json, and appends an event for each of them and one for the node to events.jsonl. Each event
has the figures since the event before. The meter limits its own use: after an expensive look it
waits longer.
"""

import json
import os
import select
import sys
import time
from typing import Dict, List, NamedTuple, Optional, Tuple

from mxcluster import events
from mxcluster.file_io import read_intact
from mxcluster.model.events import NodeUsage, Usage
from mxcluster.model.status import RUNNING, Part, Status
from mxcluster.model.usage_request import UsageRequest
from mxcluster.node import nvml, processes, quota, usage
from mxcluster.node.quota import Quota
from mxcluster.node.usage import Used

PERIOD = 1.0  # least seconds between two looks
LONGEST = 60.0  # seconds between two looks of a long job
# The wait is a part of the time so far. So events of the meter do not push the rarer events of a
# script out of the end of events.jsonl, which a poll reads.
LOOKS = 100
SHARE = 0.004  # most of a core that the looks take, as a mean
FAMILIES = 10  # looks between two searches for the children of the processes


def pause(elapsed: float, spent: float, limit: Optional[Quota] = None) -> float:
    """Return the seconds until the next look.

    Args: `elapsed` seconds since the first look; `spent` CPU seconds of the last look; `limit` the
    quota of this process, of which the looks take at most SHARE, too.
    """
    least = quota.least_pause(spent, SHARE, limit)
    return max(PERIOD, min(LONGEST, elapsed / LOOKS), spent / SHARE, least)


class Reading(NamedTuple):
    """The use of a process and its children until a time."""

    when: float  # monotonic
    used: Dict[int, Used]  # by pid

    @property
    def threads(self) -> Dict[Tuple[int, int], float]:
        """{(pid, thread): seconds on a core or waiting for one}."""
        return {
            (pid, thread): seconds
            for pid, used in self.used.items()
            for thread, seconds in used.threads.items()
        }


def read(pids: List[int]) -> Reading:
    """Return what the processes `pids` have used until now."""
    found = {pid: usage.of_process(pid) for pid in pids}
    return Reading(time.monotonic(), {pid: used for pid, used in found.items() if used})


def between(first: Reading, last: Reading) -> Usage:
    """Return what a process and its children used between two readings."""
    seconds = max(last.when - first.when, 1e-3)
    before, now = first.threads, last.threads
    busy = [now[thread] - before[thread] for thread in now if thread in before]
    sizes = [used.memory for used in last.used.values()]
    memory = [size for size in sizes if size is not None]
    return Usage(
        cpu=round(_cpu(first, last) / seconds, 4),
        busy=round(min(1.0, max(0.0, max(busy)) / seconds), 4) if busy else None,
        memory=sum(memory) if memory else None,
    )


def _cpu(first: Reading, last: Reading) -> float:
    """Return the CPU seconds between two readings. A process that has begun counts from its begin.

    The time of an ended child is in its parent's.
    """
    spent = sum(used.cpu for used in last.used.values())
    return max(0.0, spent - sum(used.cpu for used in first.used.values()))


class Meter:
    """Writes the events of a node. Args: `request` the node, `folder` the path of the job's folder.

    No JobFolder, whose imports would be a third of the meter's start on each node of each job.
    """

    def __init__(self, request: UsageRequest, folder: str) -> None:
        self._request, self._path = request, os.path.join(folder, "status.json")
        self._log = events.EventLog(events.FILE, host=request.host)
        self._logs: Dict[str, events.EventLog] = {}
        self._status: Optional[Status] = None
        self._looks = 0
        self._families: Dict[str, List[int]] = {}
        self._own: List[int] = []
        self._before: Dict[str, Reading] = {}  # of each process, and of the agent under ""
        self._traffic: Optional[Tuple[float, Tuple[int, int]]] = None
        self._gpus = _handle() if request.gpus else None

    def look(self) -> None:
        """Write the events since the last look. The first look of a process makes no event."""
        self._find()
        uses = (
            {number: self._gpus.look(number) for number in self._request.gpus} if self._gpus else {}
        )
        for part in self._running():
            pids = self._families.get(part.name, [])
            found = self._since(part.name, pids)
            if found is not None:
                self._log_of(part).write(found.replaced(gpu_memory=_of_gpus(uses, pids)))
        own, traffic = self._since("", self._own), self._rates()
        if own is None:
            return
        received, sent = traffic or (None, None)
        self._log.write(
            NodeUsage(
                own=own.cpu,
                received=received,
                sent=sent,
                link=usage.link(self._request.interface),
                gpus={str(number): one.use for number, one in uses.items() if one.use is not None},
            )
        )

    def _running(self) -> List[Part]:
        parts = self._status.processes if self._status else []
        return [part for part in parts if part.pid and part.state == RUNNING]

    def _find(self) -> None:
        """Find the processes and their children. Children are searched in some looks only."""
        # A user's program may have changed the file.
        status = read_intact(self._path, Status.decode) or self._status
        if status == self._status and self._looks % FAMILIES:
            self._looks += 1
            return
        self._status, self._looks = status, 1
        roots = {part.name: processes.recorded(part) for part in self._running()}
        lines = processes.table()
        self._families, self._own = usage.family_of(roots, os.getppid(), lines)

    def _since(self, name: str, pids: List[int]) -> Optional[Usage]:
        """Return what a process used since the last look, None at the first look."""
        before, now = self._before.get(name), read(pids)
        if not now.used:
            return None
        self._before[name] = now
        return between(before, now) if before else None

    def _rates(self) -> Optional[Tuple[float, float]]:
        """Return the (received, sent) bytes per second of the interface since the last look."""
        before, counted = self._traffic, usage.traffic(self._request.interface)
        now = time.monotonic()
        self._traffic = None if counted is None else (now, counted)
        if before is None or counted is None:
            return None
        seconds = max(now - before[0], 1e-3)
        # The counters begin again when the interface does.
        first, second = (max(0, new - old) / seconds for new, old in zip(counted, before[1]))
        return round(first, 1), round(second, 1)

    def _log_of(self, part: Part) -> events.EventLog:
        if part.name not in self._logs:
            log = events.EventLog(events.FILE, part.role, part.index, self._request.host)
            self._logs[part.name] = log
        return self._logs[part.name]


def _handle() -> Optional[nvml.Nvml]:
    try:
        return nvml.Nvml()
    except OSError as error:
        sys.stderr.write("mxcluster: the GPUs are not measured: %s\n" % error)
        return None


def _of_gpus(uses: Dict[int, nvml.GpuUse], pids: List[int]) -> Optional[int]:
    """Return the bytes of the processes `pids` on all GPUs, None if no GPU names one of them.

    A driver names pids of the machine, which differ from those in a container.
    """
    known = [
        one.memory[pid] for one in uses.values() if one.memory for pid in pids if pid in one.memory
    ]
    return sum(known) if known else None


def follow(request: UsageRequest) -> None:
    """Write events until stdin ends."""
    meter, began = Meter(request, os.getcwd()), time.monotonic()
    limit = quota.tightest()
    while True:
        before = time.process_time()
        try:
            meter.look()
        except OSError as error:  # a full disk may have space again
            sys.stderr.write("mxcluster: the meter: %s\n" % error)
        spent = time.process_time() - before
        wait = pause(time.monotonic() - began, spent, limit)
        if select.select([sys.stdin], [], [], wait)[0]:
            return


if __name__ == "__main__":
    follow(UsageRequest.decode(json.loads(sys.stdin.buffer.readline().decode("ascii"))))
