"""Turn the events of a run into the series and tables of the report.

CURVES is the table of the curves in the picture and in the page. A new curve is a row.
"""

import collections
from typing import (
    Dict,
    Iterable,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    Type,
    TypeVar,
)

from mxcluster.job import script_figures
from mxcluster.job.report import resources
from mxcluster.job.report.resources import Resources
from mxcluster.model.events import (
    MOST_METRICS,
    Balance,
    Batch,
    End,
    Epoch,
    Evaluation,
    Event,
    Metric,
    NodeUsage,
    Note,
    Pushes,
    Start,
    StepTimes,
    StoreWaits,
    Updates,
    Usage,
)
from mxcluster.model.plan import WORKER, Plan
from mxcluster.model.profile import Profile

E = TypeVar("E", bound=Event)
Points = List[Tuple[float, float]]  # [(seconds since the job's first event, value)]

MOST_POINTS = 600
# The vertical axis of a curve: logarithmic if the values span a wide range, from zero, or close to
# the values between 0 and 1.
LOG, FROM_ZERO, FRACTION = "log", "from zero", "fraction"


class Curve(NamedTuple):
    """A curve of each worker over time: the values of a field of its events."""

    name: str
    kinds: Tuple[Type[Event], ...]
    field: str
    title: str
    smoothed: bool  # True for values of single batches, which are noisy
    axis: str


CURVES = (
    Curve("loss", (Batch,), "loss", "Training loss", True, LOG),
    Curve("accuracy", (Epoch, End, Evaluation), "accuracy", "Validation accuracy", False, FRACTION),
    Curve("speed", (Batch,), "samples_per_s", "Samples per second", True, FROM_ZERO),
)
# Drawn only if a job has no other curve.
PUSHES = Curve("pushes", (Pushes,), "per_s", "Pushes per second", False, FROM_ZERO)


def of_metric(name: str) -> Curve:
    """Return the curve of a metric with the name `name`."""
    return Curve("metric/" + name, (), "", name, False, LOG)


class Reading(NamedTuple):
    """A figure of a worker at a place of its training. An unknown number of the place is None."""

    seconds: float  # since the job's first event
    step: Optional[float]
    epoch: Optional[float]  # a half trained third epoch is 2.5
    samples: Optional[float]
    value: float


AXES = ("seconds", "step", "epoch", "samples")  # the fields of a Reading with its place


class Worker:
    """The points of each curve of a worker, and its last events of some kinds.

    `readings` has all figures with their places. `points` has the points of the picture, which
    `collect` smooths and thins.
    """

    def __init__(self) -> None:
        self.points: Dict[str, Points] = collections.defaultdict(list)  # {name of a curve: points}
        self.readings: Dict[str, List[Reading]] = collections.defaultdict(list)
        self._place: Dict[str, float] = {}  # {axis: the last known number}
        self.start, self.end, self.waits = Start(), End(), StoreWaits()
        self.step_times: Optional[StepTimes] = None

    def add(self, event: Event, begin: float) -> None:
        """Take over the figures of `event`. The job's first event has the time `begin`."""
        if isinstance(event, Start):
            self.start = event
        elif isinstance(event, End):
            self.end = event
        elif isinstance(event, StoreWaits):
            self.waits = event
        elif isinstance(event, StepTimes):
            self.step_times = event
        self._move(event)
        seconds = event.time - begin
        if isinstance(event, Metric) and event.name and event.value is not None:
            self._add(of_metric(event.name), seconds, event.value)
        for curve in (*CURVES, PUSHES):
            value = getattr(event, curve.field) if isinstance(event, curve.kinds) else None
            if value is not None:
                self._add(curve, seconds, value)

    def _add(self, curve: Curve, seconds: float, value: float) -> None:
        step, epoch, samples = map(self._place.get, AXES[1:])
        self.points[curve.name].append((seconds, float(value)))
        self.readings[curve.name].append(Reading(seconds, step, epoch, samples, float(value)))

    def _move(self, event: Event) -> None:
        """Note the step, the epoch and the number of samples that `event` tells."""
        place: Dict[str, Optional[float]] = {}
        if isinstance(event, Batch):
            place = {"step": event.step, "samples": event.samples}
            if event.epoch is not None and event.batch is not None and self.start.batches:
                # With balance=deadline an epoch may have more steps than planned.
                place["epoch"] = event.epoch + min(1, (event.batch + 1) / self.start.batches)
        elif isinstance(event, Metric) and event.epoch is not None:
            place = {"epoch": event.epoch + 1.0}
        elif isinstance(event, Epoch):
            place = {"samples": event.samples}
            if event.epoch is not None:
                place["epoch"] = event.epoch + 1.0
        elif isinstance(event, (Evaluation, End)):
            place = {"samples": event.samples}
        self._place.update({axis: float(n) for axis, n in place.items() if n is not None})


class Histogram:
    """The updates of a group under dist_gsync.

    Y is the number of a parameter's updates since the group's last update. ``counts`` is {Y: number
    of updates}. ``dropped`` counts the updates that `gsync_max_y` dropped, which are not in
    ``counts``.
    """

    def __init__(self) -> None:
        self.counts: Dict[int, int] = {}
        self.dropped = 0

    def add(self, counts: Mapping[str, int]) -> None:
        """Add updates, {Y: number of updates}. ``counts`` keeps the order of Y."""
        for y, count in counts.items():
            self.counts[int(y)] = self.counts.get(int(y), 0) + count
        self.counts = dict(sorted(self.counts.items()))

    @property
    def updates(self) -> int:
        """The number of applied updates."""
        return sum(self.counts.values())

    @property
    def percents(self) -> Dict[int, float]:
        """{Y: percent of the updates}."""
        return {y: 100.0 * count / self.updates for y, count in self.counts.items()}

    @property
    def mean(self) -> Optional[float]:
        """The mean Y, None without an update."""
        total = sum(y * count for y, count in self.counts.items())
        return total / self.updates if self.updates else None


