"""The verdict on a job: did it succeed, how well, and if not, which process failed first. Pure."""
import os
import re
import time
from typing import Any, Dict, Iterable, List, Optional, Set, Tuple

from mxcluster import exitcodes, learning, stalls
from mxcluster.options import EVERY_PUSH
from mxcluster.package import OWN_FOLDERS

Json = Dict[str, Any]

_ENDINGS = {"lease": "ended: the lease ran out", "stopped": "ended: the job was stopped on request"}
_PEER = "ended, since another node's part of the job had failed"

NOT_DONE = "exited with status 0 but never told that it was done: its training is not complete"
_NO_GPU = ("a wheel for CPUs is installed but GPUs were asked for: provision the host with a CUDA version, or train "
           "with -e gpus=''.")
_HINTS = (
    ("bind failed",
     "the process could not listen on its port: another program holds it, or the address is not one of this machine. "
     "Choose another port with -e root_port=, see who has it with 'ss -ltnp', check node_address."),
    ("Address already in use",
     "another program holds the port: is a job still running there? Choose another one with -e root_port=, or see "
     "who has it with 'ss -ltnp'."),
    ("compile with USE_DIST_KVSTORE",
     "this MXNet was built without the distributed kv-store. Install the official wheel: run provision.yml on this "
     "host again."),
    ("No module named",
     "a Python module is missing on the nodes: put it beside the script, or name its package in mxnet_packages and run "
     "provision.yml."),
    ("GPU support is disabled", _NO_GPU),
    ("GPU is not enabled", _NO_GPU),
    ("libcudart",
     "the CUDA runtime that this MXNet was built for is not found: provision the host with the wheel's CUDA version."),
    ("No space left on device",
     "the disk is full: make room on that node, or choose another place with mxcluster_job_dir."),
    ("bad_alloc",
     "the memory was used up: take a smaller batch_size, or fewer workers on this host."),
    ("MemoryError",
     "the memory was used up: take a smaller batch_size, or fewer workers on this host."),
    ("out of memory",
     "the memory was used up: take a smaller batch_size, or fewer workers on this host."),
)

# What a terminal takes for a command: CSI (colours, cursor), strings (titles, links, the clipboard), and other escapes.
_COMMANDS = re.compile(r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
                       r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"
                       r"|\x1b[ -/]*[0-~]")
_NAMED = 3  # pairs of nodes, and processes of a pair, that a verdict names


def compute(plan: Json, statuses: Dict[str, Optional[Json]], events: List[Json],
            problems: Optional[Dict[str, str]] = None, lost: Optional[Dict[str, Json]] = None,
            left: Optional[Dict[str, List[str]]] = None, warnings: Iterable[str] = (), files: int = 0,
            untrue: Optional[Dict[str, str]] = None) -> Json:
    """The verdict on the job that `plan` describes, as it is written to verdict.json.

    `statuses` is {host: content of its status.json, None when it could not be had}, `problems` {host: why not};
    `events` are those of all nodes. `lost` is {host: {"since": unix seconds, "why": text}} of nodes that no longer answer,
    `left` {host: [what was found to be left of the job, ...]} of those on which somebody has looked. `warnings` are what
    else the user has to know, and `files` is how many files of a script were brought. `untrue` is {host: why its
    answer that the job had ended was not true}.

    A job is ok when every process of the plan exited with 0, every worker also wrote its `done` event, as
    `mxcluster.run` does at the end of a program or script (an exit status alone can lie), nothing is left, and the loss of
    a program that started afresh has fallen.
    """
    found = {process["name"]: process for status in statuses.values() if status for process in status["processes"]}
    exit_codes = {process["name"]: found.get(process["name"], {}).get("exit_code") for process in plan["processes"]}
    ends = {event["index"]: event for event in events if event["event"] == "end" and event.get("role") == "worker"}
    done = {event["index"] for event in events if event["event"] == "done" and event.get("role") == "worker"}
    failure = first_failure(status for status in statuses.values() if status)
    if failure and failure.get("kind") == "stall":
        failure = stalls.explain(failure, plan, statuses)
    failure = _network(failure, plan, statuses)
    if untrue and _gives_way(failure):
        failure = _agent_failure(*min(untrue.items()))  # what others have come to followed from it
    if lost and _gives_way(failure):
        failure = _gone(plan, statuses, lost)  # what others have come to followed from it
    if failure is None or failure.get("echo"):  # then the lost node is more likely the cause than what followed from it
        failure = (_not_collected(plan, statuses, problems or {}) or _silent(plan, found, done) or _alone(failure)
                   or _not_finished(plan, statuses, exit_codes, done))
    failure = failure or _left_over(left or {})
    accuracy = ends.get(0, {}).get("accuracy")
    warnings = list(warnings) + ["%s: nothing of it is here: %s" % (host, " ".join(problem.split()))
                                 for host, problem in sorted((problems or {}).items())
                                 if host != failure["host"] and host not in (lost or {})]
    if failure is None:
        failure, more = _learned(plan, events, accuracy)
        warnings += more
    seconds = max([end.get("seconds") or 0.0 for end in ends.values()] or [0.0])
    samples = sum(end.get("samples") or 0 for end in ends.values())
    return {"ok": failure is None, "job": plan["job"], "kv": plan["kv"],
            "accuracy": accuracy,
            "samples_per_s": round(samples / seconds, 1) if seconds and samples else None,
            "seconds": round(seconds if seconds and failure is None else _elapsed(statuses.values()), 3),
            "exit_codes": exit_codes, "first_failure": failure, "left": left or {}, "warnings": warnings, "files": files,
            "nodes": {host: _state(statuses.get(host)) for host in plan["nodes"]}}


