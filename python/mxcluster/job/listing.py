"""List the jobs of all nodes, choose a job, and adopt the plan of a job.

The training user can write to the job folders, so the content of a job folder is untrusted input.
"""

import json
import posixpath
import time
from typing import Container, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from mxcluster.errors import BadInput, did_you_mean, refuse, shown, some
from mxcluster.job import live_line, verdict_text
from mxcluster.job.verdict import first_failure
from mxcluster.lists import aligned, grouped
from mxcluster.model import shapes
from mxcluster.model.answers import JobEntry, JobList, JobState
from mxcluster.model.listing import Held, JobUse, JobWait, ListedJob
from mxcluster.model.plan import Plan
from mxcluster.model.ticket import Ticket

JobLists = Mapping[str, Optional[JobList]]  # {host: its job list, None without a list}

HEADINGS = ("job", "state", "started", "kv", "nodes", "ports", "GPUs")
# The columns of what running jobs use: heading, field of JobUse, form and factor of its value. The
# table has them if a meter has figures, those of GPUs for jobs with GPUs.
USES = (
    ("CPU", "cpu", "%.1f cores", 1.0),
    ("memory", "memory", "%.1f GB", 1e-9),
    ("received", "received", "%.1f MB/s", 1e-6),
    ("GPU use", "gpus", "%.0f %%", 100.0),
    ("GPU memory", "gpu_memory", "%.1f GB", 1e-9),
)
NOT_MEASURED = "not measured"
STATES = {"lease": "lease ran out"}  # {state: text in the table}, if the state's name is unclear
# A job has the first of these states that a node has.
_ORDER = "running failed peer lease shutdown stopped engine broken prepared waiting".split()
ABSENT = ("missing", "not asked")  # the states of a node without a known part of a job
OTHER_LOGS = ("agent", "rendezvous", "mpirun")  # logs of programs besides the processes of a plan
NAMED = 6  # maximum number of hosts that a line names


class Paths(NamedTuple):
    """The paths of this controller's inventory on a node."""

    python: str
    jobs_dir: str


def merge(answers: JobLists, now: Optional[float] = None) -> List[ListedJob]:
    """Return the jobs of all nodes.

    Running jobs come first, then waiting jobs in the order of their queue, then all other jobs.
    Newer jobs come before older jobs.

    Args: `now` in unix seconds (default: the clock).
    """
    parts: Dict[str, Dict[str, JobEntry]] = {}
    for host, answer in sorted(answers.items()):
        for entry in answer.jobs if answer else ():
            parts.setdefault(entry.job, {})[host] = entry
        # Root lists the running units, so this list overrides the job list of the training user.
        for name in (answer and answer.units) or ():
            known = parts.setdefault(name, {}).get(host) or JobEntry(job=name, state="ended")
            if known.state in ("ended", "prepared"):
                parts[name][host] = known.replaced(state="running", reason=None, ended=None)
    found = [_job(name, entries, answers, now) for name, entries in parts.items()]
    found += _waiting(answers, set(parts))
    return sorted(found, key=_place, reverse=True)


def _place(job: ListedJob) -> Tuple[bool, bool, float, str]:
    """Return the place of a job in the list, the highest first."""
    when = -job.waits.since if job.waits else job.started or 0
    return job.state == "running", job.waits is not None, when, job.job


def _waiting(answers: JobLists, started: Container[str]) -> List[ListedJob]:
    """Return the jobs that have only tickets. Args: `started` the ids of the other jobs."""
    tickets: Dict[str, Dict[str, Ticket]] = {}
    for host, answer in sorted(answers.items()):
        for ticket in answer.waiting if answer else ():
            if ticket.job not in started:
                tickets.setdefault(ticket.job, {})[host] = ticket
    return [
        ListedJob(
            job=name,
            kv=None,
            state="waiting",
            detached=False,
            started=None,
            ended=None,
            nodes=dict.fromkeys(of_hosts, "waiting"),
            holds={},
            progress=None,
            first_failure=None,
            waits=JobWait(
                since=min(ticket.since for ticket in of_hosts.values()),
                after=max(ticket.after for ticket in of_hosts.values()),
                reasons=[line for ticket in of_hosts.values() for line in ticket.reasons],
            ),
        )
        for name, of_hosts in tickets.items()
    ]


