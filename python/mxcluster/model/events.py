"""Define the events of a job, with one class for each kind of event in events.jsonl.

The processes of a job write these events, and so may any program of the training user. A script may
write kinds and fields of its own: the file keeps them, and the classes leave them out.
"""

import time
from typing import List, Mapping, Optional, Sequence, Type, TypeVar

from mxcluster.model.profile import ServerTimes, Speed, per_s
from mxcluster.model.record import Record, field, record
from mxcluster.model.shapes import (
    Shape,
    Wrong,
    each,
    flag,
    matching,
    optional,
    real,
    table,
    text,
    unix_time,
    whole,
    words,
)

E = TypeVar("E", bound="Event")

_MOST = 1e100  # sums of such figures stay finite
_figure = real(-_MOST, _MOST)
_number = optional(_figure)
_count = optional(whole())
_bytes = optional(whole(0, 2**60))
_part = optional(real(0, 1))
_rate = optional(real(0, 1e15))
_figures = each(_figure, 10000)
_counts = table(matching(r"[0-9]{1,6}", "a number"), whole(), 100000)

MOST_METRICS = 9  # curves of metrics with a name of a script's own
LINES = "lines"  # the source of an event that the reader of lines has made


def _source(value: object) -> Optional[str]:
    """Return LINES for LINES, and None for another value: a script may have a field `source`."""
    return LINES if value == LINES else None


def now() -> float:
    """Return the time of a new event in unix seconds."""
    return round(time.time(), 3)


class Event(Record, kind_key="event"):
    """An event of a process. The log of a process adds its role, index and host."""

    time: float = field(unix_time, factory=now)
    """The time of the event in unix seconds."""
    role: Optional[str] = field(
        optional(matching(r"[A-Za-z0-9_.-]{1,100}", "the role of a process")), default=None
    )
    index: Optional[int] = field(_count, default=None)
    host: Optional[str] = field(
        optional(matching(r"[^\x00-\x1f\x7f-\x9f]{1,253}", "the name of a host")), default=None
    )
    source: Optional[str] = field(_source, default=None)
    """LINES for an event that `agent.line_reader` has made from the lines of the process."""


class OwnEvent(Event, other=True):
    """An event of a script, with a kind that mxcluster does not know."""

    kind: str = field(text, key="event")


class PlannedEvent(Event):
    """An event that only a process of the plan may write."""


class Start(Event, kind="start"):
    """The begin of a worker's training."""

    epochs: Optional[int] = field(_count, default=None)
    """The number of epochs of the whole training."""
    batches: Optional[int] = field(_count, default=None)
    """The number of batches of an epoch."""
    batch_size: Optional[int] = field(_count, default=None)
    small_batch: Optional[int] = field(_count, default=None)
    """The number of samples of a small batch, with balance=deadline only."""
    samples_in_share: Optional[int] = field(_count, default=None)
    repeated: Optional[int] = field(_count, default=None)
    """The number of samples that an epoch repeats to fill batches."""
    slowdown: Optional[float] = field(_number, default=None)
    step_ms: Optional[float] = field(_number, default=None)


class Batch(Event, kind="batch"):
    """The figures of the latest batch of a worker."""

    epoch: Optional[int] = field(_count, default=None)
    """The number of the epoch, from 0."""
    batch: Optional[int] = field(_count, default=None)
    """The number of the batch in the epoch, from 0."""
    step: Optional[int] = field(_count, default=None)
    """The number of the batch in the training, from 1."""
    samples: Optional[int] = field(_count, default=None)
    """The number of samples that the worker has trained so far."""
    batch_size: Optional[int] = field(_count, default=None)
    loss: Optional[float] = field(_number, default=None)
    """The mean loss of the batch."""
    train_accuracy: Optional[float] = field(_number, default=None)
    """The accuracy on the batch, 0 to 1."""
    samples_per_s: Optional[float] = field(_number, default=None)
    done: Optional[float] = field(_number, default=None)
    """The trained part of the training, 0 to 1."""
    data_wait: Optional[float] = field(_part, default=None)
    """The part of the time since the event before in which the worker waited for samples."""
    deadline_s: Optional[float] = field(_number, default=None)
    """The deadline of the next step in seconds, with balance=deadline only."""


