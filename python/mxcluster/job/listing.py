"""The jobs of a cluster, from what its nodes answer: which there are, which one is meant, and how to go on with one. Pure.

An answer of one node is what `python -m mxcluster.agent jobs` gives: {"jobs": [summary, ...]}, see `agent.jobs`. What lies in
job folders the training user has written, so nothing of it is believed further than it is shown.
"""
import json
import os
import posixpath
import time
from collections import OrderedDict
from typing import Any, Dict, Iterable, List, Optional

from mxcluster import progress, verdict
from mxcluster.errors import BadInput, did_you_mean
from mxcluster.options import is_job_id

Json = Dict[str, Any]
Answers = Dict[str, Optional[Json]]

HEADINGS = ("job", "state", "started", "kv", "nodes", "ports", "GPUs")
STATES = {"lease": "lease ran out"}  # in words for people, where the state itself is none
NAMED = 6  # nodes that a line names
HIDDEN = {"why": None, "kv": None, "started": None, "lease": None, "nodes": [], "ports": {}, "address": None, "gpus": [],
          "status": None, "progress": {}}  # of a job that its node does not tell of


def merge(answers: Answers, now: Optional[float] = None) -> List[Json]:
    """The jobs, the newest first, those that run before all others. `answers` is {host: its answer, None for none}.

    Each is {"job", "kv", "state", "detached", "started", "ended", "nodes": {host: its state}, "holds": {host: {"ports": {port:
    process}, "gpus": [number]}}, "progress": the line that train.yml would show, "first_failure"}. A node's state is "running",
    "done", "failed", "peer" (another node's part failed), "stopped", "lease" (it ran out), "prepared", "broken", "missing" (it
    has no part of the job, or none any more) or "not asked"; the job's is "running" if a node's is, "done" if all are, and else
    what went wrong.
    """
    parts = {}  # type: Dict[str, Dict[str, Json]]
    for host, answer in sorted(answers.items()):
        for entry in (answer or {}).get("jobs", []):
            if is_job_id(str(entry.get("job"))):
                parts.setdefault(entry["job"], {})[host] = entry
        for name in (answer or {}).get("units") or []:  # root has seen that it runs, whatever the node's own answer says
            known = parts.setdefault(name, {}).get(host)
            if not known or known["state"] in ("ended", "prepared"):
                parts[name][host] = dict(HIDDEN, **dict(known or {}, job=name, state="running", reason=None, ended=None))
    found = [_job(name, entries, answers, now) for name, entries in parts.items()]
    return sorted(found, key=lambda job: (job["state"] == "running", job["started"] or 0, job["job"]), reverse=True)


def _job(name: str, entries: Dict[str, Json], answers: Answers, now: Optional[float]) -> Json:
    members = set(entries).union(*(map(str, entry["nodes"]) for entry in entries.values()))
    nodes = {host: _state(entries.get(host), answers.get(host)) for host in sorted(members)}
    running = {host: entry for host, entry in entries.items() if entry["state"] == "running"}
    statuses = [dict(entry["status"], host=host) for host, entry in entries.items() if entry["status"]]
    started = [entry["started"] for entry in entries.values() if entry["started"]]
    ended = [entry["ended"] for entry in entries.values() if entry["ended"]]
    state = _whole(nodes)
    return {"job": name, "kv": next((entry["kv"] for entry in entries.values() if entry["kv"]), None), "state": state,
            "detached": any(entry["lease"] == 0 for entry in entries.values()),
            "started": min(started) if started else None, "ended": max(ended) if ended and not running else None, "nodes": nodes,
            "holds": {host: {"ports": entry["ports"], "gpus": entry["gpus"]} for host, entry in running.items()},
            "progress": progress.line({host: {"status": entry["status"], "progress": entry["progress"]}
                                       for host, entry in running.items()}, now=now) if running else None,
            "first_failure": verdict.first_failure(statuses) if state not in ("done", "prepared") else None}


def _state(entry: Optional[Json], answer: Optional[Json]) -> str:
    """The state of one node."""
    if entry is None:
        return "not asked" if answer is None else "missing"
    return str(entry["reason"]) if entry["state"] == "ended" else entry["state"]


def _whole(nodes: Dict[str, str]) -> str:
    """The state of a job from those of its nodes."""
    states = set(nodes.values())
    for state in ("running", "failed", "peer", "lease", "stopped", "broken", "prepared"):
        if state in states:
            return "failed" if state == "peer" else state
    return "done" if "done" in states and not states - {"done", "not asked"} else "incomplete"


def choose(jobs: List[Json], wanted: str) -> Optional[Json]:
    """The job that is meant: the `wanted` one, or the one that runs; None if no job is named and none runs.

    BadInput, with the list of those there are, if that does not say which.
    """
    alive = [job for job in jobs if job["state"] in ("running", "prepared")]
    if not wanted:
        if len(alive) > 1:
            raise BadInput("%d jobs run: say which with -e job=...\n%s" % (len(alive), "\n".join(table(alive))))
        return alive[0] if alive else None
    found = next((job for job in jobs if job["job"] == wanted), None)
    if found is None:
        names = [job["job"] for job in jobs]
        raise BadInput("job='%s' is on none of these nodes%s; %s"
                       % (wanted, did_you_mean(wanted, names), "there are\n" + "\n".join(table(jobs)) if jobs else "no job is"))
    return found


