"""Compute and show the verdict on a job: success, figures, first failure."""

import os
import re
import signal
import time
from typing import Any, Dict, Iterable, List, Optional, Sequence, Set, Tuple, cast

from mxcluster import exit_codes, schemes
from mxcluster.errors import some
from mxcluster.job import launchers, learning, stall_cause
from mxcluster.lists import several
from mxcluster.model.events import Done, End, Event
from mxcluster.model.plan import Plan
from mxcluster.package import OWN_FOLDERS

Json = Dict[str, Any]

_ENDINGS = {
    "lease": "ended: the lease ran out",
    "stopped": "ended: the job was stopped on request",
    exit_codes.SHUTDOWN: "ended: the node was shut down, or a program sent SIGTERM to the agent",
    "engine": "ended: mpirun, which started the agent, has ended the agent, and no part of the job "
    "had failed: mpirun got SIGTERM or SIGINT, unless mpirun.log has a message of mpirun; find the "
    "program or the user that ended mpirun",
}
_KINDS = {exit_codes.SHUTDOWN: "node", "engine": "engine"}  # the kinds of such failures
_PEER = "ended, because another node's part of the job had failed"

NOT_DONE = "exited with status 0 before its training was complete: read its log"
_NO_GPU = (
    "the job uses GPUs, but the host has an MXNet wheel for CPUs: provision the host with a CUDA "
    "version, or train with -e gpus=''."
)
_HINTS = (
    (
        "bind failed",
        "the process could not listen on its port. If another program holds the port (see 'ss "
        "-ltnp'), end that program, or choose another port with -e root_port=. If the node lacks "
        "this address, correct node_address.",
    ),
    (
        "Address already in use",
        "another program holds the port; 'ss -ltnp' shows the program. If the program belongs to a "
        "job, end that job with stop.yml. Otherwise choose another port with -e root_port=.",
    ),
    (
        "compile with USE_DIST_KVSTORE",
        "this MXNet was built without the distributed kv-store: install the official wheel with "
        "provision.yml on this host.",
    ),
    (
        "No module named",
        "a Python module is missing on the nodes: put a module of your own beside the script. For "
        "any other module, name its package in mxnet_packages and run provision.yml.",
    ),
    ("GPU support is disabled", _NO_GPU),
    ("GPU is not enabled", _NO_GPU),
    (
        "libcudart",
        "the host lacks the CUDA runtime of this MXNet wheel: provision the host with the wheel's "
        "CUDA version.",
    ),
    (
        "No space left on device",
        "a disk is full: delete files on that node, or set mxcluster_job_dir to another disk.",
    ),
    (
        "bad_alloc",
        "the process ran out of memory: use a smaller batch_size, or fewer workers on this host.",
    ),
    (
        "MemoryError",
        "the process ran out of memory: use a smaller batch_size, or fewer workers on this host.",
    ),
    (
        "out of memory",
        "the process ran out of memory: use a smaller batch_size, or fewer workers on this host.",
    ),
)

# Sequences that a terminal interprets: CSI (colours, cursor), strings (titles, links, the
# clipboard), and other escapes.
_COMMANDS = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]*[0-~]"
)
_NAMED = 3  # maximum number of node pairs in a verdict, and of processes in each pair


