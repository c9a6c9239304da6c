"""Define a profile of a cluster: measured speeds of workers and servers, and proposed groups.

`profile.yml` measures the speeds, and `mxcluster.cluster.profile.complete` adds the proposal. The
file `.state/<inventory>/profile.json` stores the profile for the planner.
"""

from collections import Counter
from typing import Optional, Sequence, Tuple, TypeVar

from mxcluster.model import names
from mxcluster.model.record import Record, field, record
from mxcluster.model.shapes import (
    Shape,
    Wrong,
    each,
    matching,
    optional,
    passing,
    real,
    whole,
    words,
)

T = TypeVar("T")

SCHEMA = 1
CURE = "run profile.yml again"
_MOST = 100000  # workers, servers, parameters or GPUs

_host = matching(r"[^\s\x00-\x1f\x7f-\x9f]+", "the name of a host", 253)
_number = whole(0, _MOST)
_seconds = real(0, 1e9)
per_s = real(1e-9, 1e15)  # speeds of workers and servers
_ratio = real(0, 1e9)
_schema = passing(
    int,
    lambda value: value == SCHEMA,
    "the schema %d, which this version of mxcluster reads" % SCHEMA,
)


def _many(shape: Shape[T]) -> Shape[Sequence[T]]:
    return each(shape, _MOST)


def _share(value: object) -> Tuple[float, float]:
    fraction = real(0, 1)
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise Wrong("a pair of numbers", value)
    return fraction(value[0]), fraction(value[1])


class Speed(Record):
    """The measured speed of a worker."""

    samples_per_s: float = field(per_s)
    spread: float = field(_ratio)
    """The interquartile range, divided by the median."""


class ServerTimes(Record):
    """The times of a worker's exchange of the model with one server."""

    push_s: float = field(_seconds)
    pull_s: float = field(_seconds)


def worker_name(host: str, number: int) -> str:
    """Return the name of a worker, such as "node1 worker 0"."""
    return "%s worker %d" % (host, number)


class Worker(Record):
    """The measurements of one worker."""

    host: str = field(_host)
    number: int = field(_number)
    """The number of the worker on its host, from 0."""
    alone: Speed = field(record(Speed))
    together: Speed = field(record(Speed))
    """The speed while all workers compute."""
    exchange_s: float = field(_seconds)
    """The time of a push and pull of the model by all workers at once."""
    servers: Sequence[ServerTimes] = field(_many(record(ServerTimes)))
    """The times of each server."""
    gpus: Optional[Sequence[int]] = field(optional(_many(whole(0, names.MOST_GPU))), default=None)
    """The GPU numbers of a worker with several GPUs."""
    gpu_speeds: Optional[Sequence[float]] = field(optional(_many(per_s)), default=None)
    """The speed of each of these GPUs alone, in samples per second."""

    @property
    def name(self) -> str:
        """The worker's name, see `worker_name`."""
        return worker_name(self.host, self.number)

    def refuse_contradictions(self) -> None:
        """Raise Wrong unless there is a speed for each GPU."""
        if len(self.gpus or ()) != len(self.gpu_speeds or ()):
            raise Wrong("a list with a speed of each GPU", self.gpu_speeds, ".gpu_speeds")


class Server(Record):
    """The measured speed of one server."""

    host: str = field(_host)
    number: int = field(_number)
    """The number of the server on its host, from 0."""
    updates_per_s: float = field(per_s)
    """The number of updates of the whole model in a second."""

    @property
    def name(self) -> str:
        """The server's name in messages, such as "node1 server 0"."""
        return "%s server %d" % (self.host, self.number)


class MeasuredProfile(Record):
    """The measured part of a profile."""

    schema: int = field(_schema, default=SCHEMA)
    job: str = field(words)
    time: float = field(real(0, 253402300799))
    """The time of the measurement in unix seconds, to the year 9999."""
    mxnet: str = field(words)
    parameters: Sequence[int] = field(_many(whole(1)))
    """The number of elements of each parameter, from the lowest layer."""
    workers: Sequence[Worker] = field(_many(record(Worker)))
    servers: Sequence[Server] = field(_many(record(Server)))
    network: str = field(words)
    data: str = field(words)
    batch_size: int = field(whole(1))

    def refuse_contradictions(self) -> None:
        """Raise Wrong if an entry occurs twice, or if a worker lacks the times of a server."""
        if not self.workers:
            raise Wrong("a list with a worker", [], ".workers")
        for kind, items in (("workers", self.workers), ("servers", self.servers)):
            counted = Counter(item.name for item in items)
            repeated = [name for name, times in counted.items() if times > 1]
            if repeated:
                raise Wrong("a list with each entry once", repeated, "." + kind)
        for place, worker in enumerate(self.workers):
            if len(worker.servers) != len(self.servers):
                raise Wrong(
                    "a list with the times of each of %d servers" % len(self.servers),
                    len(worker.servers),
                    ".workers[%d].servers" % place,
                )


class Profile(MeasuredProfile):
    """A profile with the proposal for jobs."""

    noise: float = field(_ratio)
    """The relative difference of two measurements of one speed."""
    groups: Sequence[Sequence[int]] = field(_many(_many(_number)))
    """The positions of each group's members in `workers`, the fastest group first."""
    labels: Sequence[str] = field(_many(words))
    """The label of each group."""
    shares: Sequence[Tuple[float, float]] = field(_many(_share))
    """[begin, end] of each worker in the training data."""
    placement: Sequence[int] = field(_many(_number))
    """The position of the server of each parameter; [] without servers."""
    advice: Sequence[str] = field(each(words))

    def refuse_contradictions(self) -> None:
        """Raise Wrong unless groups, shares and placement match the workers and servers."""
        super(Profile, self).refuse_contradictions()
        members = sorted(one for group in self.groups for one in group)
        if members != list(range(len(self.workers))) or not all(self.groups):
            raise Wrong("a list of groups with each worker once", self.groups, ".groups")
        of_groups = [{self.workers[one].host for one in group} for group in self.groups]
        if sum(map(len, of_groups)) > len({worker.host for worker in self.workers}):
            raise Wrong("a list with all workers of a host in one group", self.groups, ".groups")
        if len(self.labels) != len(self.groups):
            raise Wrong("a list with a label of each group", self.labels, ".labels")
        ordered = sorted(self.shares)
        begins, ends = [begin for begin, _ in ordered], [end for _, end in ordered]
        if (
            len(ordered) != len(self.workers)
            or [*begins, 1] != [0, *ends]
            or not all(begin < end for begin, end in ordered)
        ):
            raise Wrong(
                "a division of 0 to 1 with a share of each worker, without gap and overlap",
                self.shares,
                ".shares",
            )
        if self.placement and len(self.placement) != len(self.parameters):
            raise Wrong("a list with a server of each parameter", self.placement, ".placement")
        if any(place >= len(self.servers) for place in self.placement):
            raise Wrong(
                "a list of servers below %d" % len(self.servers), self.placement, ".placement"
            )