def choose_to_stop(jobs: List[Json], wanted: str, every: bool) -> List[Json]:
    """The jobs to end: the `wanted` one, or with `every` all that run or are prepared.

    BadInput, with the list of the running jobs, if neither is given: the only running job may be somebody else's.
    """
    alive = [job for job in jobs if job["state"] in ("running", "prepared")]
    if wanted and every:
        raise BadInput("job='%s' and all=true: leave one of them out" % wanted)
    if every:
        return alive
    if not wanted:
        raise BadInput("no job is named: give -e job=<id>, or -e all=true for all that run; %s"
                       % ("there are\n" + "\n".join(table(alive)) if alive else "no job runs"))
    found = choose(jobs, wanted)
    return [found] if found else []


def parts(chosen: Iterable[Json]) -> Dict[str, List[str]]:
    """{host: ids of the `chosen` jobs of which it has a part}."""
    found = {}  # type: Dict[str, List[str]]
    for job in chosen:
        for host, state in job["nodes"].items():
            if state not in ("missing", "not asked"):
                found.setdefault(host, []).append(job["job"])
    return found


def table(jobs: List[Json], now: Optional[float] = None) -> List[str]:
    """The jobs in lines for people: one with the figures of each, and one that says how it goes, or why it does not."""
    if not jobs:
        return ["no job has run on these nodes"]
    rows = [HEADINGS] + [_row(job, now) for job in jobs]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    result = lines[:1]
    for job, text in zip(jobs, lines[1:]):
        result += [text] + ["    " + note for note in _notes(job)]
    return [verdict.printable(text) for text in result]


def _row(job: Json, now: Optional[float]) -> tuple:
    ports = sorted({int(port) for held in job["holds"].values() for port in held["ports"]})
    gpus = ["%s:%s" % (host, ",".join(map(str, held["gpus"]))) for host, held in sorted(job["holds"].items()) if held["gpus"]]
    state = STATES.get(job["state"], job["state"]) + (", detached" if job["detached"] and job["state"] == "running" else "")
    return (job["job"], state, _ago(job["started"], now), job["kv"] or "-", str(len(job["nodes"])),
            "-" if not ports else "%d-%d" % (ports[0], ports[-1]) if len(ports) > 1 else str(ports[0]), _some(gpus) or "-")


def _notes(job: Json) -> List[str]:
    notes = [job["progress"]] if job["progress"] else []
    if job["first_failure"]:
        notes.append(verdict.sentence(job["first_failure"]))
    for state in ("broken", "missing", "not asked", "prepared"):
        hosts = [host for host, of_node in job["nodes"].items() if of_node == state]
        if hosts and (state != "prepared" or job["state"] != "prepared"):
            notes.append("%s: %s" % (state, _some(hosts)))
    return notes


def _some(names: List[str]) -> str:
    return " ".join(names[:NAMED]) + (" and %d more" % (len(names) - NAMED) if len(names) > NAMED else "")


def _ago(when: Optional[float], now: Optional[float]) -> str:
    return "-" if when is None else verdict.clock(max(0.0, (time.time() if now is None else now) - when)) + " ago"


def agreed(plans: Dict[str, Any], job: str) -> Any:
    """The plan of a job, {host: what it tells}: each of its nodes keeps the plan of all. BadInput if they are not the same.

    The training user can write to what a node keeps: one that tells another plan is named.
    """
    parties = OrderedDict()  # type: Dict[str, List[str]]
    for host, plan in sorted(plans.items()):
        parties.setdefault(json.dumps(plan, sort_keys=True), []).append(host)
    if not parties:
        raise BadInput("no node tells the plan of the job %s: end it with stop.yml -e job=%s" % (job, job))
    if len(parties) > 1:
        few = min(parties.values(), key=len)
        raise BadInput("the nodes tell different plans of the job %s: %s. Look at who has changed it; -e without=%s goes on with "
                       "the others, stop.yml -e job=%s ends the job"
                       % (job, " and ".join(", ".join(hosts) for hosts in parties.values()), ",".join(few), job))
    return plans[min(plans)]


