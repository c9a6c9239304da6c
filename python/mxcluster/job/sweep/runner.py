"""Begin or continue a sweep, and run the jobs of the sweep one after the other."""

import contextlib
import fcntl
import itertools
import os
import time
from typing import Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence

from mxcluster.errors import BadInput, refuse
from mxcluster.file_io import read_json, replace
from mxcluster.job.plan import paces
from mxcluster.job.report import files
from mxcluster.job.sweep import rendezvous, report, results, specs, stages
from mxcluster.job.sweep.jobs import Job, PlanOf
from mxcluster.job.sweep.stages import Records
from mxcluster.job.verdict_text import clock, figure, printable
from mxcluster.lists import several
from mxcluster.model import sweep_knobs
from mxcluster.model.job_knobs import Options
from mxcluster.model.plan import Plan
from mxcluster.model.sweep import (
    FAILED,
    RUNNING_CURE,
    SPEC_CURE,
    About,
    Benchmark,
    ComparisonRecord,
    JobRecord,
    Knobs,
    RunningJob,
    Specification,
    job_ids,
)

SPEC, RUNNING, LOCK = "sweep.json", "running.json", ".lock"
STOPPED = "stopped.json"  # ids of interrupted jobs; the nodes keep the folders of these jobs
HOSTS = "job.hosts"  # of the running job, if only some workers train


_PLANNED_ALIKE = ("seed", "lr", "momentum")  # knobs that change no plan


class Means(NamedTuple):
    """The functions that a sweep calls to plan, run and end jobs, and to show lines.

    Attributes:
        plan_of: returns the plan of the job with the given knobs, without starting the job.
            Raises BadInput if the job is impossible.
        start: runs train.yml with the given knobs to the end, and returns the exit status.
        stop: ends all processes of the job with the given id on all nodes.
        show: shows a line to the user.
    """

    plan_of: PlanOf
    start: Callable[[Knobs], int]
    stop: Callable[[str], None]
    show: Callable[[str], None]


def opened(
    playbook: str,
    given: Mapping[str, object],
    options: Knobs,
    names: Sequence[str],
    runs_dir: str,
    cwd: str,
    plan_of: PlanOf,
) -> Specification:
    """Return the specification of a new or an earlier sweep from the user's knobs.

    The function writes no file. Raises BadInput if a knob is wrong, a job is impossible, or the
    sweep has too many jobs.

    Args:
        playbook: the file name of the playbook.
        given: the values of the sweep's knobs.
        options: the values of train.yml's options.
        names: the names that the user gave with -e.
        runs_dir: the folder of the runs.
        cwd: the folder at which relative paths begin.
        plan_of: see `Means`.
    """
    knobs = sweep_knobs.cast(playbook, given)
    base = specs.base_of(playbook, options, names, cwd)
    sweep = knobs.sweep or time.strftime("%Y%m%d-%H%M%S-") + playbook.partition(".")[0]
    path = os.path.join(runs_dir, sweep, SPEC)
    earlier = read_json(path, lambda value: specs.checked(value, sweep, path), SPEC_CURE)
    if earlier is not None:
        specs.going_on(earlier, playbook, knobs, base, names)
        return earlier
    if os.path.exists(os.path.dirname(path)):
        raise BadInput(
            "sweep=%s: %s exists and holds no sweep. Choose another name for the sweep"
            % (sweep, os.path.dirname(path))
        )
    if knobs.again:
        raise BadInput(
            "again=%s: the sweep %r does not exist. Name an earlier sweep with -e sweep=<sweep>"
            % (knobs.again, sweep)
        )
    plan_of = _measured_before(plan_of)
    spec = specs.begin(sweep, knobs, base, time.time(), plan_of)
    most = stages.most_jobs(spec)
    if most > knobs.max_jobs:
        raise BadInput(
            "the sweep has %s, but max_jobs=%d is the limit: shorten the lists, or raise max_jobs"
            % (_count(spec), knobs.max_jobs)
        )
    if not most:
        raise BadInput(
            "the sweep has no job: kv=local and kv=device run with one worker only, and "
            "worker_counts lacks 1. Add 1 to worker_counts, or other schemes to kvs"
        )
    # The first job may have one worker only.
    slowness = paces.emulated(max(check(spec, plan_of), key=lambda plan: plan.workers))
    return spec.replaced(notes=[*spec.notes, slowness]) if slowness else spec


def _measured_before(plan_of: PlanOf) -> PlanOf:
    """Return a variant of `plan_of` that raises BadInput for a job without a number of workers.

    A job that needs a new profile would first measure the cluster, but a sweep needs the groups
    before the first job. A batch system chooses the nodes when a job starts.
    """

    def plan(knobs: Knobs) -> Plan:
        made = plan_of(knobs)
        if made.batch:
            raise BadInput(
                "launcher=%s is refused for a sweep, because the numbers of workers are unknown "
                "before the jobs start: use -e launcher=ssh, or submit each job with train.yml"
                % made.launcher
            )
        if made.needs_profile:
            raise BadInput(
                "grouping=auto: no profile fits the workers, and a sweep does not measure workers. "
                "Run profile.yml -e apply=true first, or use -e grouping=given"
            )
        return made

    return plan


