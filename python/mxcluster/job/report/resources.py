"""Collect what the processes and nodes of a job used, for the report."""

from typing import Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple, TypeVar

from mxcluster.model.events import Event, NodeUsage, Usage
from mxcluster.model.plan import Plan

NOT_MEASURED = "not measured"
SHORT = 10.0  # seconds of a job in which the meter of a busy node may have no second look
GIGA, MEGA = 1e9, 1e6
E = TypeVar("E", Usage, NodeUsage)
Points = List[Tuple[float, float]]  # [(seconds since the job's first event, value)]


class Resources(NamedTuple):
    """The events of the meters, in the order of time."""

    processes: Dict[str, List[Usage]]  # by name of the process
    nodes: Dict[str, List[NodeUsage]]  # by host

    def __bool__(self) -> bool:
        """Return True if a meter has measured."""
        return bool(self.processes or self.nodes)


class ProcessUse(NamedTuple):
    """A row of the table of processes, as texts."""

    process: str
    host: str
    cpu: str
    busy: str
    memory: str
    gpu_memory: str


class NodeUse(NamedTuple):
    """A row of the table of nodes, as texts."""

    host: str
    received: str
    sent: str
    link: str
    gpus: str
    own: str


class Figure(NamedTuple):
    """A figure over time: a line for each process, or for each node."""

    title: str
    unit: str
    lines: Dict[str, Points]  # by the name of the process, or by the name of the line


def collect(plan: Plan, events: Iterable[Event]) -> Resources:
    """Return the events of the meters among `events`. Processes outside of the plan do not count.

    Args: `events` of the job, sorted by time.
    """
    names = {(one.role, one.index): one.name for one in plan.processes}
    found = Resources({}, {})
    for event in events:
        if isinstance(event, Usage) and (event.role, event.index) in names:
            found.processes.setdefault(names[event.role or "", event.index], []).append(event)
        elif isinstance(event, NodeUsage) and event.host in plan.nodes:
            found.nodes.setdefault(event.host or "", []).append(event)
    return found


def mean(found: Sequence[E], value: Callable[[E], Optional[float]]) -> Optional[float]:
    """Return the mean of a figure over time, None without a value.

    The figure of an event is that of the time since the event before. So a value counts for this
    time, and the first value as much as the second.
    """
    known = [(one.time, value(one)) for one in found]
    rows = [(moment, number) for moment, number in known if number is not None]
    weights = [max(0.0, rows[n][0] - rows[n - 1][0]) for n in range(1, len(rows))]
    weights = weights[:1] + weights if sum(weights) else [1.0] * len(rows)
    total = sum(weight * row[1] for weight, row in zip(weights, rows))
    return total / sum(weights) if rows else None


def why_empty(seconds: float) -> str:
    """Return the sentence in place of the tables of a job without figures.

    Args: `seconds` of the training, or of the whole job if the job failed.
    """
    if seconds < SHORT:
        return (
            "No figures: the processes of the job ended before their meters had looked twice. "
            "A meter looks once a second, and measures from one look to the next."
        )
    return "No figures: no meter of the job has measured. The logs of the agents may say why."


def process_rows(found: Resources, plan: Plan) -> List[ProcessUse]:
    """Return the table of processes in the order of the plan. Memory is the most, CPU a mean."""
    rows = []
    for process in plan.processes:
        own = found.processes.get(process.name, [])
        rows.append(
            ProcessUse(
                process=process.name,
                host=process.host,
                cpu=_text("%.2f cores", mean(own, lambda one: one.cpu)),
                busy=_text("%.0f %%", mean(own, lambda one: one.busy), 100),
                memory=_text("%.2f GB", _most(one.memory for one in own), 1 / GIGA),
                gpu_memory=_text("%.2f GB", _most(one.gpu_memory for one in own), 1 / GIGA)
                if process.gpus
                else "",
            )
        )
    return rows


def node_rows(found: Resources, plan: Plan) -> List[NodeUse]:
    """Return the table of nodes in the order of the plan, with means."""
    rows = []
    for host in plan.nodes:
        own = found.nodes.get(host, [])
        gpus = gpus_of(plan, host)
        uses = [(gpu, _text("%.0f %%", mean(own, use_of(gpu)), 100)) for gpu in gpus]
        rows.append(
            NodeUse(
                host=host,
                received=_text("%.1f MB/s", mean(own, lambda one: one.received), 1 / MEGA),
                sent=_text("%.1f MB/s", mean(own, lambda one: one.sent), 1 / MEGA),
                link=_text("%.1f MB/s", _most(one.link for one in own), 1 / MEGA),
                gpus=", ".join("%s: %s" % use for use in uses),
                own=_text("%.2f %%", mean(own, lambda one: one.own), 100),
            )
        )
    return rows


def gpus_of(plan: Plan, host: str) -> List[str]:
    """Return the numbers of the job's GPUs on `host`."""
    numbers = {number for one in plan.processes if one.host == host for number in one.gpus}
    return [str(number) for number in sorted(numbers)]


def curves(found: Resources, plan: Plan, begin: float) -> List[Figure]:
    """Return the figures over time with a line. Args: `begin` of the job in unix seconds."""
    processes, nodes = found.processes, found.nodes

    def of_all(
        own: Dict[str, List[E]], value: Callable[[E], Optional[float]], factor: float
    ) -> Dict[str, Points]:
        return {name: _points(events, value, factor, begin) for name, events in own.items()}

    uses = {
        "%s GPU %s" % (host, gpu): _points(nodes.get(host, []), use_of(gpu), 100, begin)
        for host in plan.nodes
        for gpu in gpus_of(plan, host)
    }
    figures = [
        Figure("CPU", "cores", of_all(processes, lambda one: one.cpu, 1)),
        Figure("Memory", "GB", of_all(processes, lambda one: one.memory, 1 / GIGA)),
        Figure("GPU memory", "GB", of_all(processes, lambda one: one.gpu_memory, 1 / GIGA)),
        Figure("GPU use", "%", uses),
        Figure("Network, received", "MB/s", of_all(nodes, lambda one: one.received, 1 / MEGA)),
        Figure("Network, sent", "MB/s", of_all(nodes, lambda one: one.sent, 1 / MEGA)),
    ]
    drawn = [
        one._replace(lines={name: points for name, points in one.lines.items() if points})
        for one in figures
    ]
    return [one for one in drawn if one.lines]


def _points(
    events: Sequence[E], value: Callable[[E], Optional[float]], factor: float, begin: float
) -> Points:
    """Return the points of a figure from the begin of the job on."""
    known = [(one.time - begin, value(one)) for one in events]
    return [(time, factor * number) for time, number in known if number is not None and time >= 0]


def use_of(gpu: str) -> Callable[[NodeUsage], Optional[float]]:
    """Return a function that returns the use of the GPU number `gpu` in an event."""
    return lambda one: one.gpus.get(gpu)


def _most(values: Iterable[Optional[float]]) -> Optional[float]:
    return max((value for value in values if value is not None), default=None)


def _text(form: str, value: Optional[float], factor: float = 1.0) -> str:
    return NOT_MEASURED if value is None else form % (factor * value)
