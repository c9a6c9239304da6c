"""Define the failure of a part of a job, and the table of all kinds of failures.

The agent, the batch system's head and the controller make failures. The verdict chooses the first
failure by the table, and the decision about a restart reads the table, too.
"""

from typing import Dict, List, NamedTuple, Optional, Sequence

from mxcluster import exit_codes
from mxcluster.model import names
from mxcluster.model.record import Record, field
from mxcluster.model.shapes import Wrong, each, one_of, optional, unix_time, whole, words


class Restart(NamedTuple):
    """The value of a restart after a failure.

    - `refusal`: the reason why a restart does not help, "" if it helps;
    - `elsewhere`: True if a restart without the host of the failure helps in any case.
    """

    refusal: str
    elsewhere: bool


_LATER = "the cause would most likely recur; remove the cause, then continue with -e resume=<job>"
HELPS = Restart("", True)
RECURS = Restart(_LATER, False)
RECURS_THERE = Restart(_LATER, True)
STAYS_THERE = Restart(
    "a restart does not remove the cause; remove the cause, then start the job again", True
)

# The order of the failures of several nodes: the first of them is the cause of the others.
CAUSE, NETWORK_FAULT, END, ECHO, END_FOR_PEER = range(5)
# The causes to which a failure gives way, if they exist: none, the reason that a batch system has
# for the end of the job, or also the loss of a node and a false report of the job's end.
NONE, ENGINE_REASON, LOSS = range(3)


class Kind(NamedTuple):
    """A kind of failure, which is a row of the table.

    - `restart`: whether a restart of the job helps;
    - `order`: the place in the order of the failures of several nodes;
    - `gives_way`: NONE, ENGINE_REASON or LOSS;
    - `is_echo`: True if another failure is the likely cause, which mxcluster may not know;
    - `words`: the reason in words, "" if each failure has its own reason.
    """

    restart: Restart
    order: int = CAUSE
    gives_way: int = NONE
    is_echo: bool = False
    words: str = ""


# Failures of processes.
PROGRAM, KILLED, PEER, NAN, MEMORY = "program", "killed", "peer", "nan", "memory"
STOPPED, START, STALL, LEARNING = "stopped", "start", "stall", "learning"
TIME = "time"  # the job has run for its max_time
# Failures of a node and of the network.
DISK, FOLDER, NODE, LOST, NETWORK = "disk", "folder", "node", "lost", "network"
# Failures of an agent, and of an engine or a batch system that has started the agents.
AGENT, AGENT_KILLED, AGENT_HELD = "agent", "agent_killed", "agent_held"
ENGINE, BATCH = "engine", "batch"
# The end of the job by an agent without a failure.
LEASE, ON_REQUEST, SHUTDOWN = "lease", "on_request", "shutdown"
ENGINE_END, FOR_PEER = "engine_end", "for_peer"