def first_failure(statuses: Iterable[Json]) -> Optional[Json]:
    """The first cause among what the nodes saw, or None.

    The earliest process that failed by itself; then a network; then a node whose agent ended the job; and only then the
    earliest "echo", a process that ended because another one had (it may be all there is, when a node is lost altogether).
    """
    statuses = list(statuses)
    failures = sorted((status["first_failure"] for status in statuses if status.get("first_failure")),
                      key=lambda failure: (bool(failure.get("echo")), failure.get("kind") == "network", failure["time"]))
    if failures and not failures[0].get("echo"):
        return failures[0]
    for status in sorted(statuses, key=lambda status: status.get("ended") or 0):
        if status.get("reason") in _ENDINGS:
            # Whoever waits for the job stops the others when one node is lost: that is no cause.
            told = _ENDINGS[status["reason"]] + (_of_lease(status.get("lease")) if status["reason"] == "lease" else "")
            return dict(_agent_failure(status["host"], told, status.get("ended")),
                        echo=status["reason"] == "stopped")
    told = [_agent_failure(status["host"], _PEER, status.get("ended")) for status in statuses if status.get("reason") == "peer"]
    return failures[0] if failures else dict(told[0], echo=True) if told else None


def hints(failure: Optional[Json]) -> List[str]:
    """What to do about the well-known messages in the log lines of a failure."""
    log = "\n".join((failure or {}).get("log") or []).lower()
    return list(dict.fromkeys(hint for message, hint in _HINTS if message.lower() in log))


def text(verdict: Json, run_dir: str) -> List[str]:
    """The last lines on the terminal. `run_dir` is the job's folder on the controller, where the report lies."""
    last = ["warning   %s" % printable(warning) for warning in verdict["warnings"]]
    if verdict["files"]:
        where = os.path.join(run_dir, "nodes", "*", OWN_FOLDERS)
        last.append("files     %d that the script wrote, in %s" % (verdict["files"], where))
    last.append("report    %s" % os.path.join(run_dir, "report.html"))
    if verdict["ok"]:
        lines = ["OK        job %s (%s): all %d processes exited with 0"
                 % (verdict["job"], verdict["kv"], len(verdict["exit_codes"]))]
        if verdict["accuracy"] is not None:
            lines.append("accuracy  %.4f on held-out samples (worker-0)" % verdict["accuracy"])
        lines.append("time      %s" % clock(verdict["seconds"]))
        if verdict["samples_per_s"] is not None:
            lines.append("speed     %s samples/s" % figure(verdict["samples_per_s"]))
        return [printable(line) for line in lines + last]
    failure = verdict["first_failure"]
    lines = ["FAILED    job %s (%s) after %s" % (verdict["job"], verdict["kv"], clock(verdict["seconds"])),
             "first     %s" % sentence(failure)]
    lines += ["  %s/%s | %s" % (failure["host"], failure["name"], entry) for entry in failure["log"]]
    lines += ["hint      %s" % hint for hint in hints(failure)]
    lines += told_of_left(verdict["nodes"], verdict["left"])
    lines += ["logs      %s" % os.path.join(run_dir, "nodes")] + last
    return [printable(line) for line in lines]


