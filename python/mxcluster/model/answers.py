"""Define the answers of a node to the commands of the controller, with one class for each.

The classes of `mxcluster.model.protocol` name the class of their answer. A program of the training
user gives most of an answer, and this user can run any program on the node. So an answer is
untrusted input. Root of the node gives the fields that the training user must not decide.
"""

from typing import List, Mapping, Optional, Sequence, TypeVar

from mxcluster import exit_codes
from mxcluster.model import names
from mxcluster.model.check_answer import Checked
from mxcluster.model.checkpoint import Offer
from mxcluster.model.engine import MpiEngine
from mxcluster.model.events import Latest, NodeUsage
from mxcluster.model.node_record import NodeFacts
from mxcluster.model.record import Record, field, record
from mxcluster.model.run_record import Hardware
from mxcluster.model.shapes import (
    Wrong,
    each,
    flag,
    ipv4,
    is_json,
    matching,
    one_of,
    optional,
    or_empty,
    real,
    table,
    text,
    unix_time,
    whole,
    words,
)
from mxcluster.model.status import MOST_PROCESSES, RUNNING, LatestPulse, Status
from mxcluster.model.ticket import Ticket

A = TypeVar("A", bound="Answer")
S = TypeVar("S", bound="AnswerWithStatus")

MOST_JOBS = 5000
_digits = matching(r"[0-9]{1,6}", "a number")
_lines = each(words)
_progress = table(names.process, record(Latest), MOST_PROCESSES)

LEVELS = 12  # of a plan, about twice those of a real plan


class Answer(Record):
    """An answer of a node."""

    def status_of_job(self) -> Optional[Status]:
        """Return the status of the requested job, None without a status."""
        return None

    def of_host(self: A, host: str) -> A:
        """Return the answer with `host` as the host of the status (see `Status.of_host`)."""
        return self


class AnswerWithStatus(Answer, nulls=True):
    """An answer that may have the status of the requested job."""

    status: Optional[Status] = field(optional(record(Status)), default=None)

    def status_of_job(self) -> Optional[Status]:
        """Return the status of the requested job, None without a status."""
        return self.status

    def of_host(self: S, host: str) -> S:
        """Return the answer with `host` as the host of the status (see `Status.of_host`)."""
        known = self.status
        return self.replaced(status=known and known.of_host(host, for_all=bool(known.batch)))


class Held(Record):
    """The ports and GPUs in use."""

    ports: Mapping[str, str] = field(table(_digits, words, 70000))
    """{port: the process or program that holds it}."""
    gpus: Mapping[str, str] = field(table(_digits, words))
    """{GPU number: the process or job that holds it}."""


class LookFacts(Record, nulls=True):
    """The facts of a node that decide about a job."""

    mpi: Optional[MpiEngine] = field(optional(record(MpiEngine)), default=None)
    """None for a job without MPI."""


class Looked(Answer):
    """The parts of a job that the node cannot provide."""

    problems: Sequence[str] = field(_lines)
    held: Held = field(record(Held))
    fits: bool = field(flag)
    """True if the ports and GPUs of the job are free."""
    facts: Optional[LookFacts] = field(optional(record(LookFacts)), default=None)
    image: Optional[str] = field(
        optional(matching(r"[A-Za-z0-9:.-]{1,100}", "the id of a container image")), default=None
    )
    """The id of the container image, None without containers."""
    machine: Optional[Hardware] = field(optional(record(Hardware)), default=None)
    """The hardware of the node for the record of the run, None from an earlier version."""
    old_jobs: Optional[Sequence[str]] = field(optional(each(names.job_id, 100000)), default=None)
    """The ended jobs besides the newest that the node keeps, the oldest first. None from an earlier
    version, and for a look without a folder of jobs."""
    ports_open: Optional[str] = field(optional(words), default=None)
    """The reason why other hosts reach the ports of jobs. Root gives it."""


class Queued(Answer):
    """The facts of a node for a job that waits."""

    held: Held = field(record(Held))
    """The ports and GPUs in use by programs, jobs, and waiting jobs ahead of this one."""
    after: str = field(or_empty(one_of("runs", "ended", "unknown")), default="")
    """The state of the job that the ticket awaits, "" without such a job."""


class Recorded(Answer):
    """The facts for the node record."""

    record: NodeFacts = field(record(NodeFacts))