class Run(NamedTuple):
    """The data of a report. `begin` is the time of the first event, None without one."""

    begin: Optional[float]
    workers: Dict[int, Worker]
    histograms: Dict[int, Histogram]  # by group
    balance: List[Balance]
    notes: List[Note]
    profile: Optional[Profile] = None
    curves: Sequence[Curve] = CURVES
    speeds: Mapping[int, float] = {}  # {worker: samples per second}, from its events of batches
    resources: Resources = Resources({}, {})


def collect(plan: Plan, events: Sequence[Event]) -> Run:
    """Return the data of the report from the `events` of a job.

    The function smooths some series, and thins them to about MOST_POINTS points.
    """
    # The meters begin before the processes tell anything. Their first figures are left out.
    told = [event for event in events if not isinstance(event, (Usage, NodeUsage))]
    begin = min([event.time for event in told or events], default=None)
    workers = {
        process.index: Worker() for process in plan.of_role(WORKER) if process.index is not None
    }
    for event in events:
        if event.role == "worker" and event.index in workers:
            workers[event.index].add(event, begin or 0.0)
    for worker in workers.values():
        for curve in CURVES:
            if curve.smoothed:
                worker.points[curve.name] = smooth(worker.points[curve.name])
    return Run(
        begin=begin,
        workers=workers,
        histograms=y_histograms(events),
        balance=[
            event for event in events if isinstance(event, Balance) and event.role == "worker"
        ],
        notes=[event for event in events if isinstance(event, Note)],
        curves=_curves(events),
        speeds=script_figures.speeds(plan, events),
        resources=resources.collect(plan, events),
    )


def _curves(events: Iterable[Event]) -> List[Curve]:
    """Return CURVES, and a curve of each metric with a name; PUSHES for a job without a figure."""
    events = list(events)
    names = [event.name for event in events if isinstance(event, Metric) and event.name]
    named = [of_metric(name) for name in list(dict.fromkeys(names))[:MOST_METRICS]]
    is_known = named or any(isinstance(event, (Batch, Epoch, End)) for event in events)
    return [*CURVES, *named] if is_known else [*CURVES, PUSHES]


def last_of(events: Iterable[Event], kind: Type[E], role: str = WORKER) -> Dict[int, E]:
    """Return {index of a process with the role: its last event of the class `kind`}."""
    return {
        event.index: event
        for event in events
        if isinstance(event, kind) and event.role == role and event.index is not None
    }


def drawn(run: Run) -> List[Curve]:
    """Return the curves with a point."""
    return [
        curve
        for curve in run.curves
        if any(worker.points[curve.name] for worker in run.workers.values())
    ]


def smooth(points: Points) -> Points:
    """Return the trailing means of `points`, thinned to about MOST_POINTS points.

    A mean covers 2 % of the points, or up to 5 points of a short series. Losses and speeds of
    single batches are noisy, and the mean shows their trend.
    """
    span = max(1, min(5, len(points) // 5), len(points) // 50)
    step = max(1, -(-len(points) // MOST_POINTS))
    sums = [0.0]
    for _, value in points:
        sums.append(sums[-1] + value)
    kept = sorted(set(range(0, len(points), step)) | {len(points) - 1}) if points else []
    return [
        (points[i][0], (sums[i + 1] - sums[max(0, i + 1 - span)]) / min(span, i + 1)) for i in kept
    ]


def y_histograms(events: Iterable[Event]) -> Dict[int, Histogram]:
    """Return {group: histogram of the group's Y on all servers}, without groups that have none.

    An event of a server holds the counts since the start of the job, so the function uses only the
    last event of each server and group.
    """
    last = {(event.group, event.index): event for event in events if isinstance(event, Updates)}
    found: Dict[int, Histogram] = {}
    for event in last.values():
        histogram = found.setdefault(event.group, Histogram())
        histogram.add(event.y)
        histogram.dropped += sum(event.dropped.values())
    return {
        group: histogram
        for group, histogram in sorted(found.items())
        if histogram.updates or histogram.dropped
    }


def dropped_groups(plan: Plan, events: Iterable[Event]) -> List[str]:
    """Return a warning for each group with more dropped updates than applied updates."""
    return [
        "group %s: the servers dropped %d of %d updates, because Y was above gsync_max_y=%s. "
        "The job learned %s from this group: give a larger gsync_max_y"
        % (
            group_label(plan, group),
            found.dropped,
            found.dropped + found.updates,
            plan.options.gsync_max_y,
            "little" if found.updates else "nothing",
        )
        for group, found in y_histograms(events).items()
        if found.dropped > found.updates
    ]


def group_label(plan: Plan, group: int) -> str:
    """Return the label (str) of the group number `group`, or this number if no label exists."""
    labels = plan.group_labels
    return str(labels[group]) if group < len(labels) else str(group)


def label(plan: Plan, index: int) -> str:
    """Return the legend text of the worker `index`, such as "worker-1, node1, group a".

    If all workers form one group, the text does not name the group.
    """
    process = next(one for one in plan.of_role(WORKER) if one.index == index)
    words = [process.name, process.host]
    if several_groups(plan) and process.group is not None:
        words.append("group %s" % group_label(plan, process.group))
    return ", ".join(words)


def several_groups(plan: Plan) -> bool:
    """Return True if the workers form more than one group."""
    return len(plan.groups) > 1