def check(spec: Specification, plan_of: PlanOf) -> List[Plan]:
    """Return the plans of all jobs that are known at the beginning, in the order of the jobs.

    Raises BadInput, which names the first impossible job for each reason. Jobs that differ only in
    seed and learning rate share one plan.
    """
    plans: List[Plan] = []
    seen: Dict[str, Optional[Plan]] = {}  # None for an impossible job
    problems: Dict[str, str] = {}
    for job in stages.known_jobs(spec, {}):
        knobs = {name: value for name, value in job.knobs.items() if name not in _PLANNED_ALIKE}
        alike = repr((sorted(knobs.items()), len(job.hosts)))
        try:
            plan = seen.get(alike)
            if alike not in seen:
                knobs = dict(job.knobs)
                if job.hosts:  # `_run` writes the file later
                    knobs.update(hosts_file="", num_workers=len(job.hosts))
                seen[alike] = plan = plan_of(knobs)
                if isinstance(spec, Benchmark):
                    rendezvous.check(spec.knobs.rendezvous, plan)
            if plan:
                plans.append(plan)
        except BadInput as refusal:
            seen[alike] = None
            problems.setdefault(str(refusal), job.name)
    refuse("job %s: %s" % (name, text) for text, name in problems.items())
    return plans


def go(spec: Specification, runs_dir: str, means: Means, again: str = "") -> Dict[str, JobRecord]:
    """Run the jobs that lack a record, and return {name of a job: record} of the whole sweep.

    The function updates the files of the sweep after every job. Raises BadInput if another process
    runs this sweep, or if a job ends without a verdict. Such a job could not start or was
    interrupted, and the next job would end in the same way.

    Args:
        spec: from `opened`.
        runs_dir: the folder of the runs.
        means: the functions that plan, start and end jobs.
        again: "failed" to run failed jobs once more, "late" to run those with late steps once more
            (see `results.lateness`), "" for neither.
    """
    folder = os.path.join(runs_dir, spec.sweep)
    os.makedirs(folder, exist_ok=True)
    with _locked(folder, spec.sweep):
        if not os.path.exists(os.path.join(folder, SPEC)):
            files.write_json(os.path.join(folder, SPEC), spec)
        records = _earlier(spec, folder, runs_dir, means)
        records = {name: one for name, one in records.items() if not _runs_again(one, again)}
        took = []  # type: List[float]
        while True:
            todo = stages.next_jobs(spec, records)
            if not todo:
                return records
            means.show(progress(spec, records, todo, took))
            one = records[todo[0].name] = _run(spec, todo[0], folder, runs_dir, means)
            took.append(one.wall_s)
            results.write(folder, in_order(spec, records))
            means.show(outcome(one))


def _runs_again(one: JobRecord, again: str) -> bool:
    """Return True if the job of the record `one` must run once more. Args: `again` as in `go`."""
    if again == "late":
        return bool(one.late)
    return again == "failed" and one.state == FAILED


def in_order(spec: Specification, records: Records) -> List[JobRecord]:
    """Return the records in the order of the known jobs, then all other records."""
    known = stages.known_records(spec, records)
    names = {one.job for one in known}
    return known + [one for name, one in records.items() if name not in names]


def progress(spec: Specification, records: Records, todo: List[Job], took: List[float]) -> str:
    """Return the line that announces the next job, with an estimate of the remaining time.

    Args: `todo` the next jobs; `took` the seconds of each job since the start of the playbook.
    """
    known = len(stages.known_jobs(spec, records))
    more = "" if stages.has_all_jobs(spec, records) else " or more"
    rest = "; about %s left" % clock(len(todo) * sum(took) / len(took)) + more if took else ""
    return "SWEEP     job %d of %d%s, %s: %s%s" % (
        known - len(todo) + 1,
        known,
        more,
        todo[0].name,
        described(todo[0].about),
        rest,
    )


def outcome(one: JobRecord) -> str:
    """Return the line that reports the end of a job.

    The line has the job's id and state, and the cause of a failure or the speed and the accuracy.
    """
    words = [one.state if one.why is None else "%s: %s" % (one.state, one.why)]
    if one.why is None and one.samples_per_s is not None:
        words.append("%s samples/s" % figure(one.samples_per_s))
    if isinstance(one, ComparisonRecord) and one.accuracy is not None:
        words.append("accuracy %.4f" % one.accuracy)
    if one.late:
        words.append("up to %s of a worker" % several(one.late_steps or 0, "late step"))
    return printable("RESULT    %s %s" % (one.id, ", ".join(words)))


def described(about: About) -> str:
    """Return the values of a job in the sweep as text, such as "network=lenet workers=2"."""
    return " ".join("%s=%s" % item for item in about.encode().items() if item[1] is not None)


def dry_run(spec: Specification, runs_dir: str, plan_of: PlanOf) -> List[str]:
    """Return the lines of a dry run of a new or an earlier sweep, without writing a file."""
    records = results.read(path_of(runs_dir, spec), spec)
    return listing(spec, records, check(spec, plan_of))


