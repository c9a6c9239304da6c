"""Define the status of a job on one node, the content of status.json.

The agent of the node writes the status. For a job of a batch system, the head and the submit host
write it for all nodes. Programs of the training user can change the file.
"""

from typing import Dict, Mapping, Optional, Sequence

from mxcluster import exit_codes
from mxcluster.model import names
from mxcluster.model.failures import Failure
from mxcluster.model.record import Record, field, record
from mxcluster.model.shapes import (
    Wrong,
    each,
    matching,
    one_of,
    optional,
    real,
    table,
    text,
    unix_time,
    whole,
    words,
)

RUNNING, ENDED = "running", "ended"  # the states of a job and of a process
MOST_PROCESSES = 100000  # of a job
MOST_KEYS = 100  # the maximum number of keys in a pulse
_seconds = real(0, 1e11)
_pid = whole(1, 2**31)
_ticks = whole(0, 2**63)


class Process(Record):
    """A process of the kernel: its pid and its start time, see `node.processes.Identity`."""

    pid: int = field(_pid)
    start_time: int = field(_ticks)
    """The start in clock ticks since boot."""


class Witness(Process):
    """A process, for other processes that may see other pids."""

    numbers: str = field(text)
    """The scope of the pids: the boot of the kernel and the namespace."""


class Part(Record, nulls=True):
    """A process of the plan, or the rendezvous."""

    name: str = field(names.process)
    role: str = field(words)
    index: Optional[int] = field(optional(whole()), default=None)
    pid: Optional[int] = field(optional(_pid), default=None)
    """The pid, None before the start."""
    start_time: Optional[int] = field(optional(_ticks), default=None)
    state: str = field(one_of(RUNNING, ENDED), default=RUNNING)
    exit_code: Optional[int] = field(optional(whole(-100, 255)), default=None)
    ended_at: Optional[float] = field(optional(unix_time), default=None)
    ended_by: Optional[str] = field(optional(one_of("self", "agent")), default=None)

    def at_end(self, when: float) -> "Part":
        """Return the part as ended at `when` (unix seconds). An ended part stays unchanged."""
        return self if self.state == ENDED else self.replaced(state=ENDED, ended_at=when)


class Keys(Record):
    """The pushes of a worker's keys."""

    most: int = field(whole())
    """The number of pushes of the most pushed key."""
    fewer: Mapping[str, int] = field(table(words, whole(), MOST_KEYS))
    """{key with fewer pushes: number of pushes}."""


class Pulse(Record):
    """The progress of a process, the content of its file *.pulse."""

    phase: str = field(matching(r"[a-z]{1,30}", "a phase"))
    """The present phase, a constant of mxcluster.phases."""
    pushes: int = field(whole())
    """The number of calls of push."""
    time: float = field(unix_time)
    """The time of the last progress."""
    keys: Optional[Keys] = field(optional(record(Keys)), default=None)
    """The pushes by key, None if too many keys have fewer pushes."""


class LatestPulse(Pulse):
    """A pulse with its age."""

    idle: float = field(_seconds)
    """The seconds since the last progress, by the clock of the node."""


class Expiry(Record):
    """The measurements of a lease that has run out, in seconds."""

    age: float = field(_seconds)
    """The time since the last renewal."""
    limit: float = field(_seconds)
    """The longest allowed age."""
    gap: Optional[float] = field(optional(_seconds), default=None)
    """The longest time between two renewals."""


class BatchState(Record):
    """The state of a job of a batch system."""

    launcher: str = field(matching(r"[a-z]{1,20}", "the name of a batch system"))
    id: str = field(matching(r"[A-Za-z0-9._-]{1,100}", "the id of a job of a batch system"))
    phase: str = field(one_of("waits", "starts", "runs", "ends"), default="waits")
    """The place of the job: in the queue, on its way to the nodes, with processes, or at its
    end."""
    why: str = field(words, default="")
    """The reason why the job waits."""
    signal: Optional[str] = field(
        optional(matching(r"SIG[A-Z0-9+]{1,20}", "the name of a signal")), default=None
    )
    """The signal that the head got."""


class Status(Record, nulls=True):
    """The state of a job on one node, or on all nodes of a batch job."""

    job: str = field(names.job_id)
    host: str = field(words, default="")
    kv: Optional[str] = field(optional(words), default=None)
    agent: Process = field(record(Process))
    state: str = field(one_of(RUNNING, ENDED), default=RUNNING)
    reason: Optional[str] = field(optional(one_of(*exit_codes.REASONS)), default=None)
    """The reason of the end."""
    started: float = field(unix_time)
    ended: Optional[float] = field(optional(unix_time), default=None)
    processes: Sequence[Part] = field(each(record(Part), MOST_PROCESSES))
    rendezvous: Optional[Part] = field(optional(record(Part)), default=None, former=("meeting",))
    """The process of the rendezvous, None without a rendezvous."""
    first_failure: Optional[Failure] = field(optional(record(Failure)), default=None)
    lease: Optional[Expiry] = field(optional(record(Expiry)), default=None)
    unanswered: Sequence[str] = field(each(words), default=[])
    """The processes of other nodes that acknowledge no data of this node."""
    left: Sequence[Process] = field(each(record(Process), MOST_PROCESSES), default=[])
    """The processes that did not end."""
    pulses: Mapping[str, Pulse] = field(
        table(names.process, record(Pulse), MOST_PROCESSES), default={}
    )
    """{name of a process: its last pulse}, at the end of a job only."""
    batch: Optional[BatchState] = field(optional(record(BatchState)), default=None)
    """The state in the batch system, only for a job of a batch system."""

    def parts(self) -> Dict[str, Part]:
        """Return {name: part} of the processes of the plan, and of the rendezvous."""
        both = list(self.processes) + ([self.rendezvous] if self.rendezvous else [])
        return {part.name: part for part in both}

    @property
    def has_ended(self) -> bool:
        """True if the job has ended."""
        return self.state == ENDED

    @property
    def has_failed(self) -> bool:
        """True if the job has ended for another reason than the end of its work."""
        return self.has_ended and self.reason != "done"

    @classmethod
    def decode(cls, value: object) -> "Status":
        """Return the status of JSON `value`. Raises Wrong for an ended job without a reason."""
        found = super(Status, cls).decode(value)
        if found.has_ended and not found.reason:
            raise Wrong("a reason for the end", None, ".reason")
        return found

    def ended_by(self, reason: str, when: float, **values: object) -> "Status":
        """Return the status of the job's end at `when`, with all processes ended.

        Args: `reason` of `exit_codes.REASONS`; `values` of further fields.
        """
        last = {
            "state": ENDED,
            "reason": reason,
            "ended": when,
            "processes": [part.at_end(when) for part in self.processes],
            "rendezvous": self.rendezvous and self.rendezvous.at_end(when),
        }
        return self.replaced(**dict(last, **values))

    def of_host(self, host: str, for_all: bool = False) -> "Status":
        """Return the status with `host` as its host and as the host of its first failure.

        `for_all`: True to keep the host of the failure. The live line of a batch job needs this
        host, because the submit host speaks for all nodes. A verdict takes no such status.
        """
        cause = self.first_failure
        if cause and not (for_all and cause.host):
            cause = cause.replaced(host=host)
        return self.replaced(host=host, first_failure=cause)