class Epoch(Event, kind="epoch"):
    """The end of an epoch of a worker."""

    epoch: Optional[int] = field(_count, default=None)
    """The number of the epoch, from 0."""
    accuracy: Optional[float] = field(_number, default=None)
    """The accuracy on held-out samples, 0 to 1."""
    samples: Optional[int] = field(_count, default=None)
    """The number of samples that the worker has trained so far."""
    seconds: Optional[float] = field(_number, default=None)
    """The duration of the epoch."""
    batch_size: Optional[int] = field(_count, default=None)


class Evaluation(Event, kind="evaluation"):
    """The accuracy of the servers' weights during the training. `time` is that of their pull."""

    number: Optional[int] = field(_count, default=None)
    """The number among the evaluations of the whole job, from 1, in the order of the training."""
    samples: Optional[int] = field(_count, default=None)
    """The number of samples that the worker had trained."""
    accuracy: Optional[float] = field(_number, default=None)
    """The accuracy on held-out samples, 0 to 1."""


class End(Event, kind="end"):
    """The end of a worker's training."""

    accuracy: Optional[float] = field(_number, default=None)
    """The accuracy on held-out samples, 0 to 1."""
    samples: Optional[int] = field(_count, default=None)
    seconds: Optional[float] = field(_number, default=None)
    """The wall time of the training."""
    samples_per_s: Optional[float] = field(_number, default=None)
    steps: Optional[int] = field(_count, default=None)
    """The number of trained steps, with emulated slowness only."""
    late_steps: Optional[int] = field(_count, default=None)
    """The number of steps that took longer than on the emulated machine."""


class Done(Event, kind="done"):
    """The end of a worker's program or script, after its last work with the other workers."""

    asked: Optional[bool] = field(optional(flag), default=None)
    """True if the worker asked for its share of the data, None for a program of mxcluster."""


def _shown(value: object) -> str:
    """Return the text of a note as one line. A script may give a number as its text."""
    if isinstance(value, (int, float)):
        return str(_figure(value))
    return words(value.replace("\n", " ") if isinstance(value, str) else value)


class Note(Event, kind="note"):
    """A remark for the report."""

    text: str = field(_shown, default="")


class Machine(Event, kind="machine"):
    """The software and hardware of a worker."""

    mxnet: str = field(words)
    numpy: str = field(words)
    python: str = field(words)
    cpu: str = field(words)
    """The name of the CPU, "" if unknown."""
    cores: int = field(whole(0, 2**20))
    gpus: Sequence[str] = field(each(words))
    """The names of the GPUs."""


class Measured(Event, kind="measured"):
    """The measured batches of a worker."""

    batches: int = field(whole(1))
    batch_size: int = field(whole(1))
    warm_up: int = field(whole())
    """The number of batches before the measured batches."""
    seconds: float = field(_figure)
    """The duration of all measured batches."""
    median_s: float = field(_figure)
    """The median duration of a batch. The next two fields are percentiles."""
    p10_s: float = field(_figure)
    p90_s: float = field(_figure)
    samples_per_s: float = field(_figure)


class Waits(Event, kind="waits"):
    """The time that a worker waited for weights."""

    seconds: float = field(_figure)
    """The duration of the training."""
    waited_s: float = field(_figure)


