"""Merge the job lists of the nodes on the controller, and select jobs or write lines about them.

The plugin writes only the file of the command status, in check mode too.
"""

import os
import time
from typing import Callable, Dict, List, Mapping, Optional, Sequence, Type

from mxcluster.ansible import arguments, attempts, controller_task
from mxcluster.ansible.controller_task import ControllerTask
from mxcluster.ansible.edge import TaskResult
from mxcluster.ansible.hooks import hooks
from mxcluster.cluster import driver, node_records
from mxcluster.errors import BadInput
from mxcluster.file_io import replace
from mxcluster.job import cleaning, job_messages, kept_runs, listing
from mxcluster.job.plan import packed
from mxcluster.job.plan.inputs import results_folder
from mxcluster.job.report import history
from mxcluster.launchers import LAUNCHERS
from mxcluster.model.answers import JobList, Progress, Removed
from mxcluster.model.answers import Stacks as StackTraces
from mxcluster.model.answers import Stopped as StopAnswer
from mxcluster.model.hooks import NO_HOOKS, GivenHooks, Hooks
from mxcluster.model.job_knobs import MOST_SECONDS, note_of_run, tag_of_run
from mxcluster.model.listing import ListedJob
from mxcluster.model.record import Record, field, record
from mxcluster.model.shapes import anything, each, optional, table, unix_time
from mxcluster.model.verdict import MOST
from mxcluster.model.written import duration

MOST_AGE = 520 * 604800.0  # seconds, ten years
OfHosts = Mapping[str, Optional[TaskResult]]  # of mxcluster_node, empty without a result


class Arguments(Record, strict=True, kind_key="command"):
    """The arguments of each command."""


class OfNodes(Arguments):
    """The arguments of each command that reads the job lists."""

    answers: OfHosts = field(arguments.by_host, default={})
    """{host: result of mxcluster_node command=jobs}."""

    @property
    def lists(self) -> listing.JobLists:
        """{host: job list, None without a list}."""
        return {
            host: JobList.decode(answer) if has_list(answer) else None
            for host, answer in self.answers.items()
        }

    @property
    def lost(self) -> List[str]:
        """The hosts without a job list."""
        return [host for host, answer in self.lists.items() if answer is None]

    @property
    def jobs(self) -> List[ListedJob]:
        """The jobs of all nodes."""
        return listing.merge(self.lists)


class Status(OfNodes, kind="status"):
    """List all jobs, and write the list as JSON."""

    json: bool = field(arguments.flag, default=False)
    """True if the task prints one line of JSON in place of the table."""
    path: str = field(arguments.path)
    """The file for the JSON."""
    records_dir: str = field(arguments.path)
    """The folder of the node records."""


class Choose(OfNodes, kind="choose"):
    """Select a job."""

    job: str = field(arguments.text, default="")
    """Empty for the only running job."""
    only: Sequence[str] = field(arguments.texts, default=[])
    """The names of processes of the job, [] for all."""
    running: bool = field(arguments.flag, default=False)
    """True if the job must run."""
    follow: bool = field(arguments.flag, default=False)
    """True if the next play follows the logs of the job."""


class ChooseToStop(Choose, kind="choose_to_stop"):
    """Select the jobs to stop."""

    all: bool = field(arguments.flag, default=False)
    """True if the task selects all active jobs."""
    save: bool = field(arguments.flag, default=False)
    """True if the jobs end after their next checkpoint."""
    save_timeout: float = field(duration(1, MOST_SECONDS), default=600.0)
    """The longest wait for these checkpoints, in seconds."""


class Adopt(OfNodes, kind="adopt"):
    """Return the plan of a job from the copies on the nodes."""

    job: str = field(arguments.text)
    without: Sequence[str] = field(arguments.texts, default=[])
    """The nodes whose copies do not count."""
    results: OfHosts = field(arguments.by_host)
    """{host: result of mxcluster_node command=plan}."""
    records_dir: str = field(arguments.path)
    """A folder in the controller's state folder."""
    runs_dir: object = field(anything)
    """The knob runs_dir as the user gave it."""
    hooks: GivenHooks = field(record(GivenHooks), default=NO_HOOKS)
    """The knobs of the site's hooks as the user gave them."""
    cwd: str = field(arguments.path, default="")
    """The folder at which the user's relative paths begin."""


class Logs(Choose, kind="logs"):
    """Return the last lines of a job's logs, or the end of a job whose logs a play has followed."""

    results: OfHosts = field(arguments.by_host)
    """{host: result of mxcluster_node command=logs}."""


class Stacks(Choose, kind="stacks"):
    """Return the stack traces of a job's processes."""

    results: OfHosts = field(arguments.by_host)
    """{host: result of mxcluster_node command=stacks}."""