class CheckedNode(Answer):
    """The facts for verify.yml."""

    check: Checked = field(record(Checked))


class JobStarted(Answer):
    """The id of a prepared job, or of a job whose agents an engine has started."""

    job: str = field(names.job_id)


class AgentStarted(AnswerWithStatus):
    """The first status of a job."""

    job: str = field(names.job_id)


class JobState(AnswerWithStatus):
    """The status of a job, and the latest events of its processes."""

    progress: Mapping[str, Latest] = field(_progress, default={})
    """{process: its latest events}."""


class Collected(Answer):
    """The files of a job in a tar file."""

    files: int = field(whole())
    """The number of packed files."""
    bytes: int = field(whole())
    """The size of the tar file."""
    problem: Optional[str] = field(optional(words))
    """The reason why no file was packed, such as a full disk."""
    left: Optional[Sequence[str]] = field(optional(_lines), default=None)
    """The leftovers of the job, None if nothing has looked for leftovers."""
    behind: Sequence[str] = field(_lines, default=[])
    """Lines about files and logs that stay on the node."""
    outside: Sequence[str] = field(_lines, default=[])
    """The processes outside of the job's unit. Root gives them."""
    untrue: Optional[str] = field(optional(words), default=None)
    """The reason why the reported end was false. Root gives it."""
    output: Optional[str] = field(optional(names.path), default=None)
    """The path of the tar file. Root gives it."""
    spooled: bool = field(flag, default=False)
    """True if the login user can read the file `output`. Root sets this field."""


class Progress(JobState):
    """The status of a job, with the latest events and pulses of its processes."""

    status: Status = field(record(Status))
    pulses: Mapping[str, LatestPulse] = field(
        table(names.process, record(LatestPulse), MOST_PROCESSES), default={}
    )
    checkpoints: Optional[Offer] = field(optional(record(Offer)), default=None)
    """The checkpoints that the node offers, None without a manifest."""
    collected: Optional[Collected] = field(optional(record(Collected)), default=None)
    """The files of the ended part, None unless `wait` was to collect them."""

    @property
    def newest(self) -> str:
        """The name of the newest checkpoint, "" without one. See `Offer.newest`."""
        return self.checkpoints.newest if self.checkpoints else ""


class Stopped(AnswerWithStatus):
    """The end of a job, with the last status or None if the job never ran."""

    ran: bool = field(flag)
    """True if the command has ended a job."""
    left: Sequence[str] = field(_lines, default=[])
    """The leftover processes, ports and units."""


class Logs(Answer):
    """The last lines of each log of a job."""

    logs: Mapping[str, Sequence[str]] = field(
        table(names.process, each(words, 10**6), MOST_PROCESSES)
    )
    """{name of a log without .log: its last lines}."""
    offsets: Mapping[str, int] = field(table(names.process, whole(), MOST_PROCESSES), default={})
    """{name of a log: the bytes up to the last of these lines}."""
    ended: bool = field(flag, default=True)
    """True if the logs do not grow any more, or if the request did not ask for it."""


class Stacks(Answer):
    """The stack traces of the running processes of a job."""

    stacks: Mapping[str, Sequence[str]] = field(
        table(names.process, each(words, 10**5), MOST_PROCESSES)
    )
    """{process: the lines of the stack traces of its threads}."""
    silent: Mapping[str, str] = field(table(names.process, words, MOST_PROCESSES))
    """{process: the reason why it gives no stack trace}."""


def _plan(value: object) -> object:
    if not is_json(value, LEVELS):
        raise Wrong("JSON of at most %d levels" % LEVELS, value)
    return value


class WholePlan(Answer):
    """The plan of a whole job. `listing.adopt` checks its fields."""

    plan: object = field(_plan)


class PieceOfFile(Answer):
    """A piece of a checkpoint file."""

    data: str = field(text)
    """The bytes of the piece in base64."""