def compute(
    plan: Plan,
    statuses: Dict[str, Optional[Json]],
    events: Sequence[Event],
    problems: Optional[Dict[str, str]] = None,
    lost: Optional[Dict[str, Json]] = None,
    left: Optional[Dict[str, List[str]]] = None,
    warnings: Iterable[str] = (),
    files: int = 0,
    untrue: Optional[Dict[str, str]] = None,
    engine: Optional[Json] = None,
) -> Json:
    """Return the verdict on the job of `plan`, the content of verdict.json.

    A job is ok under these conditions:

    - every process of the plan exited with 0;
    - every worker wrote its `done` event, because an exit status alone can mislead.
      `mxcluster.training` writes this event at the end of a program or script;
    - the controller reached every node and collected its files;
    - no searched node has a leftover process, file, unit or firewall rule of the job;
    - a program of mxcluster that began with new weights learned (see `learning.problem`).

    Args:
        plan: the plan of the whole job.
        statuses: {host: content of the host's status.json, None without this file}.
        events: the merged events of all nodes.
        problems: {host: why the controller could not collect the host's files}.
        lost: {host: {"since": unix seconds, "why": text}} of the nodes that no longer answer.
        left: {host: [text about a leftover process, file, unit or rule, ...]} of the searched
            nodes.
        warnings: further lines for the user.
        files: the number of fetched files that a script wrote.
        untrue: {host: why the host's report of the job's end was false}.
        engine: the failure that a batch system has caused, such as a cancelled job, or None.
    """
    found = {
        process["name"]: process
        for status in statuses.values()
        if status
        for process in status["processes"]
    }
    codes = {
        process.name: found.get(process.name, {}).get("exit_code") for process in plan.processes
    }
    ends = {
        event.index: event for event in events if isinstance(event, End) and event.role == "worker"
    }
    done = {event.index for event in events if isinstance(event, Done) and event.role == "worker"}
    failure = first_failure(status for status in statuses.values() if status)
    if failure and failure.get("kind") == "stall":
        failure = stall_cause.explain(failure, plan, statuses)
    failure = _network(failure, plan, statuses)
    # A false report or a lost node causes failures of processes on other nodes.
    if untrue and _gives_way(failure):
        failure = _agent_failure(*min(untrue.items()))
    if lost and _gives_way(failure):
        failure = _gone(plan, statuses, lost)
    if engine and (_gives_way(failure) or _is_killed(failure)):
        failure = engine
    # A lost node is more likely the cause than an echo, which follows from another failure.
    if failure is None or failure.get("echo"):
        failure = (
            _not_collected(plan, statuses, problems or {})
            or _silent(plan, found, done)
            or _alone(failure)
            # Every node has a status here, because `_not_collected` found no failure.
            or _not_finished(plan, cast(Dict[str, Json], statuses), codes, done)
        )
    failure = failure or _left_over(left or {})
    accuracy = ends[0].accuracy if 0 in ends else None
    warnings = list(warnings) + [
        "%s: the controller could not collect the files of this node: %s"
        % (host, " ".join(problem.split()))
        for host, problem in sorted((problems or {}).items())
        # A host with a problem always has a `failure`, from `_not_collected`.
        if host != cast(Json, failure)["host"] and host not in (lost or {})
    ]
    if failure is None:
        failure, more = _learned(plan, events, accuracy)
        warnings += more
    seconds = max([end.seconds or 0.0 for end in ends.values()] or [0.0])
    samples = sum(end.samples or 0 for end in ends.values())
    return {
        "ok": failure is None,
        "job": plan.job,
        "kv": plan.kv,
        "accuracy": accuracy,
        "samples_per_s": round(samples / seconds, 1) if seconds and samples else None,
        "seconds": round(
            seconds if seconds and failure is None else _elapsed(statuses.values(), engine), 3
        ),
        "exit_codes": codes,
        "first_failure": failure,
        "left": left or {},
        "warnings": warnings,
        "files": files,
        "nodes": {host: _state(statuses.get(host)) for host in plan.nodes},
    }