class StepTimes(Event, kind="step_times"):
    """The seconds that a worker has spent on its steps so far, by the parts of a step.

    A worker writes this event with measure_waits=true, and always with balance=deadline. The sum of
    the parts is the time of all steps. No part is in another one.
    """

    steps: int = field(whole())
    samples: int = field(whole())
    data: float = field(_figure)
    """The wait for samples, and the report of the step before."""
    compute: float = field(_figure)
    """The forward and backward pass, with the sleep of an emulated slow machine."""
    remainder: float = field(_figure, default=0.0)
    """The wait for the end of the time of a step, after the last small batch."""
    exchange: float = field(_figure, default=0.0)
    """The exchange of counts and speeds among workers."""
    push_pull: float = field(_figure)
    """Pushes and pulls, with the wait for servers and for other workers."""
    quota: float = field(_figure, default=0.0)
    """The wait for CPU time under the quota of a control group, during the other parts."""


def _name(value: object) -> Optional[str]:
    """Return the name of a metric, at most 100 characters."""
    return None if value is None else words(value)[:100]


class Metric(Event, kind="metric"):
    """A figure with a name of the script's own, such as a perplexity."""

    name: Optional[str] = field(_name, default=None)
    value: Optional[float] = field(_number, default=None)
    epoch: Optional[int] = field(_count, default=None)
    """The number of the epoch, from 0."""


class DroppedMetric(Event, kind="dropped_metric"):
    """A metric of the knob `metrics` that the reader of lines no longer looks for."""

    name: str = field(words)
    why: str = field(words, default="")


class Pushes(Event, kind="pushes"):
    """The pushes of a worker, by the counter of its kv-store."""

    pushes: int = field(whole())
    """The number of pushes so far."""
    per_s: float = field(_figure)
    """The pushes per second since the event before."""


class Usage(PlannedEvent, kind="usage"):
    """What a process and its children use, by the meter of its node. None is "not measured"."""

    cpu: Optional[float] = field(optional(real(0, 1e6)), default=None)
    """The used cores since the event before."""
    busy: Optional[float] = field(_part, default=None)
    """The part of the time in which the busiest thread ran, or waited for a core."""
    memory: Optional[int] = field(_bytes, default=None)
    """The bytes in memory."""
    gpu_memory: Optional[int] = field(_bytes, default=None)
    """The bytes on all GPUs of the process."""


class NodeUsage(Event, kind="node_usage"):
    """What a node uses for a job, by the meter of the node. None is "not measured"."""

    own: Optional[float] = field(optional(real(0, 1e6)), default=None)
    """The cores that the agent, the meter and the reader of lines use."""
    received: Optional[float] = field(_rate, default=None)
    """The bytes per second at the interface of the training. The next field is the same."""
    sent: Optional[float] = field(_rate, default=None)
    link: Optional[float] = field(_rate, default=None)
    """The speed of this interface in bytes per second, in each direction."""
    gpus: Mapping[str, float] = field(
        table(matching(r"[0-9]{1,4}", "the number of a GPU"), real(0, 1), 1024), default={}
    )
    """{number of a GPU of the job: the part of the last moments in which it computed}."""


class StoreWaits(Event, kind="kv"):
    """The time that a worker of dist_ssync waited for other workers."""

    seconds: Optional[float] = field(_number, default=None)
    """The time since the store began."""
    steps: Optional[int] = field(_count, default=None)
    waited_s: Optional[float] = field(_number, default=None)


class Updates(PlannedEvent, kind="gsync"):
    """The updates of a group on one server of dist_gsync since the start of the server."""

    group: int = field(whole())
    """The number of the group."""
    updates: Optional[int] = field(_count, default=None)
    """The number of all updates: the sum of the numbers in `y`."""
    y: Mapping[str, int] = field(_counts)
    """{Y: number of updates}. Y counts the updates of a parameter since the group's last one."""
    dropped: Mapping[str, int] = field(_counts, default={})
    """{Y: dropped updates}."""


