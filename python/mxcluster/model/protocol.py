"""Define the commands of the controller to a node, with one class for each command.

The controller writes the JSON of one request to stdin of `mxcluster.entry` on the node. The class
of a command is its row in the table of commands: the name, the arguments, the class of the answer,
and how the command runs. `mxcluster.entry.commands` has the function of each command.
A field without a default is required. The task of a command gives the fields of the class to the
module mxcluster_node, except the fields of FROM_PLUGIN.
"""

import json
import os
from typing import ClassVar, Dict, List, Optional, Type, TypeVar, cast

from mxcluster.errors import BadInput
from mxcluster.model import answers, names
from mxcluster.model.checkpoint import file_name as checkpoint_file
from mxcluster.model.node_requests import (
    CheckRequest,
    CollectRequest,
    LookRequest,
    RecordRequest,
)
from mxcluster.model.plan import NodePlan
from mxcluster.model.record import Record, field, record
from mxcluster.model.shapes import (
    Wrong,
    each,
    flag,
    matching,
    optional,
    or_empty,
    passing,
    real,
    table,
    text,
    whole,
    words,
)
from mxcluster.model.status import MOST_PROCESSES
from mxcluster.model.ticket import Ticket

R = TypeVar("R", bound="Request")

LIMIT = 300.0  # seconds until a command must have answered
LIMIT_OF_COLLECT = 3600.0
LOG_LINES = 20  # lines of each log, without another number
PIECE = 1 << 20  # bytes of a piece of a checkpoint, without another number
LONGEST_SCRIPT = 1 << 27  # characters of a script's folder in base64
# The action plugin of mxcluster_node, or the head of a batch job, sets these fields. A task does
# not.
FROM_PLUGIN = ("check", "collect", "lease", "offsets", "reader", "shared", "told", "token", "took")
PATHS = ("job_dir", "jobs_dir", "output", "spool")  # fields with paths on the node
CURE = (
    "Read the job's logs with logs.yml, end the job with stop.yml, and run provision.yml if the "
    "error persists"
)
OTHER_VERSION = (
    "the node may have another version of mxcluster; run provision.yml (running jobs go on)"
)

_checkpoint = matching(r"[A-Za-z0-9._-]{1,255}", "the name of a checkpoint")


class Request(Record, kind_key="command"):
    """A command of the controller to a node, with the arguments of all commands.

    Attributes of each class:
        ANSWER: the class of the answer.
        READS: True if the command changes nothing on the node, so that check mode runs the command.
        CHANGES: True if a task with the command always reports a change.
        SWEEPS: True if the node first removes leftovers of killed modules and controllers.
    """

    ANSWER: ClassVar[Type[answers.Answer]] = answers.Answer
    READS: ClassVar[bool] = False
    CHANGES: ClassVar[bool] = False
    SWEEPS: ClassVar[bool] = False

    user: str = field(or_empty(names.user_name), default="")
    """The user that runs the command if the module runs as root: the training user of the node.
    Empty for the current user."""
    check: bool = field(flag, default=False)
    """True if Ansible runs in check mode."""

    @property
    def job_id(self) -> str:
        """The id of the command's job, "" without a job."""
        return ""

    def limit(self) -> float:
        """Return the seconds until the training user's process must have answered."""
        return LIMIT

    def secrets(self) -> List[str]:
        """Return the secret values of the request, which no output may contain."""
        return []

    def decoded(self, source: str, value: object) -> answers.Answer:
        """Return the answer to this command from the JSON `value`.

        Raises BadInput if the answer is invalid or belongs to another job. Args: `source` of the
        answer for the message.
        """
        try:
            found = self.ANSWER.decode(value)
            status = found.status_of_job()
            if status and self.job_id and status.job != self.job_id:
                wrong = Wrong("the requested job %s" % self.job_id, status.job)
                raise wrong.inside(".status.job")
        except Wrong as wrong:
            raise BadInput(
                "the answer of %s to the command %s is invalid: %s. %s"
                % (source, self.KIND, wrong, CURE)
            ) from None
        return found

    def checked(self, host: str, value: object) -> answers.Answer:
        """Return the answer of `host` as `decoded` does.

        The returned status and its first failure have `host` as their host.
        """
        return self.decoded(host, value).of_host(host)

    def turned_into(self, command: Type[R], **values: object) -> R:
        """Return a request for `command` with the values of the fields that both commands have.

        Args: `values` of further fields.
        """
        common = {name: vars(self)[name] for name in command.FIELDS if name in vars(self)}
        return command(**dict(common, **values))

    def on_node(self: R) -> R:
        """Return the request with absolute paths. ~/ is the home of this process's user."""
        paths = {name: value for name, value in vars(self).items() if name in PATHS and value}
        return self.replaced(
            **{name: os.path.abspath(os.path.expanduser(path)) for name, path in paths.items()}
        )

    def to_bytes(self) -> bytes:
        """Return the request as JSON for `read`.

        The fields of all other commands are null in the JSON. The program of the last version reads
        some of them for each command.
        """
        unused = {item.key: None for kind in COMMANDS.values() for item in kind.FIELDS.values()}
        return json.dumps(dict(unused, **self.encode()), sort_keys=True).encode()


