"""Read the lines of a node's workers in a process of its own, and write events of their figures.

    python -m mxcluster.agent.line_reader

The agent starts this process in the job folder for a job with a script. A regular expression of a
user can keep a process busy for ever, and then no other thread of this process runs. So no pattern
runs in the agent. The reader looks for a pattern for at most LIMIT seconds of CPU time in a line,
and then drops its metric. The agent tells the reader by the end of stdin that the workers have
ended.
"""

import json
import os
import re
import select
import signal
import sys
import time
from types import FrameType
from typing import Callable, Dict, Iterator, List, Match, Optional, Pattern, Tuple

from mxcluster import events
from mxcluster.agent.log_files import last_frame, open_regular
from mxcluster.agent.worker_lines import LONGEST, WorkerLines
from mxcluster.errors import BadInput
from mxcluster.model.events import LINES, DroppedMetric, Pushes
from mxcluster.model.line_request import LineRequest
from mxcluster.node import json_cli
from mxcluster.training import pulse_file

PERIOD = 0.5  # seconds between two looks at the logs
COUNTED = 3.0  # seconds between two looks at the counters of pushes
LIMIT = 1.0  # seconds of CPU time for one pattern on one line
MOST_BYTES = 4 << 20  # of a log in one look; the reader skips what a script has printed before


class GrowingLog:
    """The lines of a log that still grows, each cut at LONGEST characters."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._offset, self._rest = 0, b""

    def lines(self, has_ended: bool = False) -> Iterator[str]:
        """Yield the lines since the last call. Of the frames of a progress bar, yield the last.

        Args: `has_ended` True after the end of the process, whose last line may lack its end.
        """
        pieces = (self._rest + self._read()).split(b"\n")
        self._rest = pieces.pop()
        frames, found, begun = self._rest.rpartition(b"\r")
        if found:  # a bar that still runs
            pieces.append(frames)
        if has_ended:
            pieces.append(begun)
        self._rest = begun[: 4 * LONGEST]  # bytes; a character has at most four
        for piece in pieces:
            yield last_frame(piece.decode("utf-8", errors="replace"))[:LONGEST]

    def _read(self) -> bytes:
        try:
            descriptor = open_regular(self._path)
        except (OSError, BadInput):
            return b""
        with open(descriptor, "rb") as stream:
            size = os.fstat(descriptor).st_size
            start = max(self._offset, size - MOST_BYTES)
            stream.seek(start)
            data = stream.read(MOST_BYTES)
        if start > self._offset:
            self._rest, data = b"", data.partition(b"\n")[2]
        self._offset = start + len(data) if start == self._offset else size
        return data


class TooSlow(Exception):
    """Error for a pattern that needs more than LIMIT seconds for a line."""


class Patterns:
    """The patterns of the knob `metrics`, each of them until it is too slow.

    Args: `metrics` {name: regular expression}; `drop` a function of a name and a reason.
    """

    def __init__(self, metrics: Dict[str, str], drop: Callable[[str, str], None]) -> None:
        self._drop, self._is_timed = drop, False
        self._patterns: Dict[str, Pattern[str]] = {}
        signal.signal(signal.SIGVTALRM, self._expire)
        for name, pattern in metrics.items():
            try:  # The controller's Python may know more forms than this Python.
                self._patterns[name] = re.compile(pattern)
            except (re.error, OverflowError, RecursionError) as error:
                drop(name, "this node's Python %s refuses it: %s" % (sys.version.split()[0], error))

    def _expire(self, signum: int, frame: Optional[FrameType]) -> None:
        if self._is_timed:
            raise TooSlow

    def search(self, line: str) -> Iterator[Tuple[str, Match[str]]]:
        """Yield (name, match) of each metric in `line`."""
        for name, pattern in list(self._patterns.items()):
            try:
                found = self._timed(pattern, line)
            except (TooSlow, RecursionError, MemoryError) as error:
                del self._patterns[name]
                why = "needs more than %g s for a line of %d characters" % (LIMIT, len(line))
                self._drop(name, why if isinstance(error, TooSlow) else "failed: %r" % error)
                continue
            if found:
                yield name, found

    def _timed(self, pattern: Pattern[str], line: str) -> Optional[Match[str]]:
        """Return pattern.search(line). The module `re` handles signals while it searches."""
        self._is_timed = True
        signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT)
        try:
            return pattern.search(line)
        finally:
            self._is_timed = False
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)


class Worker:
    """A worker whose lines the reader follows."""

    def __init__(self, name: str, index: int, host: str, patterns: Patterns) -> None:
        self._log = GrowingLog(name + ".log")
        self._events = events.EventLog(events.FILE, "worker", index, host)
        self._pulse, self._patterns = pulse_file.file_of(".", name), patterns
        self._figures, self._is_known = WorkerLines(), False
        self._counted: Optional[Tuple[float, int]] = None  # monotonic time, pushes

    def look(self, has_ended: bool) -> None:
        """Write the events of the new lines. Args: as for GrowingLog.lines."""
        for line in self._log.lines(has_ended):
            self._figures.read(line)
            for name, found in self._patterns.search(line):
                value, epoch = number(found), whole(found.groupdict().get("epoch"))
                if value is not None:
                    self._figures.metric(name, value, epoch)
        found_events = self._figures.take()
        for event in found_events:
            self._events.write(event)
        self._is_known = self._is_known or bool(found_events)

    def count(self) -> None:
        """Write the pushes per second of a worker without a known line."""
        pulse = None if self._is_known else pulse_file.read(self._pulse)
        if pulse is None or not pulse.pushes:
            return
        now, before = time.monotonic(), self._counted
        self._counted = now, pulse.pushes
        if before and now > before[0]:
            rate = max(0, pulse.pushes - before[1]) / (now - before[0])
            self._events.write(Pushes(pushes=pulse.pushes, per_s=round(rate, 3), source=LINES))


def number(found: Match[str]) -> Optional[float]:
    """Return the figure of a match: that of the group `value`, or of the first group.

    The group `epoch` is no figure. Returns None if the group has no number.
    """
    names = found.re.groupindex
    groups = [index for index in range(1, found.re.groups + 1) if index != names.get("epoch")]
    chosen = names.get("value", groups[0] if groups else 0)
    try:
        return float(found.group(chosen) or "")
    except ValueError:
        return None


def whole(text: Optional[str]) -> Optional[int]:
    """Return the number of an epoch from the text of a group, None without a number."""
    return int(text) if text and re.fullmatch("[0-9]{1,9}", text) else None


def follow(request: LineRequest) -> None:
    """Write events until stdin ends, and then those of the last lines."""

    def drop(name: str, why: str) -> None:
        log.write(DroppedMetric(name=name, why=why, source=LINES))

    log = events.EventLog(events.FILE, host=request.host)
    patterns = Patterns(dict(request.metrics), drop)
    workers: List[Worker] = [
        Worker(name, index, request.host, patterns) for name, index in request.workers.items()
    ]
    counted, has_ended = time.monotonic(), False
    while not has_ended:
        has_ended = bool(select.select([sys.stdin], [], [], PERIOD)[0])
        for worker in workers:
            worker.look(has_ended)
        if time.monotonic() - counted >= COUNTED and not has_ended:
            counted = time.monotonic()
            for worker in workers:
                worker.count()


if __name__ == "__main__":
    follow(LineRequest.decode(json.loads(sys.stdin.buffer.readline().decode("ascii"))))
    json_cli.leave(0)  # the agent waits
