"""Find the figures of a job with a script: accuracy and speed, and where they come from."""

from typing import Dict, List, Mapping, Optional, Sequence, Set, Tuple

from mxcluster.errors import some
from mxcluster.lists import several
from mxcluster.model.events import Batch, DroppedMetric, End, Epoch, Event, Metric, Pushes
from mxcluster.model.plan import WORKER, Plan

MOST = 20  # metrics in a message: a script may write any number of events
HELP = (
    "print lines as mx.callback.Speedometer and Module.fit do, with logging at the level INFO, or "
    "give the knob metrics a regular expression for your own lines"
)
# The figures of the classes of events, in the order of the sentence.
_FIGURES = (
    (End, "accuracy", "accuracy"),
    (Epoch, "accuracy", "accuracy"),
    (Batch, "loss", "loss"),
    (Batch, "samples_per_s", "samples per second"),
)


def accuracy(plan: Plan, events: Sequence[Event]) -> Optional[float]:
    """Return a script's last accuracy of worker 0 on held-out samples, None without one."""
    if not plan.options.script:
        return None
    found = [
        event.accuracy
        for event in events
        if isinstance(event, (Epoch, End)) and event.role == WORKER and event.index == 0
    ]
    return next((one for one in reversed(found) if one is not None), None)


def speed(plan: Plan, events: Sequence[Event]) -> Optional[float]:
    """Return the samples per second of all workers of a script, None without one."""
    return sum(speeds(plan, events).values()) or None


def speeds(plan: Plan, events: Sequence[Event]) -> Dict[int, float]:
    """Return {worker of a script: its mean speed in samples per second}.

    The mean is harmonic: a Speedometer prints a speed after each equal number of samples.
    """
    if not plan.options.script:
        return {}
    seconds: Dict[int, List[float]] = {}  # of one sample, for each reading
    for event in events:
        if isinstance(event, Batch) and event.role == WORKER and event.index is not None:
            if event.samples_per_s and event.samples_per_s > 0:
                seconds.setdefault(event.index, []).append(1.0 / event.samples_per_s)
    return {index: len(found) / sum(found) for index, found in seconds.items()}


def sources(plan: Plan, events: Sequence[Event]) -> str:
    """Return the sources of a script's figures in words, "" for a job without a script.

    Such as "accuracy from worker 0's lines; loss from the lines of 4 workers". Without a figure,
    the words say what a script can do.
    """
    if not plan.options.script:
        return ""
    of_lines: Dict[str, Set[int]] = {}
    own: Dict[str, Set[int]] = {}
    for event in events:
        for name in _names(event):
            found = own if event.source is None else of_lines
            found.setdefault(name, set()).add(event.index or 0)
    if 0 in of_lines.get("accuracy", ()):
        of_lines["accuracy"] = {0}  # the accuracy of the job is that of worker 0
    parts = ["%s from %s" % (names, _lines_of(which)) for names, which in _together(of_lines)]
    parts += ["%s from events of the script" % some(list(own))] if own else []
    if parts:
        return "; ".join(parts)
    if any(isinstance(event, Pushes) for event in events):
        return "only pushes per second, by the counter of the kv-store: %s" % HELP
    return "none: %s" % HELP


def dropped(events: Sequence[Event]) -> List[str]:
    """Return a warning for each metric that the reader of lines has dropped."""
    hosts: Dict[Tuple[str, str], List[str]] = {}
    for event in events:
        if isinstance(event, DroppedMetric):
            hosts.setdefault((event.name, event.why), []).append(event.host or "a node")
    return [
        "the metric %s is dropped on %s, because its regular expression %s: correct the expression "
        "in the knob metrics" % (name, some(sorted(set(where))), why)
        for (name, why), where in list(hosts.items())[:MOST]
    ]


def _names(event: Event) -> List[str]:
    """Return the names of the figures that `event` of a worker has."""
    if event.role != WORKER:
        return []
    if isinstance(event, Metric):
        return [event.name] if event.name and event.value is not None else []
    return [
        name
        for cls, field, name in _FIGURES
        if isinstance(event, cls) and vars(event)[field] is not None
    ]


def _together(found: Mapping[str, Set[int]]) -> List[Tuple[str, Set[int]]]:
    """Return [(names of the figures, their workers)], with one entry for equal workers."""
    groups: List[Tuple[List[str], Set[int]]] = []
    order = [name for _, _, name in _FIGURES]
    for name in sorted(found, key=lambda one: order.index(one) if one in order else len(order)):
        names = next((names for names, which in groups if which == found[name]), None)
        if names is None:
            groups.append(([name], found[name]))
        else:
            names.append(name)
    return [(some(names), which) for names, which in groups[:MOST]]


def _lines_of(workers: Set[int]) -> str:
    if len(workers) == 1:
        return "worker %d's lines" % next(iter(workers))
    return "the lines of %s" % several(len(workers), "worker")