def adopt(plan: Any, job: str, asked: Dict[str, Optional[Json]]) -> Json:
    """The plan of a job that another controller has started, as its nodes tell it, fit to be gone on with.

    `asked` is {host: {"python", "jobs_dir"}} as this controller's inventory has them, None for a node that has not answered.
    These paths count: what is in a job folder the training user can change, and here it would say what is run on all nodes.
    A node that has not answered gets empty paths. BadInput if the plan does not fit the inventory.
    """
    try:
        hosts, named = sorted(plan["nodes"]), [process["host"] for process in plan["processes"]]
        wrong = plan["job"] != job or plan["schema"] != 1 or not isinstance(plan["kv"], str) or not set(named) <= set(hosts)
        for process in plan["processes"]:
            wrong = wrong or not {"name", "role", "index", "address", "port", "gpus", "group", "share"} <= set(process)
            wrong = wrong or os.path.basename(process["name"]) != process["name"]
        for indices in plan.get("together") or []:
            wrong = wrong or not isinstance(indices, list) or not all(isinstance(index, int) for index in indices)
        adopted = dict(plan, nodes={host: dict(node) for host, node in plan["nodes"].items()}, options=dict(plan["options"]))
        adopted["options"].update(lease=float(plan["options"]["lease"]), plan_only=False)
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise BadInput("the plan of the job %s on its nodes makes no sense (%s): end it with stop.yml -e job=%s"
                       % (job, error, job)) from error
    if wrong:
        raise BadInput("the plan of the job %s on its nodes makes no sense: end it with stop.yml -e job=%s" % (job, job))
    strangers = [host for host in hosts if host not in asked]
    if strangers:
        raise BadInput("the job %s has a part on %s, not in this inventory: give the inventory that it was started with"
                       % (job, ", ".join(strangers)))
    for host in hosts:
        paths = asked[host]
        adopted["nodes"][host].update(python=paths["python"] if paths else "",
                                      job_dir=posixpath.join(paths["jobs_dir"], job) if paths else "")
    return adopted


def told_of_logs(job: str, logs: Dict[str, Optional[Dict[str, List[str]]]]) -> List[str]:
    """The last lines of all logs of a job for people. `logs` is {host: {name: [line, ...]}, None for a node without any}."""
    if not job:
        raise BadInput("no job runs on these nodes: name one that has ended with -e job=..., status.yml tells which there are")
    lines = ["LOGS      of the job %s" % job]
    for host, of_host in sorted(logs.items()):
        for name, entries in sorted((of_host or {}).items()):
            lines += [verdict.printable("  %s/%s | %s" % (host, name, entry)) for entry in entries or ["(nothing)"]]
    return lines if len(lines) > 1 else lines + ["  there are none"]


def told_of_stops(jobs: List[Json], stopped: Dict[str, Dict[str, Optional[Json]]], check: bool) -> Dict[str, Any]:
    """{"text", "ok"}: the result of ending `jobs`. `stopped` is {job: {host: its answer, None for no answer}}."""
    if not jobs:
        return {"text": ["OK        no job runs on these nodes"], "ok": True}
    told = [told_of_stop(job, stopped.get(job["job"], {}), check) for job in jobs]
    return {"text": [line for one in told for line in one["text"]], "ok": all(one["ok"] for one in told)}


def told_of_stop(job: Json, stopped: Dict[str, Optional[Json]], check: bool) -> Dict[str, Any]:
    """{"text", "ok"}: what has come of a stop. `stopped` is {host: the answer, None for a node that gave none}."""
    ran = [host for host, answer in stopped.items() if (answer or {}).get("ran")]
    looked = {host: answer["left"] for host, answer in stopped.items() if answer and isinstance(answer.get("left"), list)}
    left = any(looked.values())
    lost = [host for host, state in job["nodes"].items()
            if state == "not asked" or state == "running" and stopped.get(host) is None]
    if check:
        running = [host for host, state in job["nodes"].items() if state == "running"]
        return {"text": ["CHECK     the job %s %s" % (job["job"], "would be ended on " + _some(running) if running
                                                       else "does not run: nothing would be done")], "ok": True}
    text = ["%s the job %s %s" % ("FAILED   " if left or lost else "OK       ", job["job"],
                                  "has been ended on " + _some(ran) if ran else "had ended already")]
    text += verdict.told_of_left([host for host, state in job["nodes"].items() if state not in ("missing", "not asked")], looked)
    text += ["not asked %s, where it may still run: see that it can be reached, and give the command again" % host
             for host in lost]
    return {"text": text, "ok": not left and not lost}


def told_of_detached(job: str, inventory: str) -> List[str]:
    """What to do with a job that nobody waits for."""
    with_inventory = "ansible-playbook %s" % ("-i %s " % inventory if inventory else "")
    return ["STARTED   job %s: it goes on without a controller, and any controller with this inventory finds it" % job,
            "look      %sstatus.yml" % with_inventory, "attach    %strain.yml -e attach=%s" % (with_inventory, job),
            "logs      %slogs.yml -e job=%s" % (with_inventory, job), "end       %sstop.yml -e job=%s" % (with_inventory, job)]


def as_json(jobs: Iterable[Json], lost: Iterable[str]) -> str:
    """One line: {"jobs": [...], "not_asked": [host, ...]}."""
    return json.dumps({"jobs": list(jobs), "not_asked": sorted(lost)}, sort_keys=True)
