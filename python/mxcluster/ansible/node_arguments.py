"""Check the arguments of a task with the module mxcluster_node.

The arguments are the fields of the commands (see `mxcluster.model.protocol`), and the fields of
Options, which stay on the controller. This module imports no Ansible.
"""

from typing import (
    Dict,
    List,
    Optional,
    Tuple,
    Type,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from mxcluster.ansible.edge import ArgumentSpec, TaskArguments
from mxcluster.errors import BadInput
from mxcluster.job.plan.packed import completed
from mxcluster.model import protocol
from mxcluster.model.node_requests import Arguments
from mxcluster.model.plan import Plan
from mxcluster.model.record import Record, field, record
from mxcluster.model.shapes import (
    Wrong,
    each,
    flag,
    json_object,
    matching,
    optional,
    real,
    text,
    whole,
    words,
)

R = TypeVar("R", bound=Record)

_folder = matching(r"/[^\x00-\x1f\x7f]*", "an absolute path", 4096)
_name = matching(r"[^\x00-\x1f\x7f]+", "a name", 4096)


class Connection(Record):
    """The wishes for a test of the connection, as for the module mxcluster_preflight."""

    users: List[str] = field(each(words))
    """The allowed login users, [] for all users."""
    trainer: Optional[str] = field(optional(words))
    """mxcluster_user, empty if the login user trains, None for a node without training."""
    modules: bool = field(flag, default=False)
    """True if modules of Ansible will run there."""


class Checkpoints(Record):
    """The destination of a running job's checkpoints on the controller."""

    folder: str = field(_folder)
    keep: int = field(whole(0, 10**9))
    """The number of complete checkpoints to keep."""
    keep_best: bool = field(flag, default=False)
    """True to keep the checkpoint with the highest accuracy, too."""
    # A poll only copies the plan to the file. Decoding the plan would delay each poll.
    plan: Dict[str, object] = field(json_object(20))
    """The content of plan.json beside the folder."""


class Options(Record):
    """The arguments that stay on the controller."""

    python: str = field(_name)
    """The Python interpreter on the node that has mxcluster; may begin with ~/."""
    packed_plan: Optional[str] = field(optional(text), default=None)
    """The `packed_plan` of mxcluster_plan. The node's part replaces the `request` of `look`, the
    `cuda` of `check`, the `plan` of `start` and `prepare`, and of `wait` the arguments `together`,
    `request`, and `plan` of `checkpoints`."""
    only_meet: bool = field(flag, default=False)
    """For `start`, whether the agents only hold the rendezvous and start no process."""
    transfers: bool = field(flag, default=False)
    """For `start` with `only_meet`, whether the nodes also measure the bandwidth between them."""
    connection: Optional[Connection] = field(optional(record(Connection)), default=None)
    """For `look`, `users`, `trainer` and `modules`, to test the connection in the same call."""
    problems: Optional[List[str]] = field(optional(each(text, 100000)), default=None)
    """For `look`, the problems that the controller has found. With this argument, even with an
    empty list, the task fails if the controller or the node has found a problem. Paths of a plan
    other than `python` and `job_dir` are then a problem, too."""
    runs_dir: Optional[str] = field(optional(_name), default=None)
    """For `look`, the folder of the results on the controller. The result then has `removable`: the
    old jobs of the node whose files are complete there."""
    board: str = field(text, default="")
    """For `wait`, the name of a folder in the temporary folder of this run of Ansible. The folder
    gets the names of nodes whose part has failed. The parts of the other nodes then end, as `stop`
    does."""
    keeper: bool = field(flag, default=True)
    """For `wait`, whether the job needs this run of Ansible. The board then also gets the names of
    lost nodes."""
    together: List[List[int]] = field(each(each(whole(), 100000), 100000), default=[])
    """For `wait`, lists of worker indices. The servers merge pushes only when all workers of a list
    have pushed. The node of a worker that blocks its list for ever goes to the board."""
    patience: float = field(real(0, 1e9), default=0.0)
    """For `wait`, the seconds for which the plugin retries an unreachable node, such as the job's
    lease."""
    checkpoints: Optional[Checkpoints] = field(optional(record(Checkpoints)), default=None)
    """For `wait`, the `folder` for checkpoints of the running job, and the number of complete
    checkpoints to `keep` there."""
    tensorboard: Optional[str] = field(optional(_name), default=None)
    """For `wait`, a folder on the controller for the curves of worker 0 while the job runs."""
    into: Optional[str] = field(optional(_name), default=None)
    """For `wait`, a file on the controller for the files of the node's ended part, which `collect`
    packs into `output` or `spool`."""


def _argument(hint: object) -> ArgumentSpec:
    """Return Ansible's spec of a field with the annotation `hint`."""
    if get_origin(hint) is Union:  # Optional
        return _argument(get_args(hint)[0])
    kind = get_origin(hint) or hint
    assert isinstance(kind, type)
    if issubclass(kind, (Plan, Arguments)):  # the codec alone checks them
        return {"type": "dict"}
    if issubclass(kind, Record):
        return {"type": "dict", "options": _arguments_of(kind)}
    return {"type": kind.__name__}  # Ansible names a type as Python does


def _arguments_of(cls: Type[Record]) -> ArgumentSpec:
    hints = get_type_hints(cls)
    return {item.key: _argument(hints[name]) for name, item in cls.FIELDS.items()}


def _spec() -> ArgumentSpec:
    """Return the argument spec of the module mxcluster_node for Ansible."""
    found = {}
    for cls in protocol.COMMANDS.values():
        found.update(_arguments_of(cls))
    for name in protocol.FROM_PLUGIN:
        del found[name]
    found.update(_arguments_of(Options))
    found["python"]["required"] = True
    found["command"] = {"type": "str", "required": True, "choices": list(protocol.COMMANDS)}
    return found


SPEC = _spec()


def _without_none(arguments: TaskArguments) -> TaskArguments:
    return {name: value for name, value in arguments.items() if value is not None}


def host_arguments(arguments: TaskArguments, host: str) -> TaskArguments:
    """Return the given arguments of a task for `host`, with the host's part of the packed plan.

    Args: `arguments` as Ansible returns them for SPEC, with None for a missing argument.
    """
    found = _without_none(arguments)
    found.update(
        (name, _without_none(value))
        for name, value in found.items()
        if isinstance(value, dict) and "options" in SPEC[name]
    )
    return completed(dict({"request": {}, "only_meet": False}, **found), host)


def read(arguments: TaskArguments) -> Tuple[Options, protocol.Request]:
    """Return the options and the request of a task. Raises BadInput as `request_of` does.

    Args: `arguments` from `host_arguments`.
    """
    command = protocol.COMMANDS[arguments["command"]]
    return request_of(Options, arguments), request_of(command, arguments)


def request_of(cls: Type[R], arguments: TaskArguments) -> R:
    """Return the record of the class `cls` from the arguments of a task.

    Args: `arguments` from `host_arguments`. Raises BadInput if an argument is missing or invalid.
    """
    lacking = [
        item.key
        for item in cls.FIELDS.values()
        if item.is_required and arguments.get(item.key) in (None, "")
    ]
    if lacking:
        raise BadInput(
            "command=%s needs %s: add the missing arguments to the task"
            % (cls.KIND or arguments["command"], " and ".join(lacking))
        )
    try:
        return cls.decode(arguments)
    except Wrong as wrong:
        raise BadInput("%s: correct this argument of the task" % wrong) from None