class Stopped(OfNodes, kind="stopped"):
    """Describe stopped jobs."""

    stopping: Sequence[str] = field(arguments.texts, default=[])
    """The ids of the jobs, from the command choose_to_stop."""
    results: OfHosts = field(arguments.by_host)
    """{host: result of a loop of mxcluster_node command=stop over ids}."""
    saves: OfHosts = field(arguments.by_host, default={})
    """{host: result of a loop of mxcluster_node command=status over the results of an earlier loop
    of this command over ids}."""


class Detached(Arguments, kind="detached"):
    """Name the commands for a detached job."""

    job: str = field(arguments.text)
    inventory: str = field(arguments.text, default="")
    """The argument of -i, or empty for the default inventory."""


class ChooseToClean(OfNodes, kind="choose_to_clean"):
    """Select the old jobs and runs to remove."""

    older_than: float = field(duration(1, MOST_AGE, bare=False))
    """The least age since the end of a job, in seconds."""
    records_dir: str = field(arguments.path)
    """A folder in the controller's state folder."""
    runs_dir: object = field(anything)
    """The knob runs_dir as the user gave it."""


class Clean(Arguments, kind="clean"):
    """Remove old runs, after the nodes have removed the folders of old jobs."""

    parts: Mapping[str, Sequence[str]] = field(table(arguments.text, arguments.texts, MOST))
    runs: Sequence[str] = field(arguments.texts)
    kept: Sequence[str] = field(arguments.texts)
    runs_dir: str = field(arguments.path)
    """These four are the result of the command choose_to_clean."""
    results: OfHosts = field(arguments.by_host)
    """{host: result of mxcluster_node command=remove}."""


class Runs(Arguments, kind="runs"):
    """List the runs in the results folder, and write their page."""

    find: str = field(arguments.text, default="")
    """Words that each row must contain."""
    lines: int = field(arguments.whole(1, 100000), default=20)
    """The maximum number of rows."""
    job: str = field(arguments.text, default="")
    """The id of the only run in the list, which may get a tag and a note; empty for all runs."""
    tag: Optional[str] = field(optional(tag_of_run), default=None)
    note: Optional[str] = field(optional(note_of_run), default=None)
    """The new tag and note; None to keep the former ones."""
    records_dir: str = field(arguments.path)
    """A folder in the controller's state folder."""
    runs_dir: object = field(anything)
    """The knob runs_dir as the user gave it."""


class Jobs(controller_task.Result):
    """All jobs."""

    jobs: Sequence[ListedJob] = field(each(record(ListedJob)))


class Chosen(controller_task.Result):
    """The selected job."""

    job: Optional[ListedJob] = field(optional(record(ListedJob)))
    """None without a named and without a running job."""
    parts: Mapping[str, Sequence[str]] = field(anything, default={})
    """{host: ids of the selected jobs with a part on this host}."""
    only: Sequence[str] = field(arguments.texts, default=[])
    follow: bool = field(arguments.flag, default=False)
    """These two are those of the arguments."""


class ChosenToStop(controller_task.Result):
    """The jobs to stop."""

    saving: Mapping[str, Sequence[str]] = field(anything)
    """{host: ids of the jobs whose next checkpoint this host completes before the stop}."""
    save_until: float = field(unix_time)
    """The end of the wait for these checkpoints."""

    stopping: Sequence[str] = field(arguments.texts)
    """The ids of the jobs."""
    parts: Mapping[str, Sequence[str]] = field(anything)
    """As for Chosen."""


class ToClean(controller_task.Result):
    """The old jobs and runs to remove."""

    parts: Mapping[str, Sequence[str]] = field(anything)
    """As for Chosen."""
    runs: Sequence[str] = field(arguments.texts)
    """The ids of the jobs whose run folders go."""
    kept: Sequence[str] = field(arguments.texts)
    """A line for each old job or run that stays."""
    runs_dir: str = field(arguments.text)


class Ended(controller_task.Result):
    """The state of the stopped jobs, or the result of clean.yml."""

    ok: bool = field(arguments.flag)
    """True if all nodes of the jobs have answered and have no leftovers, or have removed all."""


class Adopted(controller_task.Result, packed.Summary):
    """The plan with the paths of this controller. A node without a job list has empty paths."""

    answering: Sequence[str] = field(arguments.texts)
    """The nodes of the job with a job list."""
    run_dir: str = field(arguments.text)
    """The run folder of the job on the controller."""
    hooks: Hooks = field(record(Hooks))


def has_list(answer: Optional[TaskResult]) -> bool:
    """Return True if the result of the command jobs has a job list."""
    return isinstance((answer or {}).get("jobs"), list)


