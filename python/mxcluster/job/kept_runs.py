"""Find the runs on the controller that make the folders of a job on the nodes redundant."""

import os
import shutil
from typing import Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence

from mxcluster.errors import BadInput, some
from mxcluster.file_io import disk_space
from mxcluster.job.report import files
from mxcluster.lists import several
from mxcluster.model import names
from mxcluster.model.answers import JobList

# The start of a job removes at most this number of old folders on a node, because other nodes wait.
MOST_REMOVED = 20
VERDICT = "verdict.json"


class Run(NamedTuple):
    """A run folder of an ended job."""

    ended: float
    """The time of the verdict in unix seconds."""
    nodes: Sequence[str]
    is_complete: bool
    """True if the folder has all files of all nodes."""
    has_checkpoints: bool


def of_job(runs_dir: str, job: str) -> Optional[Run]:
    """Return the run of `job` in `runs_dir`, None without a verdict of this job."""
    folder = os.path.join(runs_dir, job)
    if not names.is_job_id(job) or os.path.islink(folder):
        return None
    try:
        verdict = files.read_verdict(folder)
        ended = os.stat(os.path.join(folder, VERDICT)).st_mtime
    except (BadInput, OSError):
        return None
    if verdict is None or verdict.job != job:
        return None
    there = [os.path.isdir(files.node_dir(folder, host)) for host in verdict.nodes]
    checkpoints = os.path.join(folder, "checkpoints")
    return Run(
        ended=ended,
        nodes=list(verdict.nodes),
        is_complete=all(there) and set(verdict.nodes) <= set(verdict.complete or ()),
        has_checkpoints=os.path.isdir(checkpoints) and bool(os.listdir(checkpoints)),
    )


def read(runs_dir: str) -> Dict[str, Run]:
    """Return {job: run} of all run folders with a verdict. The folder of a sweep has none."""
    jobs = sorted(os.listdir(runs_dir)) if os.path.isdir(runs_dir) else []
    found = {job: of_job(runs_dir, job) for job in jobs}
    return {job: run for job, run in found.items() if run}


def removable(runs_dir: str, jobs: Iterable[str]) -> List[str]:
    """Return the first MOST_REMOVED of the `jobs` whose files are complete in `runs_dir`."""
    found: List[str] = []
    for job in jobs:
        run = of_job(runs_dir, job) if len(found) < MOST_REMOVED else None
        if run and run.is_complete:
            found.append(job)
    return found


def refuse_removed(
    runs_dir: str, job: str, answers: Mapping[str, Optional[JobList]], hosts: Iterable[str]
) -> None:
    """Raise BadInput if a host of a complete run has no folder of `job` any more.

    A new report would have no files of this host.

    Args: `answers` {host: its job list, None without one}; `hosts` of the job.
    """
    lists = {host: answers.get(host) for host in hosts}
    gone = sorted(
        host for host, one in lists.items() if one and job not in {entry.job for entry in one.jobs}
    )
    run = of_job(runs_dir, job) if gone else None
    if run and run.is_complete:
        raise BadInput(
            "attach=%s: %s has removed the folder of this ended job, because %s has all of its "
            "files: read report.html there" % (job, some(gone), os.path.join(runs_dir, job))
        )


class Removal(NamedTuple):
    """The result of `remove`."""

    jobs: List[str]
    bytes: int
    problems: List[str]


def remove(runs_dir: str, jobs: Sequence[str]) -> Removal:
    """Remove the run folders of the `jobs`, and write the page of the other runs.

    Returns the removed jobs, the freed bytes, and a line for each folder that stays.
    """
    from mxcluster.job.report import history  # not at the top: each start of a job would import it

    removed: List[str] = []
    problems: List[str] = []
    freed = 0
    for job in jobs:
        folder = os.path.join(runs_dir, job)
        size = disk_space(folder)
        try:
            _remove(folder)
        except OSError as error:
            problems.append(
                "cannot remove %s (%s): correct the rights, and run clean.yml again"
                % (error.filename or folder, error.strerror or error)
            )
        else:
            removed.append(job)
            freed += size
    if removed:
        history.write_page(runs_dir)
    return Removal(removed, freed, problems)


def _remove(folder: str) -> None:
    """Remove the run folder `folder`, and its verdict last: `read` finds a run by its verdict."""
    for entry in [] if os.path.islink(folder) else list(os.scandir(folder)):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        elif entry.name != VERDICT:
            os.unlink(entry.path)
    shutil.rmtree(folder)  # refuses a link, and follows none


def announcement(keep: int, removable_on: Sequence[Sequence[str]]) -> str:
    """Return the line about the old jobs that a start removes, "" if it removes none.

    Args: `keep` the knob keep_jobs; `removable_on` the ids of these jobs on each node.
    """
    jobs = sorted({job for on_node in removable_on for job in on_node})
    if not jobs:
        return ""
    nodes = sum(1 for on_node in removable_on if on_node)
    named = ", ".join(jobs[:3]) + (" and %d more" % (len(jobs) - 3) if len(jobs) > 3 else "")
    return (
        "keep_jobs=%d: the start removes the folders of %s from %s, because runs_dir has all of "
        "their files: %s" % (keep, several(len(jobs), "old job"), several(nodes, "node"), named)
    )