class JobEntry(Record, nulls=True):
    """The summary of a job's part on a node."""

    job: str = field(names.job_id)
    state: str = field(one_of("running", "ended", "prepared", "broken"))
    """A prepared job has no status yet; a broken job has damaged files."""
    why: Optional[str] = field(optional(words), default=None)
    """The reason why the job is broken."""
    kv: Optional[str] = field(optional(words), default=None)
    reason: Optional[str] = field(optional(one_of(*exit_codes.REASONS)), default=None)
    started: Optional[float] = field(optional(unix_time), default=None)
    ended: Optional[float] = field(optional(unix_time), default=None)
    lease: Optional[float] = field(optional(real(0, 1e11)), default=None)
    """The lease in seconds."""
    nodes: Sequence[str] = field(each(words, 100000), default=[])
    ports: Mapping[str, str] = field(table(_digits, words, 70000), default={})
    """{port: name of the process}."""
    saves: bool = field(flag, default=False)
    """True if the program saves checkpoints, or if the script has saved one on this node."""
    completes: bool = field(flag, default=False)
    """True if this node completes the checkpoints of a running job."""
    address: Optional[str] = field(optional(ipv4), default=None)
    gpus: Sequence[int] = field(each(whole(0, names.MOST_GPU), 1024), default=[])
    status: Optional[Status] = field(optional(record(Status)), default=None)
    progress: Mapping[str, Latest] = field(_progress, default={})
    """{process: its latest events}, for a running job only."""
    usage: Optional[NodeUsage] = field(optional(record(NodeUsage)), default=None)
    """The latest figures of the node, for a running job only."""

    @property
    def is_running(self) -> bool:
        """True if the job runs."""
        return self.state == RUNNING


def _entries(value: object) -> List[JobEntry]:
    """Return the checked summaries. A summary with an invalid field becomes that of a broken job.

    A summary without the id of a job is left out.
    """
    found = []
    for item in each(lambda item: item, MOST_JOBS)(value):
        try:
            found.append(JobEntry.decode(item))
        except Wrong as wrong:
            try:
                job = names.job_id(item.get("job") if isinstance(item, dict) else None)
            except Wrong:
                continue
            found.append(JobEntry(job=job, state="broken", why=str(wrong)))
    return found


class DiskUse(Record):
    """The disk of the folder that holds the folders of all jobs of a node."""

    jobs: int = field(whole())
    """The number of job folders."""
    bytes: int = field(whole())
    """The disk space of all job folders."""
    free: int = field(whole())
    """The free bytes of the disk for the training user."""


class JobList(Answer):
    """The jobs of a node."""

    jobs: Sequence[JobEntry] = field(_entries)
    """The jobs, the newest first."""
    cleared: Optional[Sequence[str]] = field(optional(_lines), default=None)
    """Ids of the ended jobs whose files for a running job were removed."""
    disk: Optional[DiskUse] = field(optional(record(DiskUse)), default=None)
    """None if the request did not ask for it."""
    waiting: Sequence[Ticket] = field(each(record(Ticket), MOST_JOBS), default=[])
    """The tickets of the jobs that wait on the node, the first in the queue first."""
    units: Optional[Sequence[str]] = field(optional(each(words, 10000)), default=None)
    """The jobs whose units run. Root gives them."""


class Removed(Answer):
    """The removal of job folders."""

    removed: Sequence[str] = field(each(names.job_id, MOST_JOBS))
    """The ids of the jobs whose folders are gone."""
    problems: Sequence[str] = field(_lines)
    """A line for each folder that stays."""


class Lost(Record):
    """The silence of a node that no longer answers."""

    since: float = field(unix_time)
    """The time of the last answer."""
    why: str = field(words)


class BlockingWorker(Record):
    """A worker that makes other workers wait for its push for ever."""

    name: str = field(names.process)
    time: float = field(unix_time)
    """The time of the stall."""


class NodeResult(Record):
    """The end of a job on one node, as the controller knows it."""

    status: Optional[Status] = field(optional(record(Status)), default=None)
    problem: Optional[str] = field(optional(words), default=None)
    """The reason why the controller could not collect the files."""
    lost: Optional[Lost] = field(optional(record(Lost)), default=None)
    left: Optional[Sequence[str]] = field(optional(_lines), default=None)
    """The leftovers of the job, None for a node that was not searched."""
    untrue: Optional[str] = field(optional(words), default=None)
    """The reason why the node's report of the end was false."""
    behind: Sequence[str] = field(_lines, default=[])
    """Lines about files and logs that stay on the node."""
    outside: Sequence[str] = field(_lines, default=[])
    """The processes outside of the job's unit."""
    uneven: Optional[BlockingWorker] = field(optional(record(BlockingWorker)), default=None)