def successes(results: OfHosts) -> Dict[str, TaskResult]:
    """Return the results that are no failure."""
    return {
        host: answer
        for host, answer in results.items()
        if answer and not any(answer.get(name) for name in ("failed", "skipped", "unreachable"))
    }


def restarts(folder: str, hosts: Sequence[str]) -> Dict[str, str]:
    """Return {host: the reason of the restart that its driver needs}, from the node records.

    A damaged record gives no reason; train.yml refuses such a record.

    Args: `folder` the folder of the node records; `hosts` of the inventory.
    """
    records = node_records.read(folder)
    return driver.restarts({host: records[host] for host in hosts if host in records})


def status(given: Status, check: bool) -> Jobs:
    """List all jobs, and write the list to the file `given.path`."""
    jobs, waiting = given.jobs, restarts(given.records_dir, list(given.answers))
    disks = {host: one.disk for host, one in given.lists.items() if one and one.disk}
    as_json = job_messages.as_json(jobs, given.lost, waiting, disks)
    replace(os.path.abspath(given.path), as_json + "\n")
    lines = (
        listing.table(jobs)
        + job_messages.of_disks(disks)
        + [
            "no answer from %s: check this node, then run status.yml again" % host
            for host in sorted(given.lost)
        ]
        + ["restart needed %s: %s" % (host, why) for host, why in waiting.items()]
    )
    return Jobs(jobs=jobs, mxcluster_verdict_text=[as_json] if given.json else lines)


def choose(given: Choose, check: bool) -> Chosen:
    """Select the job `given.job`."""
    job = listing.choose(given.jobs, given.job, given.lost)
    if given.running:
        job = listing.running(job)
    if job:
        listing.refuse_strangers(job.job, given.lists, given.only)
    parts = listing.parts([job] if job else [])
    return Chosen(job=job, parts=parts, only=given.only, follow=given.follow)


def choose_to_stop(given: ChooseToStop, check: bool) -> ChosenToStop:
    """Select the jobs to stop.

    A sweep stops its interrupted job, which may have come to no node.
    """
    chosen: Sequence[ListedJob] = []
    if not attempts.parent() or any(one.job == given.job for one in given.jobs):
        chosen = listing.choose_to_stop(given.jobs, given.job, given.all, given.lost)
    saving = listing.savers(chosen) if given.save else {}
    return ChosenToStop(
        stopping=[job.job for job in chosen],
        parts=listing.parts(chosen),
        saving={} if check else saving,
        save_until=time.time() + given.save_timeout,
    )


def adopt(given: Adopt, check: bool) -> Adopted:
    """Return the plan of the job `given.job`.

    Raises BadInput if the controller cannot write in `given.runs_dir`, if a hook is wrong, or if a
    node has removed the folder of the job.
    """
    found = hooks(given.hooks, given.cwd)
    state_dir = os.path.dirname(os.path.abspath(given.records_dir))
    runs_dir = results_folder(given.runs_dir, state_dir, given.job)
    paths = {
        host: listing.Paths(**answer["paths"]) if answer and has_list(answer) else None
        for host, answer in given.answers.items()
    }
    plans = {
        host: answer["plan"]
        for host, answer in successes(given.results).items()
        if host not in given.without
    }
    plan = listing.adopt(listing.agreed(plans, given.job), given.job, paths)
    if not LAUNCHERS[plan.launcher].is_batch:  # its nodes share the folder of the job
        kept_runs.refuse_removed(runs_dir, given.job, given.lists, list(plan.nodes))
    answering = [host for host in plan.nodes if paths[host]]
    return Adopted(
        answering=answering,
        run_dir=os.path.join(runs_dir, given.job),
        hooks=found,
        **vars(packed.summary(plan, {})),
    )


def logs(given: Logs, check: bool) -> Chosen:
    """Return the last lines of the logs of the job `given.job`."""
    job = listing.choose(given.jobs, given.job, given.lost)
    found = successes(given.results)
    name = given.job or (job.job if job else "")
    if job and given.follow:
        text = job_messages.of_followed(name, listing.parts([job]), found)
    else:
        text = job_messages.of_logs(name, {host: one["logs"] for host, one in found.items()})
    return Chosen(job=job, mxcluster_verdict_text=text)


def stacks(given: Stacks, check: bool) -> controller_task.Result:
    """Return the stack traces of the job `given.job`. In check mode no process has written any."""
    if check:
        lines = ["CHECK     the processes of the job %s would write stack traces" % given.job]
        return controller_task.Result(mxcluster_verdict_text=lines)
    found = successes(given.results)
    answers = {host: StackTraces.decode(answer) for host, answer in found.items()}
    return controller_task.Result(mxcluster_verdict_text=job_messages.of_stacks(given.job, answers))