class Balance(PlannedEvent, kind="balance"):
    """New batch sizes of the workers that wait for each other. One of these workers writes it."""

    epoch: int = field(whole())
    """The first epoch with these sizes, from 0."""
    workers: Optional[Sequence[int]] = field(optional(each(whole(), 10000)), default=None)
    sizes: Sequence[int] = field(each(whole(1), 10000))
    speeds: Sequence[float] = field(_figures)
    """The speed of each of these workers in samples per second."""
    small: Optional[Sequence[int]] = field(optional(each(whole(1), 10000)), default=None)
    """The size of the small batches of each of these workers, with balance=deadline only. `sizes`
    are then the planned samples of a step."""
    deadline_s: Optional[float] = field(_number, default=None)
    """The deadline of the next step in seconds, with balance=deadline only."""


class Profile(PlannedEvent, kind="profile"):
    """The measurements of a worker."""

    gpu_speeds: Optional[Sequence[float]] = field(optional(each(per_s, 10000)), default=None)
    """The speed of each GPU in samples per second."""
    alone: Speed = field(record(Speed))
    servers: Sequence[ServerTimes] = field(each(record(ServerTimes), 10000))
    """The times of each server, by its rank."""
    together: Speed = field(record(Speed))
    """The speed while all workers train."""
    exchange_s: float = field(real(0, 1e9))
    """The time of a push and pull of the whole model."""
    parameters: Optional[Sequence[int]] = field(optional(each(whole(1), 100000)), default=None)
    """The size of each parameter. Only worker 0 measures it."""
    mxnet: Optional[str] = field(optional(words), default=None)
    """The version of MXNet. Only worker 0 reports it."""


class ServerSpeed(PlannedEvent, kind="server_speed"):
    """The measured speed of a server."""

    updates_per_s: float = field(per_s)
    """The number of updates of the whole model in a second."""


class Iteration(Event, kind="ssync"):
    """An iteration of a worker of dist_ssync. The stores trace with MXCLUSTER_TRACE=1 only."""

    iteration: int = field(whole())
    slowest: int = field(whole())
    """The iteration of the slowest worker."""


class Merge(Event, kind="merge"):
    """A merge of a gradient on a server of dist_gsync, with MXCLUSTER_TRACE=1 only."""

    group: int = field(whole())
    parameter: int = field(whole())
    y: int = field(whole())
    dropped: bool = field(flag)
    scale: float = field(_figure)
    """The factor of the gradient."""
    size: int = field(whole())
    """The number of elements of the gradient."""
    sum: Optional[float] = field(_number)
    """The sum of the gradient's elements."""


class Restored(Event, kind="restored"):
    """The restored states of a parameter on a server, with MXCLUSTER_TRACE=1 only."""

    parameter: int = field(whole())
    rank: int = field(whole())
    """The rank of the server."""
    states: Sequence[str] = field(each(matching(r"[0-9a-f]{64}", "a sha256")))


def _valid(cls: Type[E]) -> Shape[Optional[E]]:
    """Return a shape that returns None for an event that is not valid: a script may write it."""

    def shape(value: object) -> Optional[E]:
        try:
            return cls.decode(value)
        except Wrong:
            return None

    return shape


def _metrics(value: object) -> List[Metric]:
    """Return the valid metrics of a list of at most MOST_METRICS metrics."""
    return [one for one in each(_valid(Metric), MOST_METRICS)(value) if one]


class Latest(Record):
    """The latest event of a process of each kind that the live line shows."""

    start: Optional[Start] = field(_valid(Start), default=None)
    batch: Optional[Batch] = field(_valid(Batch), default=None)
    epoch: Optional[Epoch] = field(_valid(Epoch), default=None)
    end: Optional[End] = field(_valid(End), default=None)
    pushes: Optional[Pushes] = field(_valid(Pushes), default=None)
    metrics: Optional[Sequence[Metric]] = field(_metrics, default=None)
    """The latest event of each metric with a name, for TensorBoard."""
    usage: Optional[Usage] = field(_valid(Usage), default=None)

    @property
    def trains(self) -> bool:
        """True if an event shows progress of the training."""
        return any((self.batch, self.epoch, self.pushes, self.metrics))
