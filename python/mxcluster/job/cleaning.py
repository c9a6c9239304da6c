"""Choose the old jobs and runs that clean.yml removes. All functions are pure."""

from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Set

from mxcluster.errors import some
from mxcluster.job import listing
from mxcluster.job.kept_runs import Removal, Run
from mxcluster.job.verdict_text import printable
from mxcluster.lists import several
from mxcluster.model.answers import Removed
from mxcluster.model.listing import ListedJob

Done = Mapping[str, Optional[Removed]]  # {host: its answer to the command remove, None without}
ACTIVE = ("running", "prepared")


class Cleaning(NamedTuple):
    """What clean.yml removes, and what stays."""

    parts: Dict[str, List[str]]
    """{host: ids of the jobs whose folders the node removes}."""
    runs: List[str]
    """The ids of the jobs whose run folders the controller removes."""
    kept: List[str]
    """A line for each old job or run that stays."""


def choose(
    answers: listing.JobLists, runs: Mapping[str, Run], limit: float, now: float
) -> Cleaning:
    """Return the folders of jobs and the runs that ended more than `limit` seconds ago.

    A folder on a node goes if the run folder has all files of the job, or if the job had no process
    to keep files of. A run goes if no node keeps a part of its job, and if it has no checkpoints:
    the run folder has the only ones. An active job and its run stay.

    A node of another inventory is not asked. It counts as a node that keeps a part of the job, if
    the run lacks files.

    Args: `answers` the job list of each node with all jobs; `runs` {job: its run}; `now` in unix
    seconds.
    """
    parts: Dict[str, List[str]] = {}
    kept: List[str] = []
    staying: Set[str] = set()  # jobs with a part that stays on a node
    jobs = listing.merge(answers, now)
    for job in jobs:
        run = runs.get(job.job)
        if job.state in ACTIVE or job.ended is None or job.ended > now - limit:
            staying.add(job.job)
        elif (run and run.is_complete) or _has_no_files(job, answers):
            for host in listing.parts([job]):
                parts.setdefault(host, []).append(job.job)
        else:
            staying.add(job.job)
            kept.append(
                "job %s on %s: runs_dir has not all of its files. Fetch them with train.yml -e "
                "attach=%s, or remove the folders by hand"
                % (job.job, listing.some_hosts(sorted(listing.parts([job]))), job.job)
            )
    chosen = []
    for name, run in sorted(runs.items()):
        if run.ended > now - limit or name in staying:
            continue
        silent = [
            host
            for host in run.nodes
            if answers.get(host) is None and (host in answers or not run.is_complete)
        ]
        if run.has_checkpoints:
            kept.append(
                "run %s: it has the only checkpoints of its job. Remove the run folder by hand if "
                "you do not need them" % name
            )
        elif silent:
            kept.append(
                "run %s: no answer from %s, which may have a part of the job. Make the nodes "
                "reachable, give their inventory with -i, or remove the run folder by hand"
                % (name, some(sorted(silent)))
            )
        else:
            chosen.append(name)
    return Cleaning(parts, chosen, kept)


def _has_no_files(job: ListedJob, answers: listing.JobLists) -> bool:
    """Return True if `job` was only a rendezvous, as of verify.yml, on all nodes that know it."""
    entries = [
        entry
        for answer in answers.values()
        for entry in (answer.jobs if answer else ())
        if entry.job == job.job
    ]
    return all(
        entry.status and not entry.status.processes and not entry.status.batch for entry in entries
    )


def without_failed(
    chosen: Sequence[str], parts: Mapping[str, Sequence[str]], done: Done
) -> List[str]:
    """Return the runs of `chosen` whose jobs no node keeps.

    Args: `parts` as in Cleaning; `done` {host: the answer to the command remove, None without}.
    """
    failed: Set[str] = set()
    for host, jobs in parts.items():
        answer = done.get(host)
        failed.update(set(jobs) - set(answer.removed if answer else ()))
    return [job for job in chosen if job not in failed]


def dry_run(
    parts: Mapping[str, Sequence[str]], runs: Sequence[str], kept: Sequence[str]
) -> List[str]:
    """Return the lines of clean.yml in check mode."""
    lines = ["CHECK     clean.yml would remove %s" % _what(parts, len(runs))]
    lines += ["  %s: %s" % (host, " ".join(jobs)) for host, jobs in sorted(parts.items())]
    lines += ["  runs: %s" % " ".join(runs)] if runs else []
    return [printable(line) for line in lines + _stays(kept)]


def result(
    parts: Mapping[str, Sequence[str]], done: Done, runs: Removal, kept: Sequence[str]
) -> List[str]:
    """Return the lines of clean.yml. The first word is FAILED if something could not be removed."""
    removed = {host: answer.removed if answer else [] for host, answer in done.items()}
    problems = [
        "%s: %s" % (host, line)
        for host, one in sorted(done.items())
        if one
        for line in one.problems
    ]
    problems += [
        "no answer from %s: run clean.yml again" % host
        for host in sorted(parts)
        if done.get(host) is None
    ]
    problems += runs.problems
    word = "FAILED" if problems else "OK"
    first = "%-9s removed %s" % (word, _what(removed, len(runs.jobs)))
    return [printable(line) for line in [first, *problems, *_stays(kept)]]


def _what(parts: Mapping[str, Sequence[str]], runs: int) -> str:
    folders = sum(map(len, parts.values()))
    hosts = sum(1 for jobs in parts.values() if jobs)
    return "%s of %s, and %s" % (
        several(folders, "job folder"),
        several(hosts, "node"),
        several(runs, "run folder"),
    )


def _stays(kept: Sequence[str]) -> List[str]:
    return ["kept      " + line for line in kept]
