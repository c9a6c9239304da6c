"""Check the answers of nodes, before the controller shows or uses an answer.

The agent answers as the training user, and this user can run any program on the node. So an answer
is untrusted input. The error for an invalid answer names the node and the field.
"""

from typing import Any, Dict, List, Optional

from mxcluster import exit_codes
from mxcluster.errors import BadInput
from mxcluster.job.option_types import is_job_id
from mxcluster.model import names, shapes
from mxcluster.model.events import Latest
from mxcluster.model.node_record import NodeFacts
from mxcluster.model.plan import Plan
from mxcluster.model.record import encode, record
from mxcluster.model.shapes import (
    each,
    fields,
    flag,
    json_of,
    matching,
    number,
    one_of,
    optional,
    passing,
    table,
    text,
    whole,
    words,
)

Json = Dict[str, Any]

CURE = (
    "Read the job's logs with logs.yml, end the job with stop.yml, and run provision.yml if the "
    "error persists"
)
ANY = json_of(6, 5000)
LEVELS = 12  # most levels of a plan
_digits = matching(r"[0-9]{1,6}", "a number")
_name = matching(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}", "the name of a process")
_identity = fields({"pid": whole(1), "start_time": number})
_nobody = {"pid": optional(whole(1)), "start_time": optional(number)}
_ending = {
    "state": one_of("running", "ended"),
    "exit_code": optional(whole(-100, 255)),
    "ended_at": optional(number),
    "ended_by": optional(words),
}
_part = fields(dict(_nobody, name=_name, role=words, **_ending), {"index": optional(whole())}, ANY)
_reason = optional(one_of(*exit_codes.REASONS))
_job = passing(str, is_job_id, "the id of a job")

_plan = passing(
    object, lambda value: shapes.is_json(value, LEVELS), "JSON of at most %d levels" % LEVELS
)

failure = fields(
    {
        "role": words,
        "index": optional(whole()),
        "name": _name,
        "reason": words,
        "exit_code": optional(whole(-100, 255)),
        "time": number,
    },
    {"host": words, "log": each(words), "echo": flag, "kind": optional(words)},
    ANY,
)
_of_pulse = {"phase": words, "pushes": whole(), "time": number}
_keys_pushed = {"keys": optional(fields({"most": whole(), "fewer": table(words, whole())}))}
_pulse = fields(_of_pulse, _keys_pushed)
_latest_pulse = fields(dict(_of_pulse, idle=number), _keys_pushed)
_status = fields(
    {
        "job": _job,
        "agent": _identity,
        "state": one_of("running", "ended"),
        "started": number,
        "processes": each(_part),
    },
    {
        "host": words,
        "kv": optional(words),
        "unanswered": each(words),
        "pulses": table(_name, _pulse),
        "reason": _reason,
        "ended": optional(number),
        "meeting": optional(_part),
        "first_failure": optional(failure),
        "left": each(_identity),
    },
    ANY,
)


def status(value: Any) -> Json:
    """Check `value`, the content of a status.json, and return the checked content.

    Raises shapes.Wrong if a field is invalid, or if the status of an ended job has no reason.
    """
    found: Json = _status(value)
    if found["state"] == "ended" and not found.get("reason"):
        raise shapes.Wrong("a reason for the end", None, ".reason")
    return found


# A process may have written an event that is not valid. `Latest` leaves it out.
progress = table(_name, lambda value: Latest.decode(value).encode())
_held = fields({"ports": table(_digits, words), "gpus": table(_digits, words)})
_entry = fields(
    {
        "job": _job,
        "state": one_of("running", "ended", "prepared", "broken"),
        "nodes": each(words),
        "ports": table(_digits, words),
        "gpus": each(whole()),
        "status": optional(status),
        "progress": progress,
    },
    {
        "why": optional(words),
        "kv": optional(words),
        "reason": _reason,
        "started": optional(number),
        "ended": optional(number),
        "lease": optional(number),
        "address": optional(shapes.ipv4),
    },
    ANY,
)