KINDS: Dict[str, Kind] = {
    PROGRAM: Kind(RECURS_THERE),
    KILLED: Kind(HELPS, gives_way=ENGINE_REASON),  # by a signal from outside
    PEER: Kind(HELPS, ECHO, LOSS, True),  # a process that ended after the end of another
    NAN: Kind(RECURS),
    MEMORY: Kind(RECURS, gives_way=ENGINE_REASON),
    STOPPED: Kind(HELPS),  # by SIGSTOP
    START: Kind(RECURS),
    STALL: Kind(RECURS),
    LEARNING: Kind(RECURS),
    TIME: Kind(Restart("the job has used up its max_time; continue with -e resume=<job>", False)),
    DISK: Kind(RECURS),
    FOLDER: Kind(RECURS),
    NODE: Kind(HELPS),  # also a fault of a container engine, or of a batch system
    LOST: Kind(HELPS),
    NETWORK: Kind(HELPS, NETWORK_FAULT, LOSS),
    AGENT: Kind(STAYS_THERE),
    AGENT_KILLED: Kind(HELPS, words="the agent itself was killed"),
    AGENT_HELD: Kind(
        HELPS,
        words="the agent itself has been stopped by a signal (SIGSTOP), so mxcluster killed the "
        "agent: find the program that sent this signal",
    ),
    ENGINE: Kind(HELPS),
    BATCH: Kind(RECURS),
    LEASE: Kind(STAYS_THERE, END, LOSS, words="ended: the lease ran out"),
    # A stop is no cause, because the controller stops all other nodes after a lost node.
    ON_REQUEST: Kind(STAYS_THERE, END, LOSS, True, words="ended: the job was stopped on request"),
    SHUTDOWN: Kind(
        HELPS,
        END,
        LOSS,
        words="ended: the node was shut down, or a program sent SIGTERM to the agent",
    ),
    # An engine ends all its agents after the end of one of them, so this is no cause either.
    ENGINE_END: Kind(
        HELPS,
        END,
        LOSS,
        True,
        "ended: mpirun, which started the agent, has ended the agent, and no part of the job had "
        "failed: mpirun got SIGTERM or SIGINT, unless mpirun.log has a message of mpirun; find "
        "the program or the user that ended mpirun",
    ),
    FOR_PEER: Kind(
        STAYS_THERE,
        END_FOR_PEER,
        LOSS,
        True,
        "ended, because another node's part of the job had failed",
    ),
}
# {reason of the end of a job (see `exit_codes.REASONS`): the kind of the failure}
OF_REASON = {
    "lease": LEASE,
    "stopped": ON_REQUEST,
    exit_codes.SHUTDOWN: SHUTDOWN,
    "engine": ENGINE_END,
    "peer": FOR_PEER,
}
_OF_CODE = {
    exit_codes.NOT_A_NUMBER: NAN,
    exit_codes.PEER_DIED: PEER,
    exit_codes.KILLED_BY_AGENT: PEER,
}


def of_code(code: int) -> str:
    """Return the kind of the failure of a process with the exit code `code`."""
    if -code in exit_codes.FROM_OUTSIDE:
        return KILLED
    return _OF_CODE.get(code, PROGRAM)


class Failure(Record, nulls=True):
    """A failure of a process, of an agent, or of a node."""

    host: str = field(words, default="")
    role: str = field(words)
    """The role of the process, or "agent"."""
    index: Optional[int] = field(optional(whole()), default=None)
    name: str = field(names.process)
    reason: str = field(words)
    """The cause, without the name and the host."""
    exit_code: Optional[int] = field(optional(whole(-100, 255)), default=None)
    """The exit code of the process, None if the process has not ended."""
    time: Optional[float] = field(optional(unix_time), default=None)
    log: Sequence[str] = field(each(words), default=[])
    """The last lines of the log."""
    kind: str = field(one_of(*KINDS))
    """A key of KINDS."""

    @property
    def row(self) -> Kind:
        """The row of the failure in the table of kinds."""
        return KINDS[self.kind]

    @classmethod
    def decode(cls, value: object) -> "Failure":
        """Return the failure of JSON `value`, also of another version without this kind."""
        if not isinstance(value, dict):
            raise Wrong("an object", value)
        kind, code = value.get("kind"), value.get("exit_code")
        if kind is None:  # version 0.1 named no kind of the failure of a process or an agent
            kind = of_code(code) if isinstance(code, int) else AGENT
        elif isinstance(kind, str) and kind not in KINDS:
            kind = PROGRAM
        return super(Failure, cls).decode(dict(value, kind=kind))


def of_agent(
    host: str,
    kind: str,
    reason: str = "",
    when: Optional[float] = None,
    log: Optional[List[str]] = None,
) -> Failure:
    """Return a failure of the node `host` that belongs to no process of the plan.

    Args: `reason` if the kind has no words of its own; `when` in unix seconds; `log` the last lines
    of the log.
    """
    return Failure(
        host=host,
        role="agent",
        name="agent",
        reason=reason or KINDS[kind].words,
        time=when,
        log=log or [],
        kind=kind,
    )


def first(failures: Sequence[Failure]) -> Optional[Failure]:
    """Return the failure that caused the others, None without a failure.

    The first of these failures is the cause: the earliest failure without an earlier cause, a
    failure of the network, the end of the job by an agent, and the earliest echo. If a node is
    lost, an echo may be the only failure.
    """
    return min(failures, key=lambda failure: (failure.row.order, failure.time or 0), default=None)