def told_of_left(nodes: Iterable[str], left: Dict[str, List[str]]) -> List[str]:
    """What is left of a job on `nodes`, in lines for people, and where nobody has looked; nothing if nobody has at all."""
    if not left:
        return []
    lines = ["left      %s: %s" % (host, printable(found)) for host in sorted(left) for found in left[host]]
    if not lines:
        lines.append("left      nothing: no process, port, unit or firewall rule on %d node%s"
                     % (len(left), "" if len(left) == 1 else "s"))
    unseen = sorted(set(nodes) - set(left))
    return lines + (["not looked at: %s" % ", ".join(unseen)] if unseen else [])


def sentence(failure: Json) -> str:
    """Who failed, where and how: "worker 1 on node2: killed by signal 9 (SIGKILL)"."""
    index = "" if failure["index"] is None else " %s" % failure["index"]
    return printable("%s%s on %s: %s" % (failure["role"], index, failure["host"], failure["reason"]))


def clock(seconds: float) -> str:
    """Seconds as people write them: 0:07, 12:31, 1:02:03."""
    whole = int(seconds + 0.5)
    if whole >= 3600:
        return "%d:%02d:%02d" % (whole // 3600, whole // 60 % 60, whole % 60)
    return "%d:%02d" % (whole // 60, whole % 60)


def figure(number: float) -> str:
    """A speed for people: no decimals from 10 on."""
    return "%.0f" % number if number >= 10 else "%.2g" % number


def printable(text: str) -> str:
    """Return `text`, which a node wrote, as one line that a terminal or a page shows and never obeys.

    Escape sequences, control characters, signs without width and signs that reverse the direction are dropped. A tab
    becomes four spaces; a newline becomes one space, so that a text cannot add a line of its own to ours.
    """
    if text.isprintable():
        return text
    text = _COMMANDS.sub("", text.replace("\t", "    "))
    return "".join(sign if sign.isprintable() else " " if sign.isspace() and sign != "\r" else "" for sign in text)


def _gives_way(failure: Optional[Json]) -> bool:
    """Whether what the nodes have seen may follow from what only the controller knows."""
    return (failure is None or bool(failure.get("echo")) or failure.get("kind") == "network"
            or failure["reason"].startswith(tuple(_ENDINGS.values())))


def _agent_failure(host: str, reason: str, when: Optional[float] = None) -> Json:
    return {"host": host, "role": "agent", "index": None, "name": "agent", "reason": reason, "exit_code": None,
            "time": when, "log": []}


def _of_lease(seen: Any) -> str:
    """The words for what `agent.lease.Lease.expired` measured. The training user may have forged the numbers."""
    found = seen if isinstance(seen, dict) else {}
    age, limit, gap = ("%.0f s" % found[name] if isinstance(found.get(name), (int, float)) and 0 <= found[name] < 1e7
                       else None for name in ("age", "limit", "gap"))
    renewed = "the last renewal was %s ago, and %s are allowed" % (age, limit) if age and limit else "no renewal came"
    return (", %s%s: was train.yml interrupted, or its connection to the node lost?"
            % (renewed, "; earlier renewals were up to %s apart" % gap if gap else ""))


def _gone(plan: Json, statuses: Dict[str, Optional[Json]], lost: Dict[str, Json]) -> Json:
    """The node that has been silent for the longest, as the cause; with whom the others have missed, if they have."""
    host = min(lost, key=lambda name: lost[name]["since"])
    since = lost[host]["since"]
    reason = ("%s is gone: it has not answered over ssh since %s (%s)"
              % (host, time.strftime("%H:%M:%S", time.localtime(since)), printable(str(lost[host]["why"]))))
    missed = [process["name"] for process in plan["processes"] if process["host"] == host]
    seconds = (plan.get("heartbeat") or {}).get("timeout")
    if missed and any(part.get("exit_code") == exitcodes.PEER_DIED for status in statuses.values() if status
                      for part in status["processes"]):
        reason += ", and the other nodes have not heard of its %s for %s s" % (" and ".join(missed), seconds)
    return _agent_failure(host, reason, since)


def _network(failure: Optional[Json], plan: Json, statuses: Dict[str, Optional[Json]]) -> Optional[Json]:
    """The failure; that of the network between the nodes, if all processes that failed have only missed others.

    The nodes tell which processes of other nodes have acknowledged nothing (status["unanswered"]).
    """
    if failure is None or not failure.get("echo") and failure.get("kind") not in ("network", "stall"):
        return failure
    parts = {part["name"]: part for part in plan["processes"]}
    pairs = {}  # type: Dict[tuple, List[str]]
    for host, status in sorted(statuses.items()):
        for name in (status or {}).get("unanswered") or []:
            part = parts.get(str(name))
            if part and part["host"] != host:
                pairs.setdefault((host, part["host"]), []).append("%s at %s:%s" % (name, part.get("address"), part.get("port")))
    if not pairs:
        return failure
    told = ["%s gets no answer from %s (%s)" % (pair + (_some(names),)) for pair, names in pairs.items()]
    host = next(iter(pairs))[0]
    reason = "no process failed first, the network between the nodes did: " + _some(told)
    return dict(_agent_failure(host, reason, failure.get("time")), kind="network", echo=False)


def _some(texts: List[str]) -> str:
    """The first texts, and how many more there are."""
    return ", ".join(texts[:_NAMED]) + (" and %d more" % (len(texts) - _NAMED) if len(texts) > _NAMED else "")


def _left_over(left: Dict[str, List[str]]) -> Optional[Json]:
    """What is left of a job that is done, as a failure."""
    for host, found in sorted(left.items()):
        if found:
            return _agent_failure(host, "the job is done, but something of it is left: %s" % found[0])
    return None


def _learned(plan: Json, events: List[Json], accuracy: Optional[float]) -> Tuple[Optional[Json], List[str]]:
    """(the failure of a job that has learned nothing, or warnings of one of which that may be meant or cannot be told)."""
    options, found = plan["options"], learning.problem(plan, events, accuracy)
    if found is None:
        warning = learning.cannot_tell(plan, events, accuracy)
        return None, [warning] if warning else []
    if options.get("script") or options.get("model_load_epoch"):
        return None, [found]
    who = next({key: process[key] for key in ("host", "role", "index", "name")} for process in plan["processes"]
               if process["role"] == "worker")
    cure = "take another lr than %g, a smaller one if the loss wanders" % options["lr"]
    if options.get("lr_scale") == "none" and plan["kv"] in EVERY_PUSH:
        cure += ", or leave lr_scale=none out"
    return dict(who, reason="%s: %s" % (found, cure), exit_code=0, time=None, log=[], kind="learning"), []


def _not_collected(plan: Json, statuses: Dict[str, Optional[Json]], problems: Dict[str, str]) -> Optional[Json]:
    """A node of the plan whose status is missing, or whose files are."""
    for host in plan["nodes"]:
        if not statuses.get(host) or host in problems:
            return _agent_failure(host, "its status could not be collected: %s"
                                  % problems.get(host, "no status.json came (is the node still reachable?)"))
    return None


def _silent(plan: Json, found: Dict[str, Json], done: Set[int]) -> Optional[Json]:
    """A worker that has gone with status 0 in the middle of its work, which no agent can see; the others ended because of it."""
    for process in plan["processes"]:
        part = found.get(process["name"], {})
        gone = part.get("exit_code") == 0 and part.get("ended_by") == "self"
        if gone and process["role"] == "worker" and process["index"] not in done:
            who = {key: process[key] for key in ("host", "role", "index", "name")}
            return dict(who, reason=NOT_DONE, exit_code=0, time=part.get("ended_at"), log=[])
    return None


def _alone(failure: Optional[Json]) -> Optional[Json]:
    """An echo that is all there is: who was first, nobody has seen."""
    if failure is None or failure["exit_code"] not in exitcodes.reserved():
        return failure
    return dict(failure, reason="%s, and no process is known to have gone first: did the network between the nodes fail?"
                % failure["reason"])


def _not_finished(plan: Json, statuses: Dict[str, Json], exit_codes: Dict[str, Optional[int]],
                  done: Set[int]) -> Optional[Json]:
    """A process that no agent blames but that did not do its work to the end."""
    for process in plan["processes"]:
        code = exit_codes[process["name"]]
        if code is None:
            reason = "had not ended when its logs were collected"
        elif code != 0:
            reason = exitcodes.describe(code)
        elif process["role"] == "worker" and process["index"] not in done:
            reason = NOT_DONE
        else:
            continue
        who = {key: process[key] for key in ("host", "role", "index", "name")}
        return dict(who, reason=reason, exit_code=code, time=statuses[process["host"]].get("ended"), log=[])
    return None


def _elapsed(statuses: Iterable[Optional[Json]]) -> float:
    """Seconds from the first start to the last end that the nodes know of."""
    known = [status for status in statuses if status]
    ends = [status["ended"] for status in known if status.get("ended")]
    return max(0.0, max(ends) - min(status["started"] for status in known)) if ends else 0.0


def _state(status: Optional[Json]) -> str:
    return (status.get("reason") or status["state"]) if status else "missing"