def _job(
    name: str, entries: Mapping[str, JobEntry], answers: JobLists, now: Optional[float]
) -> ListedJob:
    """Return the job `name` for `merge`.

    Args: `entries` {host: summary of the job by this host}; `answers` and `now` as for `merge`.
    """
    members = set(entries).union(*(entry.nodes for entry in entries.values()))
    nodes = {host: _state(entries.get(host), answers.get(host)) for host in sorted(members)}
    running = {host: entry for host, entry in entries.items() if entry.is_running}
    states = {
        host: JobState(status=entry.status, progress=entry.progress).of_host(host)
        for host, entry in entries.items()
    }
    started = [entry.started for entry in entries.values() if entry.started]
    ended = [entry.ended for entry in entries.values() if entry.ended]
    state, progress, failure = _whole(nodes), None, None
    if running:
        progress = live_line.line({host: states[host] for host in running}, now=now)
    if state not in ("done", "prepared"):
        failure = first_failure(one.status for one in states.values() if one.status)
    return ListedJob(
        job=name,
        kv=next((entry.kv for entry in entries.values() if entry.kv), None),
        state=state,
        detached=any(entry.lease == 0 for entry in entries.values()),
        started=min(started, default=None),
        ended=None if running else max(ended, default=None),
        nodes=nodes,
        holds={host: Held(ports=entry.ports, gpus=entry.gpus) for host, entry in running.items()},
        progress=progress,
        first_failure=failure,
        saves=any(entry.saves for entry in entries.values()),
        savers=[host for host, entry in sorted(running.items()) if entry.completes],
        use=_use(list(running.values())),
    )


def _use(entries: Sequence[JobEntry]) -> Optional[JobUse]:
    """Return what a job uses, from the summaries of the nodes where it runs. None without figures.

    A sum has the known figures.
    """
    nodes = [entry.usage for entry in entries if entry.usage]
    used = [latest.usage for entry in entries for latest in entry.progress.values() if latest.usage]
    if not nodes and not used:
        return None
    gpus = [use for node in nodes for use in node.gpus.values()]
    return JobUse(
        cpu=_sum(one.cpu for one in used),
        memory=_sum(one.memory for one in used),
        gpu_memory=_sum(one.gpu_memory for one in used),
        received=_sum(node.received for node in nodes),
        gpus=sum(gpus) / len(gpus) if gpus else None,
    )


def _sum(values: Iterable[Optional[float]]) -> Optional[float]:
    known = [value for value in values if value is not None]
    return float(sum(known)) if known else None


def _state(entry: Optional[JobEntry], answer: Optional[JobList]) -> str:
    """Return the state of one node in a job; `ListedJob` lists the states.

    Args: `entry` the node's summary of the job, None without a summary; `answer` the node's whole
    job list, None without a list.
    """
    if entry is None:
        return "not asked" if answer is None else "missing"
    return str(entry.reason) if entry.state == "ended" else entry.state


def _whole(nodes: Mapping[str, str]) -> str:
    """Return the state of a job, see `ListedJob`, from the states `nodes`, {host: state}."""
    states = set(nodes.values())
    for state in _ORDER:
        if state in states:
            return "failed" if state == "peer" else state
    return "done" if "done" in states and not states - {"done", "not asked"} else "incomplete"


def choose(jobs: Sequence[ListedJob], job_id: str, lost: Sequence[str] = ()) -> Optional[ListedJob]:
    """Return the job named `job_id`. If `job_id` is "", return the only running or prepared job.

    If `job_id` is "" and no job is running or prepared, the result is None. Raises BadInput with a
    list of jobs if no job is named `job_id`. Also raises BadInput if `job_id` is "" and several
    jobs are running or prepared, and for a waiting job.

    Args: `lost` the hosts that did not answer.
    """
    alive = [job for job in jobs if job.state in ("running", "prepared")]
    if not job_id:
        if len(alive) > 1:
            raise BadInput(
                "%d jobs are running or prepared: name a job with -e job=<id>\n%s"
                % (len(alive), "\n".join(table(alive)))
            )
        return alive[0] if alive else None
    found = next((job for job in jobs if job.job == job_id), None)
    if found is None:
        names = [job.job for job in jobs]
        raise BadInput(
            "job='%s' is on no node %s%s: %s"
            % (
                job_id,
                "that answered (no answer from %s)" % some(sorted(lost))
                if lost
                else "of the inventory",
                did_you_mean(job_id, names),
                "name one of these jobs\n" + "\n".join(table(jobs))
                if jobs
                else "correct the job id or the inventory, or make the other nodes reachable"
                if lost
                else "these nodes have no job. If the job ran on other nodes, give the inventory "
                "of those nodes with -i",
            )
        )
    if found.waits:
        raise BadInput(
            "the job %s waits, and has no process and no log yet: end the wait with Ctrl-C in its "
            "train.yml, or wait for the start" % found.job
        )
    return found


