"""List the jobs of all nodes, choose a job, and make the messages of the job playbooks.

The job list of a node is the answer to the command `jobs`: {"jobs": [summary, ...]},
see `agent.jobs`. The training user can write to the job folders, so the content of a job folder is
untrusted input.
"""

import json
import posixpath
import time
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

from mxcluster.errors import BadInput, did_you_mean, some
from mxcluster.job import live_line, verdict
from mxcluster.job.option_types import is_job_id
from mxcluster.lists import grouped
from mxcluster.model import shapes
from mxcluster.model.plan import Plan, free_json

Json = Dict[str, Any]
Answers = Dict[str, Optional[Json]]

HEADINGS = ("job", "state", "started", "kv", "nodes", "ports", "GPUs")
STATES = {"lease": "lease ran out"}  # {state: text in the table}, if the state's name is unclear
NAMED = 6  # maximum number of hosts that a line names
# The summary of a job that runs on a node, but is missing from the node's job list.
HIDDEN: Json = {
    "why": None,
    "kv": None,
    "started": None,
    "lease": None,
    "nodes": [],
    "ports": {},
    "address": None,
    "gpus": [],
    "status": None,
    "progress": {},
}


def merge(answers: Answers, now: Optional[float] = None) -> List[Json]:
    """Return the jobs of all nodes. Running jobs come first, and newer jobs before older jobs.

    Args: `answers` {host: job list of this host, None without a list}; `now` in unix seconds
    (default: the clock).

    Each job is {"job", "kv", "state", "detached", "started", "ended", "nodes": {host: state of this
    host}, "holds": {host: {"ports": {port: process}, "gpus": [number]}}, "progress": the live line
    of train.yml, "first_failure"}. "started" and "ended" are in unix seconds.

    The state of a node is "running", "done", "failed", "peer" (another node's part failed),
    "stopped", "lease" (the lease ran out), "shutdown" (the node went down), "prepared", "broken"
    (damaged files), "missing" (the node has no part of the job) or "not asked" (the controller has
    no job list of the node).

    The job is "running" if a node of the job is "running". The job is "done" if each node of the
    job with a job list is "done". Otherwise the state of the job is the first of "failed" (also for
    "peer"), "lease", "shutdown", "stopped", "broken" and "prepared" that a node has, or else
    "incomplete".
    """
    parts = {}  # type: Dict[str, Dict[str, Json]]
    for host, answer in sorted(answers.items()):
        for entry in (answer or {}).get("jobs", []):
            if is_job_id(str(entry.get("job"))):
                parts.setdefault(entry["job"], {})[host] = entry
        # Root lists the running units, so this list overrides the job list of the training user.
        for name in (answer or {}).get("units") or []:
            known = parts.setdefault(name, {}).get(host)
            if not known or known["state"] in ("ended", "prepared"):
                parts[name][host] = dict(
                    HIDDEN, **dict(known or {}, job=name, state="running", reason=None, ended=None)
                )
    found = [_job(name, entries, answers, now) for name, entries in parts.items()]
    return sorted(
        found,
        key=lambda job: (job["state"] == "running", job["started"] or 0, job["job"]),
        reverse=True,
    )


def _job(name: str, entries: Dict[str, Json], answers: Answers, now: Optional[float]) -> Json:
    """Return the entry of the job `name` in the result of `merge`.

    Args: `entries` {host: summary of the job by this host}; `answers` and `now` as for `merge`.
    """
    members = set(entries).union(*(map(str, entry["nodes"]) for entry in entries.values()))
    nodes = {host: _state(entries.get(host), answers.get(host)) for host in sorted(members)}
    running = {host: entry for host, entry in entries.items() if entry["state"] == "running"}
    statuses = [
        dict(entry["status"], host=host) for host, entry in entries.items() if entry["status"]
    ]
    started = [entry["started"] for entry in entries.values() if entry["started"]]
    ended = [entry["ended"] for entry in entries.values() if entry["ended"]]
    state = _whole(nodes)
    return {
        "job": name,
        "kv": next((entry["kv"] for entry in entries.values() if entry["kv"]), None),
        "state": state,
        "detached": any(entry["lease"] == 0 for entry in entries.values()),
        "started": min(started) if started else None,
        "ended": max(ended) if ended and not running else None,
        "nodes": nodes,
        "holds": {
            host: {"ports": entry["ports"], "gpus": entry["gpus"]}
            for host, entry in running.items()
        },
        "progress": live_line.line(
            {
                host: {"status": entry["status"], "progress": entry["progress"]}
                for host, entry in running.items()
            },
            now=now,
        )
        if running
        else None,
        "first_failure": verdict.first_failure(statuses)
        if state not in ("done", "prepared")
        else None,
    }