def stopped(given: Stopped, check: bool) -> Ended:
    """Describe the jobs `given.stopping`. In check mode the lines describe a dry run."""
    parts: Dict[str, Dict[str, Optional[StopAnswer]]] = {}
    for host, answer in given.results.items():
        for part in (answer or {}).get("results", []):
            is_lost = part.get("failed") or part.get("unreachable")
            parts.setdefault(part["item"], {})[host] = (
                StopAnswer.decode(part) if "ran" in part and not is_lost else None
            )
    jobs = [job for job in given.jobs if job.job in given.stopping]
    ended = job_messages.of_stops(jobs, parts, check, saves(given.saves))
    return Ended(ok=ended.ok, mxcluster_verdict_text=ended.lines)


def choose_to_clean(given: ChooseToClean, check: bool) -> ToClean:
    """Select the jobs and runs that ended longer ago than `given.older_than`."""
    state_dir = os.path.dirname(os.path.abspath(given.records_dir))
    runs_dir = os.path.abspath(results_folder(given.runs_dir, state_dir))
    found = cleaning.choose(given.lists, kept_runs.read(runs_dir), given.older_than, time.time())
    return ToClean(parts=found.parts, runs=found.runs, kept=found.kept, runs_dir=runs_dir)


def clean(given: Clean, check: bool) -> Ended:
    """Remove the runs `given.runs`, unless a node still has a part of the job."""
    if check:
        lines = cleaning.dry_run(given.parts, given.runs, given.kept)
        return Ended(ok=True, mxcluster_verdict_text=lines)
    found = successes(given.results)
    done = {host: Removed.decode(found[host]) if host in found else None for host in given.parts}
    runs = cleaning.without_failed(given.runs, given.parts, done)
    removal = kept_runs.remove(given.runs_dir, runs)
    lines = cleaning.result(given.parts, done, removal, given.kept)
    return Ended(
        changed=bool(removal.jobs), ok=lines[0].startswith("OK"), mxcluster_verdict_text=lines
    )


def saves(results: OfHosts) -> Dict[str, job_messages.Save]:
    """Return {job id: the wait for its next checkpoint}, from Stopped.saves.

    If several nodes complete checkpoints of a job, a node without a new one counts, and a node
    without an answer more than all others.
    """
    found: Dict[str, job_messages.Save] = {}
    for answer in results.values():
        for part in (answer or {}).get("results", []):
            save, job = job_messages.Save("", "", False, False), part["item"]["item"]
            if "status" in part and "status" in part["item"]:
                after = Progress.decode(part)
                save = job_messages.Save(
                    before=Progress.decode(part["item"]).newest,
                    after=after.newest,
                    has_ended=after.status.has_ended,
                )
            if job not in found or found[job].is_known and not save.has_saved:
                found[job] = save
    return found


def detached(given: Detached, check: bool) -> controller_task.Result:
    """Name the commands for the job `given.job`."""
    lines = job_messages.of_detached(given.job, given.inventory)
    return controller_task.Result(mxcluster_verdict_text=lines)


def runs(given: Runs, check: bool) -> controller_task.Result:
    """List the runs in `given.runs_dir`, and write their page."""
    state_dir = os.path.dirname(os.path.abspath(given.records_dir))
    runs_dir = os.path.abspath(results_folder(given.runs_dir, state_dir))
    changed = False
    if given.job:
        changed = history.annotate(runs_dir, given.job, given.tag, given.note, check)
    elif given.tag is not None or given.note is not None:
        raise BadInput(
            "tag and note need the id of a run that has ended: add -e job=<job>. To find runs by "
            "such words, give -e find=..."
        )
    rows = history.matching(history.read(runs_dir), given.find)
    rows = [row for row in rows if given.job in ("", row.job)]
    lines = history.table(rows, given.lines)
    if rows and not check:
        lines.append("page      %s" % history.write_page(runs_dir))
    return controller_task.Result(changed=changed, mxcluster_verdict_text=lines)


COMMANDS: Dict[Type[Arguments], Callable[..., controller_task.Result]] = {
    Status: status,
    Choose: choose,
    ChooseToStop: choose_to_stop,
    Adopt: adopt,
    Logs: logs,
    Stacks: stacks,
    Stopped: stopped,
    ChooseToClean: choose_to_clean,
    Clean: clean,
    Detached: detached,
    Runs: runs,
}


def carry_out(given: Arguments, check: bool) -> controller_task.Result:
    """Run a command.

    Args: `given` the arguments of the task; `check` True in check mode.

    Raises BadInput if the named job does not exist, if the user must name a job, or if the nodes'
    plans are missing, invalid or different.
    """
    return COMMANDS[type(given)](given, check)


class ActionModule(ControllerTask):
    """The action plugin of `mxcluster_jobs`, which Ansible runs on the controller."""