def report_on(spec: Specification, runs_dir: str, cache_dir: str) -> None:
    """Write the report of a finished or interrupted sweep, if a job of the sweep has a record.

    Args: `cache_dir` the folder of matplotlib's font list.
    """
    folder = path_of(runs_dir, spec)
    records = results.read(folder, spec)
    if records:
        report.write(folder, spec, records, cache_dir)


def listing(spec: Specification, records: Records, plans: Iterable[Plan]) -> List[str]:
    """Return the lines of a dry run: the name, state, values and size of every known job.

    Args: `plans` the plans of the first known jobs, in order; further jobs show no size.
    """
    jobs = stages.known_jobs(spec, records)
    lines = ["%s of %s, in runs/%s" % (spec.KIND, _count(spec), spec.sweep)]
    lines += ["note: %s" % note for note in spec.notes]
    done = [one.wall_s for one in records.values() if one.wall_s]
    for job, plan in itertools.zip_longest(jobs, list(plans)[: len(jobs)]):
        state = records[job.name].state if job.name in records else "to do"
        size = (
            "%s and %s on %s; %s"
            % (
                several(plan.workers, "worker"),
                several(plan.servers, "server"),
                several(len(plan.nodes), "node"),
                _amount(plan.options),
            )
            if plan
            else ""
        )
        lines.append("  ".join(filter(None, (job.name, state, described(job.about), size))))
    todo = sum(job.name not in records for job in jobs)
    lines.append(
        "%d of %d jobs to do%s"
        % (
            todo,
            len(jobs),
            ", about %s at the pace of the earlier jobs" % clock(todo * sum(done) / len(done))
            if done and todo
            else "",
        )
    )
    return lines


def _amount(options: Options) -> str:
    if options.measured:
        return "%d + %d batches of %d" % (
            options.warm_up,
            options.measured,
            options.batch_size,
        )
    return "%d epochs, batches of %d" % (options.num_epochs, options.batch_size)


def _count(spec: Specification) -> str:
    return "%s%d jobs" % ("" if isinstance(spec, Benchmark) else "up to ", stages.most_jobs(spec))


def _earlier(spec: Specification, folder: str, runs_dir: str, means: Means) -> Dict[str, JobRecord]:
    """End an interrupted job on the nodes, then return the records of all earlier jobs."""
    records = results.read(folder, spec)
    running = os.path.join(folder, RUNNING)
    interrupted = read_json(running, RunningJob.decode, RUNNING_CURE)
    if interrupted:
        means.show("SWEEP     ends the interrupted job %s on the nodes" % interrupted.id)
        means.stop(interrupted.id)
        files.write_json(os.path.join(folder, STOPPED), [*_stopped(folder), interrupted.id])
        job = next(
            (job for job in stages.next_jobs(spec, records) if job.name == interrupted.job), None
        )
        # The playbook may have ended after the verdict and before the record.
        run_dir = os.path.join(runs_dir, interrupted.id)
        found = results.record(spec, job, interrupted.id, run_dir, 0.0) if job else None
        if found and found.state != FAILED:
            records[found.job] = found
        os.remove(running)
        results.write(folder, in_order(spec, records))
    return records


def _stopped(folder: str) -> List[str]:
    """Return the ids of the interrupted jobs of the sweep in `folder`."""
    return read_json(os.path.join(folder, STOPPED), job_ids) or []


def _run(spec: Specification, job: Job, folder: str, runs_dir: str, means: Means) -> JobRecord:
    """Run one job to the end, and return the record of the job."""
    stopped = _stopped(folder)
    job_id = specs.job_id(
        spec.sweep,
        job.name,
        lambda name: name in stopped or os.path.exists(os.path.join(runs_dir, name)),
    )
    running = os.path.join(folder, RUNNING)
    files.write_json(running, RunningJob(job=job.name, id=job_id))
    knobs = dict(job.knobs, job_id=job_id)
    if job.hosts:
        path = knobs["hosts_file"] = os.path.join(os.path.abspath(folder), HOSTS)
        replace(path, "".join("%s\n" % address for address in job.hosts))
    began = time.monotonic()
    status = means.start(knobs)
    found = results.record(
        spec, job, job_id, os.path.join(runs_dir, job_id), time.monotonic() - began
    )
    if found is None:
        raise BadInput(
            "the job %s ended with exit status %d and no verdict: read the output above, remove "
            "the cause, then continue with -e sweep=%s" % (job_id, status, spec.sweep)
        )
    os.remove(running)
    return found


@contextlib.contextmanager
def _locked(folder: str, sweep: str) -> Iterator[None]:
    """Lock the sweep for the `with` block. Raises BadInput if another process runs the sweep."""
    with open(os.path.join(folder, LOCK), "w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BadInput(
                "sweep=%s is already running: wait for the end of this sweep, or begin another "
                "sweep" % sweep
            ) from None
        yield


def path_of(runs_dir: str, spec: Specification) -> str:
    """Return the path of the sweep's folder."""
    return os.path.join(runs_dir, spec.sweep)
