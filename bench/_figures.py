"""Make figures of the events of a job: its speed, and the parts of a step of each worker.

All figures come from a window of time in which all workers of the job train. The functions do no
I/O.
"""

import statistics
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from mxcluster.job.sweep import limit, readings
from mxcluster.job.sweep.comparison_rows import Quartiles, quartiles
from mxcluster.model.events import Batch, Event, StepTimes, Usage

PARTS = ("data", "compute", "remainder", "exchange", "push_pull", "servers", "quota")


class Window(NamedTuple):
    """A time of the training, in unix seconds."""

    begin: float
    end: float


class Step(NamedTuple):
    """A mean step of a worker: its seconds, the seconds of its parts, and its samples."""

    worker: int
    seconds: float
    samples: float
    parts: Mapping[str, float]  # by PARTS

    @property
    def covered(self) -> float:
        """The part of the step that the parts explain, 1 for all of it."""
        return sum(self.parts.values()) / self.seconds


def of_workers(events: Sequence[Event], kind: type) -> Dict[int, list]:
    """Return {worker: its events of the class `kind`, by time}."""
    found: Dict[int, list] = {}
    for event in sorted(events, key=lambda one: one.time):
        if isinstance(event, kind) and event.role == "worker" and event.index is not None:
            found.setdefault(event.index, []).append(event)
    return found


def window(
    events: Sequence[Event], workers: int, warm_up: float, seconds: float, cycle: float = 0.0
) -> Window:
    """Return the last `seconds` in which all `workers` trained, without the `warm_up`.

    Args: `warm_up` the seconds after the first event of the last worker; `cycle` the seconds of a
    cycle of speeds: the window has a whole number of cycles.

    Raises ValueError if the training was too short.
    """
    batches = of_workers(events, Batch)
    if len(batches) != workers:
        raise ValueError("%d of %d workers have trained" % (len(batches), workers))
    begin = max(own[0].time for own in batches.values()) + warm_up
    end = min(own[-1].time for own in batches.values())
    length = min(seconds, end - begin)
    if cycle:
        length -= length % cycle
    if length < seconds / 2:
        raise ValueError(
            "all workers trained for %.0f s after the warm-up of %.0f s, and %.0f s are wanted: "
            "give a longer --start" % (end - begin, warm_up, seconds)
        )
    return Window(end - length, end)


def samples_per_s(events: Sequence[Event], of: Window) -> float:
    """Return the samples per second of all workers together in a window."""
    trained = readings.samples_over_time(events).values()
    begin, end = (sum(readings.interpolated(one, when) for one in trained) for when in of)
    return (end - begin) / (of.end - of.begin)


def steps(events: Sequence[Event], of: Window) -> List[Step]:
    """Return the mean step of each worker in a window, from its events StepTimes.

    The CPU time of the busiest server counts apart from the pushes and pulls of which it is a part.
    If several workers push at their own times, it is the time that this server computed for all of
    them during a step of this one.
    """
    busiest = servers_cpu(events, of)
    found = []
    for worker, own in sorted(of_workers(events, StepTimes).items()):
        inside = [one for one in own if of.begin <= one.time <= of.end]
        if len(inside) < 2 or inside[-1].steps == inside[0].steps:
            continue
        first, last = inside[0], inside[-1]
        count = last.steps - first.steps
        seconds = (last.time - first.time) / count
        parts = {
            name: (getattr(last, name) - getattr(first, name)) / count
            for name in PARTS
            if name != "servers"
        }
        servers = min(parts["push_pull"], busiest * seconds)
        parts.update(servers=servers, push_pull=parts["push_pull"] - servers)
        samples = (last.samples - first.samples) / count
        found.append(Step(worker, seconds, samples, {name: parts[name] for name in PARTS}))
    return found


def servers_cpu(events: Sequence[Event], of: Window) -> float:
    """Return the mean number of cores of the busiest server process in a window, 0 if unknown."""
    found: Dict[Optional[int], List[float]] = {}
    for event in events:
        if isinstance(event, Usage) and event.role == "server" and event.cpu is not None:
            if of.begin <= event.time <= of.end:
                found.setdefault(event.index, []).append(event.cpu)
    return max((statistics.mean(own) for own in found.values()), default=0.0)


def table(rows: Sequence[Tuple[str, Sequence[float]]], limits: Sequence[float]) -> List[str]:
    """Return lines with the speed of each scheme, as samples/s and as a part of the limit.

    Args: `rows` the (name, samples per second in each turn) of each scheme, first the baseline;
    `limits` the sum of the solo speeds in each turn.
    """
    own = quartiles(list(map(limit.part, rows[0][1], limits))).median
    lines = [
        "%-30s %22s %22s %10s" % ("scheme", "samples/s", "part of the limit", rows[0][0]),
        "%-30s %22s" % ("limit: sum of the solo speeds", _shown(quartiles(limits), "%.0f")),
    ]
    for name, speeds in rows:
        part = quartiles(list(map(limit.part, speeds, limits)))
        speed = _shown(quartiles(speeds), "%.0f")
        lines.append("%-30s %22s %22s %10.3f" % (name, speed, _shown(part, "%.3f"), own))
    return lines


def _shown(of: Quartiles, form: str) -> str:
    return "%s (%s to %s)" % tuple(form % one for one in (of.median, of.low, of.high))


def breakdown(name: str, found: Sequence[Step]) -> List[str]:
    """Return lines with the seconds of a step of each worker, for the scheme `name`."""
    words = [name.replace("_", " ") for name in PARTS]
    lines = ["%-30s %6s %7s" % (name, "step", "sum") + "".join(" %9s" % one for one in words)]
    lines[0] += " %8s" % "samples"
    for one in found:
        parts = "".join(" %9.4f" % one.parts[part] for part in PARTS)
        line = "  worker %-21d %6.4f %6.1f%%%s %8.1f"
        lines.append(line % (one.worker, one.seconds, 100 * one.covered, parts, one.samples))
    return lines
