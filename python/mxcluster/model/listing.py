"""Define the list of a cluster's jobs, as status.yml shows and writes it."""

from typing import Mapping, Optional, Sequence

from mxcluster.model import names
from mxcluster.model.failures import Failure
from mxcluster.model.record import Record, field, record
from mxcluster.model.shapes import (
    LARGEST,
    each,
    flag,
    matching,
    number,
    optional,
    or_empty,
    real,
    table,
    unix_time,
    whole,
    words,
)
from mxcluster.model.verdict import MOST

_state = matching(r"[a-z][a-z ]{0,39}", "the state of a job or node")
_time = optional(number)


class Held(Record):
    """The ports and GPUs that a job holds on a node."""

    ports: Mapping[str, str] = field(table(matching(r"[0-9]{1,6}", "a port"), words, MOST))
    """{port: the process that holds it}."""
    gpus: Sequence[int] = field(each(whole()))
    """The numbers of the GPUs."""


class JobUse(Record, nulls=True):
    """What a running job uses now on all its nodes. None is not measured."""

    cpu: Optional[float] = field(optional(real(0, LARGEST)), default=None)
    """The cores of all processes."""
    memory: Optional[float] = field(optional(real(0, LARGEST)), default=None)
    """The bytes of all processes. The next field is for GPUs."""
    gpu_memory: Optional[float] = field(optional(real(0, LARGEST)), default=None)
    received: Optional[float] = field(optional(real(0, LARGEST)), default=None)
    """The bytes per second that the interfaces of the training receive."""
    gpus: Optional[float] = field(optional(real(0, 1)), default=None)
    """The mean use of the job's GPUs, 0 to 1."""


class JobWait(Record):
    """The wait of a job for room, or for the end of another job."""

    since: float = field(unix_time)
    """The time of the controller of the job at which the wait began, in unix seconds."""
    after: str = field(or_empty(names.job_id), default="")
    """The job whose end the job awaits, "" for a job that waits for room."""
    reasons: Sequence[str] = field(each(words, MOST))
    """A line for each port and GPU that a node lacks."""


class ListedJob(Record):
    """A job on the nodes.

    The state of a node is "running", "done", "failed", "peer" (another node's part failed),
    "stopped", "lease" (the lease ran out), "shutdown" (the node went down), "engine", "prepared",
    "broken" (damaged files), "waiting" (the node has a ticket of the job only), "missing" (the node
    has no part of the job) or "not asked" (the controller has no job list of the node).

    The job is "running" if a node of the job is "running". The job is "done" if each node of the
    job with a job list is "done". Otherwise the state of the job is the first of "failed" (also for
    "peer"), "lease", "shutdown", "stopped", "engine", "broken", "prepared" and "waiting" that a
    node has, or else "incomplete".
    """

    job: str = field(names.job_id)
    kv: Optional[str] = field(optional(words))
    state: str = field(_state)
    detached: bool = field(flag)
    started: Optional[float] = field(_time)
    """The time of the start in unix seconds."""
    ended: Optional[float] = field(_time)
    """The time of the end in unix seconds."""
    nodes: Mapping[str, str] = field(table(words, _state, MOST))
    """{host: the state of the node}."""
    holds: Mapping[str, Held] = field(table(words, record(Held), MOST))
    """{host where the job runs: its ports and GPUs}."""
    progress: Optional[str] = field(optional(words))
    """The live line of a running job."""
    first_failure: Optional[Failure] = field(optional(record(Failure)))
    saves: bool = field(flag, default=False)
    """True if the program saves checkpoints, or if the script has saved one."""
    savers: Sequence[str] = field(each(words, MOST), default=[])
    """The nodes that complete the checkpoints of a running job, [] if they are unknown."""
    use: Optional[JobUse] = field(optional(record(JobUse)), default=None)
    """None for a job that does not run, or whose meters have no figure yet."""
    waits: Optional[JobWait] = field(optional(record(JobWait)), default=None)
    """The wait of a job whose state is "waiting"."""


class InterruptedJob(Record):
    """The job that an interrupted ansible-playbook leaves on the nodes."""

    job: str = field(names.job_id)
    lease: Optional[float] = field(optional(real(0, 1e100)))
    """The lease in seconds, None without a lease."""