def first_failure(statuses: Iterable[Json]) -> Optional[Json]:
    """Return the failure that caused the other failures in `statuses`, or None without a failure.

    The first of these failures that exists is the cause:

    1. the earliest failure of a process without an earlier cause;
    2. a failure of the network;
    3. the end of the job by an agent, after the lease ran out or on request;
    4. the earliest "echo": the failure of a process because another process had ended. If a node is
       lost, an echo may be the only failure.

    Args: `statuses` the contents of the nodes' status.json.
    """
    statuses = list(statuses)
    failures = sorted(
        (status["first_failure"] for status in statuses if status.get("first_failure")),
        key=lambda failure: (
            bool(failure.get("echo")),
            failure.get("kind") == "network",
            failure["time"],
        ),
    )
    if failures and not failures[0].get("echo"):
        first: Json = failures[0]
        return first
    for status in sorted(statuses, key=lambda status: status.get("ended") or 0):
        if status.get("reason") in _ENDINGS:
            # A stop is no cause, because the controller stops all other nodes after a lost node. An
            # engine ends all its agents after the end of one of them, so this is no cause either.
            told = _ENDINGS[status["reason"]] + (
                _of_lease(status.get("lease")) if status["reason"] == "lease" else ""
            )
            return dict(
                _agent_failure(status["host"], told, status.get("ended")),
                echo=status["reason"] in ("stopped", "engine"),
                kind=_KINDS.get(status["reason"]),
            )
    peers = [
        _agent_failure(status["host"], _PEER, status.get("ended"))
        for status in statuses
        if status.get("reason") == "peer"
    ]
    return failures[0] if failures else dict(peers[0], echo=True) if peers else None


def hints(failure: Optional[Json]) -> List[str]:
    """Return a line of advice for each known error message in the log lines of `failure`."""
    log = "\n".join((failure or {}).get("log") or []).lower()
    return list(dict.fromkeys(hint for message, hint in _HINTS if message.lower() in log))


def text(verdict: Json, run_dir: str) -> List[str]:
    """Return the text lines with the verdict, for the end of train.yml.

    Args: `verdict` from `compute`; `run_dir` the job's folder on the controller, which holds the
    report.
    """
    last = ["warning   %s" % printable(warning) for warning in verdict["warnings"]]
    if verdict["files"]:
        where = os.path.join(run_dir, "nodes", "*", OWN_FOLDERS)
        last.append("files     %d files of the program, in %s" % (verdict["files"], where))
    last.append("report    %s" % os.path.join(run_dir, "report.html"))
    if verdict["ok"]:
        lines = [
            "OK        job %s (%s): %s exited with 0"
            % (
                verdict["job"],
                verdict["kv"],
                "all %d processes" % len(verdict["exit_codes"])
                if len(verdict["exit_codes"]) > 1
                else "its only process",
            )
        ]
        if verdict["accuracy"] is not None:
            lines.append("accuracy  %.4f on held-out samples (worker-0)" % verdict["accuracy"])
        lines.append("time      %s" % clock(verdict["seconds"]))
        if verdict["samples_per_s"] is not None:
            lines.append("speed     %s samples/s" % figure(verdict["samples_per_s"]))
        lines += ["profile   " + line for line in verdict.get("proposal", [])]
        return [printable(line) for line in lines + last]
    failure = verdict["first_failure"]
    lines = [
        "FAILED    job %s (%s)" % (verdict["job"], verdict["kv"])
        # Without the status of any node the time is unknown.
        + (" after %s" % clock(verdict["seconds"]) if verdict["seconds"] else ""),
        "first     %s" % sentence(failure),
    ]
    lines += [
        "  %s/%s | %s" % (failure["host"], failure["name"], entry) for entry in failure["log"]
    ]
    lines += ["hint      %s" % hint for hint in hints(failure)]
    lines += told_of_left(verdict["nodes"], verdict["left"])
    lines += ["logs      %s" % os.path.join(run_dir, "nodes")] + last
    return [printable(line) for line in lines]


def told_of_left(nodes: Iterable[str], left: Dict[str, List[str]]) -> List[str]:
    """Return text lines with the leftovers of a job, and with the `nodes` that were not searched.

    Args: `nodes` the hosts of the job; `left` {host: [leftover, ...]} of the searched hosts.
    """
    lines = [
        "left      %s: %s" % (host, printable(found))
        for host in sorted(left)
        for found in left[host]
    ]
    if left and not lines:
        lines.append(
            "left      nothing: no process, port, unit or firewall rule on %s"
            % several(len(left), "node")
        )
    unseen = sorted(set(nodes) - set(left))
    return lines + (["not searched: %s" % ", ".join(unseen)] if unseen else [])


