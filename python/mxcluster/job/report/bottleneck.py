"""Name the bottleneck of a training in one sentence, from the figures of its meters.

The sentence names a cause only if the figures leave no doubt: the workers compute little, and one
part of the cluster is at its limit.
"""

from typing import Iterable, List, Mapping, NamedTuple, Optional, Sequence

from mxcluster.job.report import resources
from mxcluster.lists import grouped
from mxcluster.model.events import Batch, Epoch, Event, NodeUsage, Pushes
from mxcluster.model.plan import WORKER, Plan, Process

# Parts of the time, 0 to 1. A process above BUSY is at its limit: a thread at 80 % leaves too
# little for bursts. Workers below IDLE spend a third of their time on waiting.
BUSY, IDLE = 0.8, 0.65
FULL = 0.7  # of the speed of a link; TCP and the bursts of a step leave the rest unused
HUNGRY = 0.3  # the part of a worker's time that it waits for training data
LEAST = 3  # events of a process: a mean of fewer is chance


class Load(NamedTuple):
    """The parts of the training time that a process spent on work and waits, None if unknown."""

    name: str
    host: str
    busy: Optional[float]  # computed, or waited for a core
    data_wait: Optional[float] = None  # waited for training data


class Traffic(NamedTuple):
    """The traffic at the interface of a node with a server."""

    bytes_per_s: float  # of the busier direction
    link: float  # bytes per second


class Loads(NamedTuple):
    """The loads of a job."""

    workers: Sequence[Load]
    together: Sequence[Sequence[str]]  # names of workers that wait for each other
    servers: Sequence[Load]
    traffic: Mapping[str, Traffic]  # by host, without hosts whose link is unknown


def find(plan: Plan, events: Sequence[Event]) -> Optional[str]:
    """Return the sentence about the bottleneck of a job, None if no cause stands out.

    Args: `events` of the job, sorted by time.
    """
    return None if plan.options.measures_cluster else sentence(loads(plan, events))


def sentence(found: Loads) -> Optional[str]:
    """Return the sentence about the bottleneck with its figures, None if no cause stands out."""
    hungry = max(found.workers, key=lambda one: one.data_wait or 0.0, default=None)
    if hungry and (hungry.data_wait or 0.0) >= HUNGRY:
        return "the training data: %s on %s waited %s of the time for its samples" % (
            hungry.name,
            hungry.host,
            _percent(hungry.data_wait),
        )
    straggler = _straggler(found)
    if straggler:
        return straggler
    work = _mean(one.busy for one in found.workers)
    if work is None or work > IDLE:
        return None
    idle = "and the workers computed %s" % _percent(work)
    server = max(found.servers, key=lambda one: one.busy or 0.0, default=None)
    if server and (server.busy or 0.0) >= BUSY:
        return "the CPU of %s on %s: its busiest thread was busy %s of the time, %s" % (
            server.name,
            server.host,
            _percent(server.busy),
            idle,
        )
    used = {host: one.bytes_per_s / one.link for host, one in found.traffic.items()}
    host = max(used, key=lambda one: used[one], default="")
    if host and used[host] >= FULL:
        return "the network of %s, which has a server: %.1f MB/s are %s of its link, %s" % (
            host,
            found.traffic[host].bytes_per_s / 1e6,
            _percent(used[host]),
            idle,
        )
    return None


def _straggler(found: Loads) -> Optional[str]:
    """Return the sentence about a busy worker for which idle workers wait."""
    known = {one.name: one for one in found.workers if one.busy is not None}
    for members in found.together:
        own = [known[name] for name in members if name in known]
        if len(own) < 2 or len(own) < len(members):
            continue
        slowest = max(own, key=lambda one: one.busy or 0.0)
        others = max(one.busy or 0.0 for one in own if one is not slowest)
        if (slowest.busy or 0.0) >= BUSY and others <= IDLE:
            return "the straggler %s on %s: it computed %s of the time, %s" % (
                slowest.name,
                slowest.host,
                _percent(slowest.busy),
                "and the workers that wait for it at most %s" % _percent(others),
            )
    return None


def loads(plan: Plan, events: Sequence[Event]) -> Loads:
    """Return the loads between the first and the last figure of the workers' training."""
    of_training = [
        one.time for one in events if one.role == WORKER and isinstance(one, (Batch, Epoch, Pushes))
    ]
    begin, end = min(of_training, default=0.0), max(of_training, default=0.0)
    # An event has the figures since the event before. So the first one in this time counts not.
    within = resources.collect(plan, [one for one in events if begin <= one.time <= end])
    hosts = {one.host for one in plan.processes if one.role == "server"}
    traffic = {host: _traffic(within.nodes.get(host, [])[1:]) for host in sorted(hosts)}
    names = {one.index: one.name for one in plan.of_role(WORKER)}
    waited = grouped(
        (one.index, one.data_wait)
        for one in events
        if isinstance(one, Batch) and one.role == WORKER and one.data_wait is not None
    )

    def load(process: Process) -> Load:
        own = within.processes.get(process.name, [])[1:]
        if process.gpus:
            busy = _gpu_use(within.nodes.get(process.host, [])[1:], process.gpus)
        else:
            busy = resources.mean(own, lambda one: one.busy) if len(own) >= LEAST else None
        waits = waited.get(process.index, []) if process.role == WORKER else []
        data_wait = _mean(waits) if len(waits) >= LEAST else None
        return Load(process.name, process.host, busy, data_wait)

    return Loads(
        workers=[load(one) for one in plan.of_role(WORKER)],
        together=[[names[index] for index in members] for members in plan.together],
        servers=[load(one) for one in plan.of_role("server")],
        traffic={host: one for host, one in traffic.items() if one},
    )


def _traffic(events: Sequence[NodeUsage]) -> Optional[Traffic]:
    received = resources.mean(events, lambda one: one.received)
    sent = resources.mean(events, lambda one: one.sent)
    links = [one.link for one in events if one.link]
    if received is None or sent is None or not links or len(events) < LEAST:
        return None
    return Traffic(max(received, sent), links[-1])


def _gpu_use(events: Sequence[NodeUsage], gpus: Sequence[int]) -> Optional[float]:
    """Return the mean use of a worker's GPUs. Its threads spin while they wait for a GPU."""
    if len(events) < LEAST:
        return None
    return _mean(resources.mean(events, resources.use_of(str(number))) for number in gpus)


def _mean(values: Iterable[Optional[float]]) -> Optional[float]:
    known: List[float] = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _percent(part: Optional[float]) -> str:
    return "%.0f %%" % (100 * (part or 0.0))