def entry(value: Any) -> Optional[Json]:
    """Return the checked summary `value` of a job, or None if the summary has no valid job id.

    If another field is invalid, the function returns a summary with the state "broken".
    """
    try:
        found: Json = _entry(value)
        return found
    except shapes.Wrong as wrong:
        if not isinstance(value, dict) or not is_job_id(str(value.get("job"))):
            return None
        return {
            "job": str(value["job"]),
            "state": "broken",
            "why": str(wrong),
            "kv": None,
            "reason": None,
            "started": None,
            "ended": None,
            "lease": None,
            "nodes": [],
            "ports": {},
            "address": None,
            "gpus": [],
            "status": None,
            "progress": {},
        }


def _entries(value: Any) -> List[Json]:
    found = [entry(item) for item in each(lambda item: item, 5000)(value)]
    return [one for one in found if one is not None]


def _or_error(shape: shapes.Shape[Any]) -> shapes.Shape[Any]:
    """Return a shape for the values of `shape`, and for {"error": text} after a failed check."""
    failed = fields({"error": words})
    return lambda value: (
        failed(value) if isinstance(value, dict) and "error" in value else shape(value)
    )


_digest = optional(names.digest)
_imported = {
    "mxnet": words,
    "libmxnet": _digest,
    "compiled_in": flag,
    "says": words,
}
_file = _or_error(fields({"sha256": names.digest}))
# An error of `cuda_probe`: a call's status, None if the library is missing.
_failed_call = fields({"error": words, "status": optional(whole(-(2**31)))})


def _or_failed_call(shape: shapes.Shape[Any]) -> shapes.Shape[Any]:
    return lambda value: (
        _failed_call(value) if isinstance(value, dict) and "error" in value else shape(value)
    )


_gpu = fields(
    {
        "uuid": optional(words),
        "bus": words,
        "name": words,
        "capability": matching(r"[0-9]{1,3}\.[0-9]{1,3}", "a compute capability"),
    }
)
_trial = matching(r"[0-9]{1,4}( -> [0-9]{1,4})?", "a GPU or a pair of GPUs")
_probe = fields(
    {
        "driver": _or_failed_call(
            fields(
                {
                    "version": whole(),
                    "gpus": each(_gpu),
                    "peers": each(each(whole()), 5000),
                }
            )
        ),
        "runtime": _or_failed_call(fields({"version": whole(), "count": whole()})),
        "cudnn": optional(words),
        "nccl": optional(words),
    }
)
_gpus = fields(
    {
        "listed": each(fields({"uuid": words, "bus": words})),
        "driver": optional(words),
        "nouveau": flag,
        "nvcc": optional(words),
        "cudnn": optional(words),
        "unresolved": each(words),
        "probe": optional(_or_error(_probe)),
        "trials": table(_trial, optional(words), 5000),
    }
)


def _mxnet(value: Any) -> Json:
    """Return the checked result `value` of an import of MXNet, or raise shapes.Wrong.

    The result of a failed import holds the error, and perhaps the Python version and the digest of
    MXNet's library.
    """
    broken = fields({"error": words}, {"python": words, "libmxnet": _digest})
    found: Json = (
        broken(value) if isinstance(value, dict) and "error" in value else fields(_imported)(value)
    )
    return found


_found = fields(
    {
        "mxnet": _mxnet,
        "files": _or_error(fields(dict.fromkeys(("hosts", "groups", "data_sharding"), _file))),
        "room": _or_error(table(names.path, whole())),
        "ssh": _or_error(fields({"peers": table(words, optional(words), 5000)})),
        "gpus": optional(_or_error(_gpus)),
    },
    {"ports_open": words},
)
_met = fields({"host": words, "rtt": number, "offset": number})
_unreachable = fields(
    {"host": words, "name": words, "address": words, "port": whole(), "reason": words}
)
# The value -1 of open_files means no limit.
_meeting = fields(
    {
        "met": each(_met, 5000),
        "unreachable": each(_unreachable, 5000),
        "taken": each(words),
        "limits": fields({"open_files": whole(-1)}),
    }
)
_offer = fields({}, {"held": text, "parts": table(text, text)})
# The fields of the answer to each command, and below the fields that any answer may have.
REPLIES = {
    "look": {"problems": each(words), "held": _held, "fits": flag},
    "record": {"record": record(NodeFacts)},
    "check": {"check": _found},
    "start": {"job": _job, "pid": whole(1), "status": optional(status)},
    "prepare": {"job": _job},
    "launch": {"job": _job, "pid": whole(1)},
    "join": {"job": _job, "pid": whole(1), "status": status},
    "wait": {"status": status, "progress": progress},
    "status": {"status": status, "progress": progress},
    "stop": {"ran": flag, "status": optional(status)},
    "collect": {"files": whole(), "bytes": whole(), "problem": optional(words)},
    "logs": {"logs": table(_name, each(words))},
    "plan": {"plan": _plan},  # `listing.adopt` checks the fields of the plan.
    "piece": {"data": text},
    "jobs": {"jobs": _entries},
}  # type: Dict[str, Dict[str, shapes.Shape[Any]]]
ALSO = {
    "image": optional(matching(r"[A-Za-z0-9:.-]{1,100}", "the id of a container image")),
    "pulses": table(_name, _latest_pulse),
    "checkpoints": _offer,
    "left": each(words),
    "left_out": each(words),
    "behind": each(words),
    "outside": each(words),
    "untrue": optional(words),
    "ports_open": words,
    "cleared": each(words),
    "units": optional(each(words, 10000)),
    "facts": ANY,
}  # type: Dict[str, shapes.Shape[Any]]
# The fields that the action plugin and Ansible add to the answer of the agent.
MODULES_OWN = (
    "asked",
    "changed",
    "deprecations",
    "ended",
    "has",
    "invocation",
    "output",
    "spooled",
    "warnings",
)