def sentence(failure: Json) -> str:
    """Return `failure` as one line, such as "worker 1 on node2: killed by signal 9 (SIGKILL)"."""
    index = "" if failure["index"] is None else " %s" % failure["index"]
    return printable(
        "%s%s on %s: %s" % (failure["role"], index, failure["host"], failure["reason"])
    )


def clock(seconds: float) -> str:
    """Return `seconds` as the text of a clock, such as "0:07", "12:31" or "1:02:03"."""
    whole = int(seconds + 0.5)
    if whole >= 3600:
        return "%d:%02d:%02d" % (whole // 3600, whole // 60 % 60, whole % 60)
    return "%d:%02d" % (whole // 60, whole % 60)


def figure(number: float) -> str:
    """Return a speed as text: two significant digits below 10, a whole number from 10 on."""
    return "%.0f" % number if number >= 10 else "%.2g" % number


def printable(text: str) -> str:
    """Return the `text` of a node as one line without commands for a terminal or a page.

    The function drops escape sequences, control characters, characters without width, and
    characters that reverse the direction of writing. A tab becomes four spaces. A newline becomes
    one space, so that the text of a node cannot add a line to the report.
    """
    if text.isprintable():
        return text
    text = _COMMANDS.sub("", text.replace("\t", "    "))
    return "".join(
        sign if sign.isprintable() else " " if sign.isspace() and sign != "\r" else ""
        for sign in text
    )


def _gives_way(failure: Optional[Json]) -> bool:
    """Return True if a lost node or a false report of the end may have caused `failure`.

    The result is True for an echo (a process that ended because another process had ended), for a
    failure of the network, for the end of the job by an agent, and for None (no failure).
    """
    return (
        failure is None
        or bool(failure.get("echo"))
        or failure.get("kind") == "network"
        or failure["reason"].startswith(tuple(_ENDINGS.values()))
    )


def _is_killed(failure: Optional[Json]) -> bool:
    """Return True if a signal that ends whole jobs has ended the process of `failure`."""
    return bool(failure) and cast(Json, failure).get("exit_code") in (
        -signal.SIGTERM,
        -signal.SIGKILL,
    )


def _agent_failure(host: str, reason: str, when: Optional[float] = None) -> Json:
    return {
        "host": host,
        "role": "agent",
        "index": None,
        "name": "agent",
        "reason": reason,
        "exit_code": None,
        "time": when,
        "log": [],
    }


def _of_lease(seen: Any) -> str:
    """Return the measurements of `agent.lease.Lease.expired` as text.

    The function checks the numbers, because the training user can change a status.

    Args: `seen` the field "lease" of a status: {"age", "limit", "gap"}, each in seconds.
    """
    found = seen if isinstance(seen, dict) else {}
    age, limit, gap = (
        "%.0f s" % found[name]
        if isinstance(found.get(name), (int, float)) and 0 <= found[name] < 1e7
        else None
        for name in ("age", "limit", "gap")
    )
    renewed = (
        "the last renewal was %s ago, and at most %s are allowed" % (age, limit)
        if age and limit
        else "the node received no renewal"
    )
    return ", %s%s: check whether train.yml was interrupted or lost its connection to the node" % (
        renewed,
        "; earlier renewals were up to %s apart" % gap if gap else "",
    )


def _gone(plan: Plan, statuses: Dict[str, Optional[Json]], lost: Dict[str, Json]) -> Json:
    """Return the failure of the node in `lost` that has been silent for the longest time.

    If a process of another node ended because heartbeats stopped, the reason also names the
    processes of the silent node.

    Args: `lost` as for `compute`.
    """
    host = min(lost, key=lambda name: lost[name]["since"])
    since = lost[host]["since"]
    # The head of a batch job reaches the nodes without ssh.
    reason = "%s is gone: it has not answered %ssince %s (%s)" % (
        host,
        "" if launchers.of(plan).is_batch else "over ssh ",
        time.strftime("%H:%M:%S", time.localtime(since)),
        printable(str(lost[host]["why"])),
    )
    if (statuses.get(host) or {}).get("reason") == exit_codes.SHUTDOWN:
        reason += ", and its agent got SIGTERM before, as when a node is shut down"
    missed = [process.name for process in plan.processes if process.host == host]
    seconds = plan.heartbeat.timeout
    if missed and any(
        part.get("exit_code") == exit_codes.PEER_DIED
        for status in statuses.values()
        if status
        for part in status["processes"]
    ):
        reason += ", and the other nodes have received no heartbeat of its %s for %s s" % (
            " and ".join(missed),
            seconds,
        )
    return _agent_failure(host, reason, since)


def _network(
    failure: Optional[Json], plan: Plan, statuses: Dict[str, Optional[Json]]
) -> Optional[Json]:
    """Return the cause of `failure`: a network fault if a status proves the fault, else `failure`.

    Only an echo, a stall or a failure of the kind "network" can have this cause. The field
    "unanswered" of a status lists the processes of other nodes that acknowledged no packet from the
    status's node. A process in this list proves the fault.

    Args: `failure` from `first_failure`; `plan` the plan of the whole job; `statuses` {host:
    content of the host's status.json, None without this file}. The result is a dict with the fields
    of `failure`, or None if `failure` is None.
    """
    if (
        failure is None
        or not failure.get("echo")
        and failure.get("kind") not in ("network", "stall")
    ):
        return failure
    parts = {part.name: part for part in plan.processes}
    pairs = {}  # type: Dict[Tuple[str, str], List[str]]
    for host, status in sorted(statuses.items()):
        for name in (status or {}).get("unanswered") or []:
            part = parts.get(str(name))
            if part and part.host != host:
                pairs.setdefault((host, part.host), []).append(
                    "%s at %s:%s" % (name, part.address, part.port)
                )
    if not pairs:
        return failure
    told = [
        "%s gets no answer from %s (%s)" % (pair + (some(names, _NAMED),))
        for pair, names in pairs.items()
    ]
    host = next(iter(pairs))[0]
    reason = "the network between the nodes failed before any process: " + some(told, _NAMED)
    return dict(_agent_failure(host, reason, failure.get("time")), kind="network", echo=False)


def _left_over(left: Dict[str, List[str]]) -> Optional[Json]:
    """Return a failure with the first leftover in `left`, or None if `left` has no leftover.

    Args: `left` {host: [leftover, ...]}.
    """
    for host, found in sorted(left.items()):
        if found:
            return _agent_failure(
                host,
                "a leftover of the finished job is on this node. Log in to the node and remove the "
                "leftover: %s" % found[0],
            )
    return None


def _learned(
    plan: Plan, events: Sequence[Event], accuracy: Optional[float]
) -> Tuple[Optional[Json], List[str]]:
    """Return (failure, warnings) about the learning of a job without another failure.

    A job that learned nothing gets a failure. A script and a job from a saved model get a warning
    instead. A job that was too short for a judgement also gets a warning. The result is (None, [])
    for a job that learned, for an MPI job, and for a measurement.
    """
    if plan.options.get("measured") or plan.mpi:
        return None, []
    options, found = plan.options, learning.problem(plan, events, accuracy)
    if found is None:
        warning = learning.cannot_tell(plan, events, accuracy)
        return None, [warning] if warning else []
    if options.get("script") or options.get("model_load_epoch"):
        return None, [found]
    who = next(
        {key: getattr(process, key) for key in ("host", "role", "index", "name")}
        for process in plan.processes
        if process.role == "worker"
    )
    cure = "Use another lr than %g, and a smaller lr if the loss oscillates" % options["lr"]
    if options.get("lr_scale") == "none" and schemes.updates_each_push(schemes.of(plan.kv)):
        cure += ", or leave lr_scale=none out"
    return dict(
        who, reason="%s. %s" % (found, cure), exit_code=0, time=None, log=[], kind="learning"
    ), []


def _not_collected(
    plan: Plan, statuses: Dict[str, Optional[Json]], problems: Dict[str, str]
) -> Optional[Json]:
    """Return the failure of the first node whose status or files are missing, or None.

    Args: `statuses` and `problems` as for `compute`.
    """
    for host in plan.nodes:
        if not statuses.get(host) or host in problems:
            return _agent_failure(
                host,
                "the controller could not collect the status of this node: %s"
                % problems.get(
                    host, "the node sent no status.json. Check that the node is reachable"
                ),
            )
    return None


def _silent(plan: Plan, found: Dict[str, Json], done: Set[Optional[int]]) -> Optional[Json]:
    """Return the failure of the first worker that exited with 0 before its `done` event, or None.

    Agents cannot detect this fault, but the fault ends the other processes.

    Args: `found` {process name: entry of the process in a status}; `done` the indices of the
    workers that wrote their `done` event.
    """
    for process in plan.processes:
        part = found.get(process.name, {})
        gone = part.get("exit_code") == 0 and part.get("ended_by") == "self"
        if gone and process.role == "worker" and process.index not in done:
            who = {key: getattr(process, key) for key in ("host", "role", "index", "name")}
            return dict(who, reason=NOT_DONE, exit_code=0, time=part.get("ended_at"), log=[])
    return None


def _alone(failure: Optional[Json]) -> Optional[Json]:
    """Return `failure` (dict or None), with a cure in the reason if `failure` is an echo.

    An echo is the failure of a process because another process had ended. No node has reported an
    earlier failure, so the network is the likely cause. Any other failure and None stay unchanged.
    """
    if failure is None or failure["exit_code"] not in exit_codes.reserved():
        return failure
    return dict(
        failure,
        reason="%s, and no node reported an earlier failure: check the network between the nodes"
        % failure["reason"],
    )


def _not_finished(
    plan: Plan, statuses: Dict[str, Json], codes: Dict[str, Optional[int]], done: Set[Optional[int]]
) -> Optional[Json]:
    """Return the failure of the first process of `plan` that did not finish its work, or None.

    Agents do not report such a failure.

    Args: `codes` {process name: exit code, None without one}; `done` the indices of the workers
    that wrote their `done` event.
    """
    for process in plan.processes:
        code = codes[process.name]
        if code is None:
            reason = "was still running when the controller collected its logs"
        elif code != 0:
            reason = exit_codes.describe(code)
        elif process.role == "worker" and process.index not in done:
            reason = NOT_DONE
        else:
            continue
        who = {key: getattr(process, key) for key in ("host", "role", "index", "name")}
        return dict(
            who, reason=reason, exit_code=code, time=statuses[process.host].get("ended"), log=[]
        )
    return None


def _elapsed(statuses: Iterable[Optional[Json]], engine: Optional[Json]) -> float:
    """Return the seconds from the first start to the last end in `statuses`, 0.0 without an end.

    `engine`: the failure that a batch system has caused, or None. Its time is an end too, because
    agents that a batch system kills write none.
    """
    known = [status for status in statuses if status]
    ends = [status["ended"] for status in known if status.get("ended")]
    if engine and engine.get("time"):
        ends.append(engine["time"])
    if not known or not ends:
        return 0.0
    return max(0.0, float(max(ends) - min(status["started"] for status in known)))


def _state(status: Optional[Json]) -> str:
    return (status.get("reason") or status["state"]) if status else "missing"