def _state(entry: Optional[Json], answer: Optional[Json]) -> str:
    """Return the state of one node in a job; `merge` lists the states.

    Args: `entry` the node's summary of the job, None without a summary; `answer` the node's whole
    job list, None without a list.
    """
    if entry is None:
        return "not asked" if answer is None else "missing"
    return str(entry["reason"]) if entry["state"] == "ended" else entry["state"]


def _whole(nodes: Dict[str, str]) -> str:
    """Return the state of a job, as `merge` describes, from the states `nodes`, {host: state}."""
    states = set(nodes.values())
    for state in (
        "running",
        "failed",
        "peer",
        "lease",
        "shutdown",
        "stopped",
        "engine",
        "broken",
        "prepared",
    ):
        if state in states:
            return "failed" if state == "peer" else state
    return "done" if "done" in states and not states - {"done", "not asked"} else "incomplete"


def choose(jobs: List[Json], wanted: str, lost: Sequence[str] = ()) -> Optional[Json]:
    """Return the job named `wanted`. If `wanted` is "", return the only running or prepared job.

    If `wanted` is "" and no job is running or prepared, the result is None. Raises BadInput with a
    list of jobs if no job is named `wanted`. Also raises BadInput if `wanted` is "" and several
    jobs are running or prepared.

    Args: `jobs` from `merge`; `lost` the hosts that did not answer.
    """
    alive = [job for job in jobs if job["state"] in ("running", "prepared")]
    if not wanted:
        if len(alive) > 1:
            raise BadInput(
                "%d jobs are running or prepared: name a job with -e job=<id>\n%s"
                % (len(alive), "\n".join(table(alive)))
            )
        return alive[0] if alive else None
    found = next((job for job in jobs if job["job"] == wanted), None)
    if found is None:
        names = [job["job"] for job in jobs]
        raise BadInput(
            "job='%s' is on no node %s%s: %s"
            % (
                wanted,
                "that answered (no answer from %s)" % some(sorted(lost))
                if lost
                else "of the inventory",
                did_you_mean(wanted, names),
                "name one of these jobs\n" + "\n".join(table(jobs))
                if jobs
                else "correct the job id or the inventory, or make the other nodes reachable"
                if lost
                else "these nodes have no job. If the job ran on other nodes, give the inventory "
                "of those nodes with -i",
            )
        )
    return found


def choose_to_stop(
    jobs: List[Json], wanted: str, every: bool, lost: Sequence[str] = ()
) -> List[Json]:
    """Return the jobs to end: the job named `wanted`, or with `every` all running or prepared jobs.

    Raises BadInput if no job is named `wanted`. Also raises BadInput if the caller gives both
    `wanted` and `every`, or neither. The user must name even the only running job, because this job
    may belong to another user.

    Args: `jobs` from `merge`; `lost` the hosts that did not answer.
    """
    alive = [job for job in jobs if job["state"] in ("running", "prepared")]
    if wanted and every:
        raise BadInput(
            "job='%s' and all=true are both set: give either -e job=<id> or -e all=true" % wanted
        )
    if every:
        return alive
    if not wanted:
        raise BadInput(
            "stop.yml needs the id of a job: give -e job=<id>, or -e all=true for all of these "
            "running and prepared jobs\n%s" % "\n".join(table(alive))
            if alive
            else "no job is running or prepared on the nodes%s: list the ended jobs with status.yml"
            % (" that answered (no answer from %s)" % some(sorted(lost)) if lost else "")
        )
    found = choose(jobs, wanted, lost)
    return [found] if found else []


def parts(chosen: Iterable[Json]) -> Dict[str, List[str]]:
    """Return {host: ids of the `chosen` jobs with a part on this host}.

    Args: `chosen` jobs from `merge`.
    """
    found = {}  # type: Dict[str, List[str]]
    for job in chosen:
        for host, state in job["nodes"].items():
            if state not in ("missing", "not asked"):
                found.setdefault(host, []).append(job["job"])
    return found


def table(jobs: List[Json], now: Optional[float] = None) -> List[str]:
    """Return a table of `jobs` as text lines: headings, then a row and indented notes for each job.

    Args: `jobs` from `merge`; `now` in unix seconds (default: the clock).
    """
    if not jobs:
        return ["no job has run on these nodes"]
    rows = [HEADINGS] + [_row(job, now) for job in jobs]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows
    ]
    result = lines[:1]
    for job, text in zip(jobs, lines[1:]):
        result += [text] + ["    " + note for note in _notes(job)]
    return [verdict.printable(text) for text in result]