def read(data: bytes) -> Request:
    """Return the request of `to_bytes`. Raises BadInput if `data` is no request."""
    try:
        return Request.decode(json.loads(data.decode("utf-8")))
    except (ValueError, RecursionError) as error:  # Wrong is a ValueError
        raise BadInput(
            "the controller's request to this node is invalid (%s): %s" % (error, OTHER_VERSION)
        ) from None


class SharedFolder(Record):
    """The job folder of a batch job, which all nodes of the job share."""

    path: str = field(names.node_path)
    nonce: str = field(matching(r"[0-9a-f]{32}", "32 hexadecimal digits"))
    """The content of a file that the head has written into the folder."""
    has_secrets: bool = field(flag)
    """True if the folder holds secret variables of the job."""


class Look(Request, kind="look"):
    """Find the parts of a job that the node cannot provide."""

    ANSWER = answers.Looked
    READS = True
    arguments: LookRequest = field(record(LookRequest), key="request", default=LookRequest())
    """The needs of the job on this node."""


class RecordNode(Request, kind="record"):
    """Read the facts for the node record: addresses, GPUs, and the versions of MXNet and numpy."""

    ANSWER = answers.Recorded
    READS = True
    arguments: RecordRequest = field(record(RecordRequest), key="request", default=RecordRequest())
    """The present node record."""
    shared: Optional[SharedFolder] = field(optional(record(SharedFolder)), default=None)
    """The folder of a batch job. The node must share this folder, and reads the GPUs that the batch
    system gives to the job."""


class Check(Request, kind="check"):
    """Collect the facts about the present state of the node for verify.yml."""

    ANSWER = answers.CheckedNode
    READS = True
    arguments: CheckRequest = field(record(CheckRequest), key="request")
    """The things to examine."""


class Jobs(Request, kind="jobs"):
    """List the jobs of the node. Without check mode, first remove leftovers of ended jobs."""

    ANSWER = answers.JobList
    READS = True
    SWEEPS = True
    jobs_dir: str = field(names.node_path)
    """The folder on the node that holds the folders of all jobs."""
    job: str = field(or_empty(names.job_id), default="")
    """A job to return even if it ended long ago. Of the other jobs, the command returns only the
    running jobs and the jobs that ended last."""
    every: bool = field(flag, default=False)
    """True to return all jobs."""
    measure: bool = field(flag, default=False)
    """True to measure the disk space of the job folders."""


class Remove(Request, kind="remove"):
    """Remove the folders of ended jobs."""

    ANSWER = answers.Removed
    CHANGES = True
    jobs_dir: str = field(names.node_path)
    """The folder on the node that holds the folders of all jobs."""
    remove: List[str] = field(each(names.job_id, answers.MOST_JOBS))
    """The ids of the jobs."""


class OfJob(Request):
    """A command for one job."""

    job_dir: str = field(names.node_path)
    """The job's folder on the node, with plan.json."""

    @property
    def job_id(self) -> str:
        """The id of the job, which is the name of the job's folder."""
        return os.path.basename(os.path.abspath(self.job_dir))


class _WithFiles(OfJob):
    """A command that writes the files of a job on this node."""

    secret_env: Optional[Dict[str, str]] = field(optional(table(text, text, 10000)), default=None)
    """Secret environment variables of the processes besides those of the plan. No plan, log or
    result contains them. A file of mode 0600 holds them from the start until the agent has read the
    file. Ansible masks these values wherever they occur in the result."""
    token: Optional[str] = field(
        optional(matching(r"[!-~]{1,1000}", "the token of a job")), default=None
    )
    """The secret by which the job's processes authenticate each other. A file of mode 0600 holds
    the token until the job has ended. No plan, log or result contains the token."""
    script: Optional[str] = field(
        optional(
            or_empty(matching(r"[A-Za-z0-9+/]+={0,2}", "a zip file in base64", most=LONGEST_SCRIPT))
        ),
        default=None,
    )
    """The folder of the user's script as a zip file in base64."""
    remove: List[str] = field(each(names.job_id, answers.MOST_JOBS), default=[])
    """The ids of old jobs whose folders the node first removes."""

    def secrets(self) -> List[str]:
        """Return the token and the values of the secret variables."""
        return [value for value in [self.token, *(self.secret_env or {}).values()] if value]


class Prepare(_WithFiles, kind="prepare"):
    """Write the files of a job, and start nothing."""

    ANSWER = answers.JobStarted
    CHANGES = True
    SWEEPS = True
    plan: NodePlan = field(record(NodePlan))
    """The node's part of the plan."""


class Start(_WithFiles, kind="start"):
    """Start the agent of a job."""

    ANSWER = answers.AgentStarted
    CHANGES = True
    SWEEPS = True
    plan: Optional[NodePlan] = field(optional(record(NodePlan)), default=None)
    """The node's part of the plan. Without a plan, the job's folder holds the files of an earlier
    `prepare`."""
    shared: Optional[SharedFolder] = field(optional(record(SharedFolder)), default=None)
    """The folder of a batch job, from which the node reads the token, the secrets and the script.
    """