def running(job: Optional[ListedJob]) -> ListedJob:
    """Return the selected `job`, which is None without one.

    Raises BadInput if no job is selected, or if the job does not run.
    """
    if job is None:
        raise BadInput("no job runs on these nodes: start a job with train.yml")
    if job.state != "running":
        raise BadInput(
            "the job %s does not run (%s): name a running job with -e job=<id>. The logs of an "
            "ended job have the stack traces of stalled processes: logs.yml -e job=%s"
            % (job.job, STATES.get(job.state, job.state), job.job)
        )
    return job


def refuse_strangers(job: str, answers: JobLists, names: Sequence[str]) -> None:
    """Raise BadInput if a name in `names` is no log of the job `job`.

    The job lists name the processes of a started job. Those of a batch job begin with a node, and
    the nodes of a job before its start name none, so the function then accepts each name.
    """
    known = set(OTHER_LOGS)
    for answer in answers.values():
        for entry in answer.jobs if answer else ():
            if entry.job == job and entry.status and not entry.status.batch:
                known.update(entry.status.parts())
    if known == set(OTHER_LOGS):
        return
    for name in names:
        if name not in known:
            raise BadInput(
                "only=%s is refused: the job %s has no process of this name%s. Its processes: %s"
                % (
                    shown(name),
                    job,
                    did_you_mean(name, known),
                    some(sorted(known - set(OTHER_LOGS))),
                )
            )


def choose_to_stop(
    jobs: Sequence[ListedJob], job_id: str, every: bool, lost: Sequence[str] = ()
) -> List[ListedJob]:
    """Return the jobs to end: the job named `job_id`, or with `every` all running or prepared jobs.

    Raises BadInput if no job is named `job_id`. Also raises BadInput if the caller gives both
    `job_id` and `every`, or neither. The user must name even the only running job, because this job
    may belong to another user.

    Args: `lost` the hosts that did not answer.
    """
    alive = [job for job in jobs if job.state in ("running", "prepared")]
    if job_id and every:
        raise BadInput(
            "job='%s' and all=true are both set: give either -e job=<id> or -e all=true" % job_id
        )
    if every:
        return alive
    if not job_id:
        raise BadInput(
            "stop.yml needs the id of a job: give -e job=<id>, or -e all=true for all of these "
            "running and prepared jobs\n%s" % "\n".join(table(alive))
            if alive
            else "no job is running or prepared on the nodes%s: list the ended jobs with status.yml"
            % (" that answered (no answer from %s)" % some(sorted(lost)) if lost else "")
        )
    found = choose(jobs, job_id, lost)
    return [found] if found else []


def savers(chosen: Iterable[ListedJob]) -> Dict[str, List[str]]:
    """Return {host: ids of the running jobs of `chosen` whose checkpoints this host completes}.

    Raises BadInput for a running job that saves no checkpoints, or whose worker 0 is on no node
    that answered. Several workers of a script may save on several nodes.
    """
    found = {}  # type: Dict[str, List[str]]
    problems = []
    for job in chosen:
        if job.state != "running":  # nothing to save
            continue
        if not job.saves:
            problems.append(
                "save=true is refused for the job %s, which has saved no checkpoint: its program "
                "has no savemodel, or its script has saved nothing in $MXCLUSTER_CHECKPOINTS yet. "
                "All its training would be lost. To stop it nevertheless, leave save out" % job.job
            )
        elif not job.savers:
            problems.append(
                "save=true is refused for the job %s, because the node of its worker 0 does not "
                "answer: make the node reachable, or leave save out" % job.job
            )
        for host in job.savers:
            found.setdefault(host, []).append(job.job)
    refuse(problems)
    return found


def parts(chosen: Iterable[ListedJob]) -> Dict[str, List[str]]:
    """Return {host: ids of the `chosen` jobs with a part on this host}."""
    found = {}  # type: Dict[str, List[str]]
    for job in chosen:
        for host, state in job.nodes.items():
            if state not in ABSENT:
                found.setdefault(host, []).append(job.job)
    return found


def table(jobs: Sequence[ListedJob], now: Optional[float] = None) -> List[str]:
    """Return a table of `jobs` as text lines: headings, then a row and indented notes for each job.

    Args: `now` in unix seconds (default: the clock).
    """
    if not jobs:
        return ["no job has run on these nodes"]
    columns = [column for column in USES if any(_shown(job, column[1]) for job in jobs)]
    headings = (*HEADINGS, *(column[0] for column in columns))
    rows = [(*_row(job, now), *(_cell(job, *column[1:]) for column in columns)) for job in jobs]
    lines = aligned([headings, *rows])
    result = lines[:1]
    for job, text in zip(jobs, lines[1:]):
        result += [text] + ["    " + note for note in _notes(job, now)]
    return [verdict_text.printable(text) for text in result]