def _row(job: Json, now: Optional[float]) -> Tuple[str, ...]:
    ports = sorted({int(port) for held in job["holds"].values() for port in held["ports"]})
    gpus = [
        "%s:%s" % (host, ",".join(map(str, held["gpus"])))
        for host, held in sorted(job["holds"].items())
        if held["gpus"]
    ]
    state: str = job["state"]
    state = STATES.get(state, state) + (
        ", detached" if job["detached"] and job["state"] == "running" else ""
    )
    return (
        job["job"],
        state,
        _ago(job["started"], now),
        job["kv"] or "-",
        str(len(job["nodes"])),
        "-" if not ports else "%d-%d" % (ports[0], ports[-1]) if len(ports) > 1 else str(ports[0]),
        _some(gpus) or "-",
    )


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
    return " ".join(names[:NAMED]) + (
        " and %d more" % (len(names) - NAMED) if len(names) > NAMED else ""
    )


def _ago(when: Optional[float], now: Optional[float]) -> str:
    return (
        "-"
        if when is None
        else verdict.clock(max(0.0, (time.time() if now is None else now) - when)) + " ago"
    )


def agreed(plans: Dict[str, Any], job: str) -> Any:
    """Return the plan of the job `job` from `plans`, {host: plan that this host keeps}.

    Each node keeps the plan of the whole job, and the training user can write to this copy. Raises
    BadInput if `plans` is empty, a plan has too many levels, or the plans differ. The message names
    the hosts of each plan, and proposes to leave out the hosts of the rarest plan.
    """
    for host, plan in sorted(plans.items()):
        try:
            free_json(plan)
        except shapes.Wrong as wrong:
            raise _invalid(job, wrong.inside(host)) from None
    parties = grouped(
        (json.dumps(plan, sort_keys=True), host) for host, plan in sorted(plans.items())
    )
    if not parties:
        raise BadInput(
            "no node returns the plan of the job %s: end the job with stop.yml -e job=%s"
            % (job, job)
        )
    if len(parties) > 1:
        few = min(parties.values(), key=len)
        raise BadInput(
            "the nodes hold different plans of the job %s: one plan is on %s. Find the program "
            "that changed plan.json in the job folder. Then continue the job with -e without=%s, "
            "or end the job with stop.yml -e job=%s"
            % (
                job,
                ", another plan on ".join(", ".join(hosts) for hosts in parties.values()),
                ",".join(few),
                job,
            )
        )
    return plans[min(plans)]


def adopt(plan: object, job: str, asked: Dict[str, Optional[Json]]) -> Plan:
    """Return the plan with which this controller continues a job of another controller.

    The paths of this controller's inventory replace the paths of the plan. The paths decide which
    program runs on a node, and the training user can change the plan in a job folder.

    Args: `plan` the plan that the nodes hold; `job` the job's id; `asked` {host: {"python",
    "jobs_dir"}}, the paths of this controller's inventory. The value is None for a host that has
    not answered, and this host gets empty paths. Raises BadInput if the plan is invalid, or if the
    plan names a host that `asked` lacks.
    """
    try:
        known = Plan.checked(plan)
        if known.job != job:
            raise shapes.Wrong("the requested job %s" % job, known.job, ".job")
    except shapes.Wrong as wrong:
        raise _invalid(job, wrong) from None
    options = dict(
        known.options,
        lease=float(known.options["lease"]),
        step_ms=float(known.options.get("step_ms") or 0),
        plan_only=False,
    )
    strangers = [host for host in sorted(known.nodes) if host not in asked]
    if strangers:
        raise BadInput(
            "the job %s has a part on %s, which this inventory lacks: give the job's inventory "
            "with -i" % (job, ", ".join(strangers))
        )
    nodes = {
        host: node.replaced(
            python=paths["python"] if paths else "",
            job_dir=posixpath.join(paths["jobs_dir"], job) if paths else "",
        )
        for host, node in known.nodes.items()
        for paths in [asked[host]]
    }
    return known.replaced(options=options, nodes=nodes)


def _invalid(job: str, wrong: shapes.Wrong) -> BadInput:
    """Return the error for a plan of `job` that has not its shape."""
    return BadInput(
        "the plan of the job %s on its nodes is invalid: %s: end the job with stop.yml -e job=%s"
        % (job, wrong, job)
    )


def told_of_logs(job: str, logs: Dict[str, Optional[Dict[str, List[str]]]]) -> List[str]:
    """Return the last lines of all logs of a job as text lines.

    Args: `job` the job's id; `logs` {host: {log name: [line, ...]}, None for a host without logs}.
    Raises BadInput if `job` is "".
    """
    if not job:
        raise BadInput(
            "no job runs on these nodes: name an ended job with -e job=<id>. status.yml lists the "
            "ids"
        )
    lines = ["LOGS      of the job %s" % job]
    for host, of_host in sorted(logs.items()):
        for name, entries in sorted((of_host or {}).items()):
            lines += [
                verdict.printable("  %s/%s | %s" % (host, name, entry))
                for entry in entries or ["(nothing)"]
            ]
    return lines if len(lines) > 1 else lines + ["  no node has a log of this job"]