class Launch(OfJob, kind="launch"):
    """Start the agents of all nodes through an engine of the site, such as mpirun."""

    ANSWER = answers.JobStarted
    CHANGES = True


class Join(OfJob, kind="join"):
    """Find the agent that an engine has started."""

    ANSWER = answers.AgentStarted


class Queue(OfJob, kind="queue"):
    """Keep or end the wait of a job on the node, and read the facts for the wait."""

    ANSWER = answers.Queued
    ticket: Optional[Ticket] = field(optional(record(Ticket)), default=None)
    """The ticket to write or renew, None to withdraw the ticket of a job that gives up."""


class Collect(OfJob, kind="collect"):
    """Pack the files of a job into a tar file."""

    ANSWER = answers.Collected
    CHANGES = True
    SWEEPS = True
    output: str = field(names.node_path)
    """The tar file on the node."""
    spool: Optional[str] = field(optional(or_empty(names.node_path)), default=None)
    """The folder for the tar file if root packs files of another user; created if missing. Only
    root can write to the folder, so no other user can replace the tar file before the controller
    fetches it."""
    reason: str = field(words, key="told", default="")
    """The reason of the job's end from the answer to `wait`, empty if unknown. If the job is a
    unit, root compares the reason with the unit's state."""
    reader: Optional[int] = field(optional(whole(0, 2**32 - 1)), default=None)
    """The uid of the login user, who becomes the owner of the tar file in the spool."""
    arguments: CollectRequest = field(
        record(CollectRequest), key="request", default=CollectRequest()
    )

    def limit(self) -> float:
        """Return the limit for a long transfer to a disk."""
        return LIMIT_OF_COLLECT


class Wait(OfJob, kind="wait"):
    """Wait for the end of a job, and renew the job's lease."""

    ANSWER = answers.Progress
    seconds: float = field(real(0, 86400), default=5.0)
    """The maximum duration in seconds. Half the job's lease is another limit."""
    took: str = field(or_empty(_checkpoint), default="")
    """The name of a checkpoint that is complete on the controller."""
    collect: Optional[Collect] = field(optional(record(Collect)), default=None)
    """The request for the files of the part, which the node carries out at once if the part has
    ended well. A failure goes to the controller first, because other nodes still run."""

    def limit(self) -> float:
        """Return the usual limit after the end of the wait."""
        return LIMIT + self.seconds


class Status(OfJob, kind="status"):
    """Read the state of a job."""

    ANSWER = answers.Progress
    READS = True


class Stop(OfJob, kind="stop"):
    """End a job on this node."""

    ANSWER = answers.Stopped
    SWEEPS = True
    peer: bool = field(flag, default=False)
    """True if the reason is the failure of another node's part, and not a user's command."""
    lease: bool = field(flag, default=False)
    """True if the reason is the end of the lease."""


class OfProcesses(OfJob):
    """A command for some processes of a job."""

    only: List[str] = field(each(names.process, MOST_PROCESSES), default=[])
    """The names of the processes, [] for all."""


class Logs(OfProcesses, kind="logs"):
    """Read the ends of the logs of a job, or the new lines of logs that still grow."""

    ANSWER = answers.Logs
    READS = True
    lines: int = field(whole(0, 10**6), default=LOG_LINES)
    """The maximum number of lines of each log in the first answer."""
    seconds: float = field(real(0, 60), default=0.0)
    """To follow the logs, the maximum duration of the wait for a new line. With 0 the answer also
    has the last line of a log without its line break."""
    offsets: Optional[Dict[str, int]] = field(
        optional(table(names.process, whole(), MOST_PROCESSES)), default=None
    )
    """{name of a log: bytes that the controller has}, None before the first answer."""

    def limit(self) -> float:
        """Return the usual limit after the end of the wait."""
        return LIMIT + self.seconds


class Stacks(OfProcesses, kind="stacks"):
    """Read the stack traces of the running processes of a job."""

    ANSWER = answers.Stacks


class ReadPlan(OfJob, kind="plan"):
    """Read the plan of the whole job."""

    ANSWER = answers.WholePlan
    READS = True


class Piece(OfJob, kind="piece"):
    """Read a piece of a checkpoint file, and renew the job's lease."""

    ANSWER = answers.PieceOfFile
    file: str = field(checkpoint_file)
    """The name of a file of a checkpoint."""
    offset: int = field(whole(), default=0)
    """The position of the first byte in the file."""
    most: int = field(whole(1, 1 << 30), default=PIECE)
    """The maximum number of bytes."""


class Reply(Record):
    """A line of `mxcluster.entry --serve`, for the head of a batch job."""

    command: str = field(words)
    """The name of the command."""
    answer: object = field(optional(passing(dict, lambda value: True, "an object")), default=None)
    """The JSON of the answer, which the class of the command checks."""
    error: str = field(text, default="")
    """The error of a failed command."""


# {name: class}, the table of all commands.
COMMANDS = cast(Dict[str, Type[Request]], Request.KINDS)