def _row(job: ListedJob, now: Optional[float]) -> Tuple[str, ...]:
    ports = sorted({int(port) for held in job.holds.values() for port in held.ports})
    gpus = [
        "%s:%s" % (host, ",".join(map(str, held.gpus)))
        for host, held in sorted(job.holds.items())
        if held.gpus
    ]
    is_detached = job.detached and job.state == "running"
    return (
        job.job,
        STATES.get(job.state, job.state) + (", detached" if is_detached else ""),
        _ago(job.started, now),
        job.kv or "-",
        str(len(job.nodes)),
        "-" if not ports else "%d-%d" % (ports[0], ports[-1]) if len(ports) > 1 else str(ports[0]),
        some_hosts(gpus) or "-",
    )


def _shown(job: ListedJob, name: str) -> bool:
    """Return True if the job has a cell for the field `name` of JobUse."""
    return job.use is not None and (
        "gpu" not in name or any(one.gpus for one in job.holds.values())
    )


def _cell(job: ListedJob, name: str, form: str, factor: float) -> str:
    """Return the cell for the field `name` of JobUse, with its form and factor."""
    if not job.use or not _shown(job, name):
        return "-"
    value = vars(job.use)[name]
    return NOT_MEASURED if value is None else form % (factor * value)


def _wait(wait: JobWait, now: Optional[float]) -> str:
    """Return the note about a wait: since when, and for what."""
    what = "the end of the job %s" % wait.after if wait.after else "room"
    reasons = "; ".join(wait.reasons[:NAMED]) if not wait.after else ""
    return "began to wait for %s %s%s" % (what, _ago(wait.since, now), reasons and ": " + reasons)


def _notes(job: ListedJob, now: Optional[float]) -> List[str]:
    notes = [job.progress] if job.progress else []
    if job.waits:
        notes.append(_wait(job.waits, now))
    if job.first_failure:
        notes.append(verdict_text.sentence(job.first_failure))
    for state in ("broken", "missing", "not asked", "prepared"):
        hosts = [host for host, of_node in job.nodes.items() if of_node == state]
        if hosts and (state != "prepared" or job.state != "prepared"):
            notes.append("%s: %s" % (state, some_hosts(hosts)))
    return notes


def some_hosts(names: Sequence[str]) -> str:
    """Return at most NAMED names as text, with the number of the omitted names."""
    more = len(names) - NAMED
    return " ".join(names[:NAMED]) + (" and %d more" % more if more > 0 else "")


def _ago(when: Optional[float], now: Optional[float]) -> str:
    return (
        "-"
        if when is None
        else verdict_text.clock(max(0.0, (time.time() if now is None else now) - when)) + " ago"
    )


def agreed(plans: Mapping[str, object], job: str) -> object:
    """Return the plan of the job `job` from `plans`, {host: plan that this host keeps}.

    Each node keeps the plan of the whole job, and the training user can write to this copy. Raises
    BadInput if `plans` is empty, or the plans differ. The message names the hosts of each plan, and
    proposes to leave out the hosts of the rarest plan. `answers.WholePlan` limits the levels.
    """
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


def adopt(plan: object, job: str, places: Mapping[str, Optional[Paths]]) -> Plan:
    """Return the plan with which this controller continues a job of another controller.

    The paths of this controller's inventory replace the paths of the plan. The paths decide which
    program runs on a node, and the training user can change the plan in a job folder.

    Args: `plan` the plan that the nodes hold; `job` the job's id; `places` {host: its Paths}. The
    value is None for a host that has not answered, and this host gets empty paths. Raises BadInput
    if the plan is invalid, or if the plan names a host that `places` lacks.
    """
    try:
        known = Plan.checked(plan)
        if known.job != job:
            raise shapes.Wrong("the requested job %s" % job, known.job, ".job")
    except shapes.Wrong as wrong:
        raise BadInput(
            "the plan of the job %s on its nodes is invalid: %s: end the job with stop.yml -e "
            "job=%s" % (job, wrong, job)
        ) from None
    strangers = [host for host in sorted(known.nodes) if host not in places]
    if strangers:
        raise BadInput(
            "the job %s has a part on %s, which this inventory lacks: give the job's inventory "
            "with -i" % (job, ", ".join(strangers))
        )
    nodes = {
        host: node.replaced(
            python=own.python if own else "",
            job_dir=posixpath.join(own.jobs_dir, job) if own else "",
        )
        for host, node in known.nodes.items()
        for own in [places[host]]
    }
    return known.replaced(options=known.options.replaced(plan_only=False), nodes=nodes)