def told_of_stops(
    jobs: List[Json], stopped: Dict[str, Dict[str, Optional[Json]]], check: bool
) -> Dict[str, Any]:
    """Return {"text": [line, ...], "ok": bool}, the joined results of `told_of_stop` for `jobs`.

    Args: `jobs` from `merge`; `stopped` {job id: {host: result of the command stop on this host,
    None without a result}}; `check` True for a dry run.
    """
    if not jobs:
        return {"text": ["OK        no job runs on these nodes"], "ok": True}
    told = [told_of_stop(job, stopped.get(job["job"], {}), check) for job in jobs]
    return {
        "text": [line for one in told for line in one["text"]],
        "ok": all(one["ok"] for one in told),
    }


def told_of_stop(job: Json, stopped: Dict[str, Optional[Json]], check: bool) -> Dict[str, Any]:
    """Return {"text": [line, ...], "ok": bool}, the result of stop.yml for one job.

    "ok" is True if no node has a leftover of the job, and every node that may run the job has a
    result. In a dry run "ok" is always True.

    Args: `job` from `merge`; `stopped` {host: result of the command stop on this host, None without
    a result}; `check` True for a dry run.
    """
    ran = [host for host, answer in stopped.items() if (answer or {}).get("ran")]
    looked = {
        host: answer["left"]
        for host, answer in stopped.items()
        if answer and isinstance(answer.get("left"), list)
    }
    left = any(looked.values())
    lost = [
        host
        for host, state in job["nodes"].items()
        if state == "not asked" or state == "running" and stopped.get(host) is None
    ]
    if check:
        running = [host for host, state in job["nodes"].items() if state == "running"]
        return {
            "text": [
                "CHECK     the job %s %s"
                % (
                    job["job"],
                    "would be ended on " + _some(running)
                    if running
                    else "does not run, so stop.yml would do nothing",
                )
            ],
            "ok": True,
        }
    text = [
        "%s the job %s %s"
        % (
            "FAILED   " if left or lost else "OK       ",
            job["job"],
            "has been ended on " + _some(ran) if ran else "had ended already",
        )
    ]
    if looked:
        text += verdict.told_of_left(
            [host for host, state in job["nodes"].items() if state not in ("missing", "not asked")],
            looked,
        )
    text += [
        "not asked %s: the job may still run on this node. Make the node reachable, then run "
        "stop.yml again" % host
        for host in lost
    ]
    return {"text": text, "ok": not left and not lost}


def told_of_detached(job: str, inventory: str) -> List[str]:
    """Return text lines with the commands for a job that runs without a controller.

    Args: `job` the job's id; `inventory` the argument of -i in these commands, "" for no -i.
    """
    return [
        "STARTED   job %s, which runs without a controller. These commands work on any controller "
        "with this inventory:" % job
    ] + _commands(job, inventory)


def told_of_interrupted(job: str, lease: Optional[float], inventory: str) -> List[str]:
    """Return text lines about a job whose controller was interrupted.

    Args: `job` the job's id; `lease` of the job in seconds, None without one; `inventory` as in
    `told_of_detached`.
    """
    end = (
        "It has no lease, so it runs to its end."
        if lease is None
        else "Its lease ends the job %g to %g s after the last poll. Attaching renews the lease, "
        "or brings the results." % (lease, 2 * lease)
    )
    return ["LEFT      job %s, which still runs on its nodes. %s" % (job, end)] + _commands(
        job, inventory
    )


def _commands(job: str, inventory: str) -> List[str]:
    """Return text lines with the commands that look at a job, attach to it and end it."""
    with_inventory = "ansible-playbook %s" % ("-i %s " % inventory if inventory else "")
    return [
        "look      %sstatus.yml" % with_inventory,
        "attach    %strain.yml -e attach=%s" % (with_inventory, job),
        "logs      %slogs.yml -e job=%s" % (with_inventory, job),
        "end       %sstop.yml -e job=%s" % (with_inventory, job),
    ]


def as_json(jobs: Iterable[Json], lost: Iterable[str], waiting: Dict[str, str]) -> str:
    """Return the job list as one line of JSON.

    The line is {"jobs": [job, ...], "not_asked": [host, ...], "restart_needed": {host: reason}}.

    Args: `jobs` from `merge`; `lost` the hosts without a job list; `waiting` {host: the reason of
    the restart that its driver needs}.
    """
    told = {"jobs": list(jobs), "not_asked": sorted(lost), "restart_needed": waiting}
    return json.dumps(told, sort_keys=True)