def check(command: str, host: str, result: Json, job: str = "") -> Json:
    """Check a node's answer to a command, and return the module's result with this answer.

    The returned status and its first failure have `host` as their host.

    Args: `command` a key of REPLIES; `result` the module's result; `job` the id of the requested
    job, "" without a job. Raises BadInput if the answer is invalid or belongs to another job.
    """
    wanted = REPLIES[command]
    try:
        told = fields(wanted, ALSO)(
            {name: value for name, value in result.items() if name in wanted or name in ALSO}
        )
        known = told.get("status")
        if known and job and known["job"] != job:
            raise shapes.Wrong("the requested job %s" % job, known["job"], ".status.job")
    except shapes.Wrong as wrong:
        raise BadInput(
            "the answer of %s to the command %s is invalid: %s. %s" % (host, command, wrong, CURE)
        ) from None
    if known:
        told["status"] = of_host(host, known, for_all=bool(known.get("batch")))
    own = {
        name: item
        for name, item in result.items()
        if name in MODULES_OWN or name.startswith(("_ansible_", "ansible_"))
    }
    return dict(own, **{name: encode(item) for name, item in told.items()})


def of_host(host: str, known: Json, for_all: bool = False) -> Json:
    """Return the status `known` with `host` as its host and as the host of its first failure.

    `for_all`: True to keep the host of the failure. The live line of a batch job needs this host,
    because the submit host speaks for all nodes. A verdict takes no such status.
    """
    cause = known.get("first_failure")
    where = (cause or {}).get("host") if for_all else host
    return dict(
        known,
        host=host,
        first_failure=dict(
            {"log": [], "echo": False, "kind": None}, **dict(cause, host=where or host)
        )
        if cause
        else None,
    )


def packed(host: str, known: Any, plan: Plan) -> Json:
    """Return the content of a status.json from `host`, with only the processes of this host.

    The training user can write the file. A pulse of another host's process could blame that process
    for a stall.

    Args: `known` the content before the check; `plan` of the job. Raises BadInput if `known` is
    invalid or belongs to another job.
    """
    try:
        found = of_host(host, status(known))
        if found["job"] != plan.job:
            raise shapes.Wrong("the job %s" % plan.job, found["job"], ".job")
    except shapes.Wrong as wrong:
        raise BadInput(
            "the status.json of this host is invalid: %s. Find the program that changed this "
            "file on the host" % wrong
        ) from None
    own = {process.name for process in plan.of_host(host)}
    return dict(
        found,
        processes=[part for part in found["processes"] if part.get("name") in own],
        pulses={name: pulse for name, pulse in (found.get("pulses") or {}).items() if name in own},
    )


def meeting(host: str, value: Any) -> Json:
    """Check `value`, the content of a meeting.json, and return the content with `host` added.

    Raises BadInput if `value` is invalid.
    """
    try:
        return dict(_meeting(value), host=host)
    except shapes.Wrong as wrong:
        raise BadInput(
            "the meeting.json of this host is invalid: %s. Find the program that changed this "
            "file on the host" % wrong
        ) from None
