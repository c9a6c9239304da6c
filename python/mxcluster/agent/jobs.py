"""List the jobs of a node, from the folder that holds all job folders."""

import contextlib
import os
from typing import List, Optional, Set

from mxcluster.agent import batch_job, claims, commands, retention, tickets
from mxcluster.agent.folder import JobFolder
from mxcluster.errors import MxclusterError
from mxcluster.model import protocol
from mxcluster.model.answers import JobEntry, JobList, Progress
from mxcluster.model.job_knobs import Options
from mxcluster.model.names import is_job_id

LAST = 10  # the largest number of ended jobs in a listing
WORKER_0 = "worker-0"


def listing(request: protocol.Jobs) -> JobList:
    """Return the `summary` of each job, the newest first.

    The list has all running and prepared jobs, the LAST newest of the ended and broken jobs, and
    the job of the request at any age. With `every` it has all jobs. Without check mode the function
    first removes tokens, leases, reserves and secrets of ended jobs (see `_clear`).
    """
    root = request.jobs_dir
    cleared = None if request.check else _clear(root)
    found = [
        entry
        for entry in (summary(JobFolder(os.path.join(root, name))) for name in claims.names(root))
        if entry
    ]
    found.sort(key=lambda entry: (entry.started or 0, entry.job), reverse=True)
    ended = [entry for entry in found if entry.state in ("ended", "broken")]
    older: Set[str] = (
        set() if request.every else {entry.job for entry in ended[LAST:]} - {request.job}
    )
    found = [entry for entry in found if entry.job not in older]
    disk = retention.disk_use(root) if request.measure else None
    waiting = tickets.ahead_of(root, None)
    return JobList(jobs=found, cleared=cleared, disk=disk, waiting=waiting)


def _clear(root: str) -> List[str]:
    """Remove tokens, leases, reserves and secrets of ended jobs. Return the ids of these jobs.

    The function also closes batch jobs (see `batch_job.close`).
    """
    closed = []
    for name in claims.names(root):
        with contextlib.suppress(MxclusterError, OSError):  # `summary` names the error
            if batch_job.close(JobFolder(os.path.join(root, name))):
                closed.append(name)
    return sorted(set(closed + claims.clear(root)))


def _completes(options: Options, progress: Progress) -> bool:
    """Return True if this node completes the checkpoints of a running job.

    These are the nodes of worker 0, or of the workers of a script that have saved one. Args:
    `options` of the job; `progress` of its part on this node.
    """
    if options.script:
        return bool(progress.newest)
    return options.savemodel and WORKER_0 in progress.status.parts()


def summary(folder: JobFolder) -> Optional[JobEntry]:
    """Return the summary of a job's part on this node, or None if `folder` is not a job folder."""
    job = os.path.basename(folder.path)
    if not is_job_id(job) or os.path.islink(folder.path):
        return None
    found = JobEntry(job=job, state="prepared")
    try:
        known = None if folder.status() is None else commands.look(folder)
        has_plan = os.path.exists(folder.file("plan.json"))
        if has_plan:
            found = claims.entry_of(job, folder.plan())
        if known is None:
            if not has_plan:
                return None
            return found.replaced(started=os.stat(folder.file("plan.json")).st_mtime)
        found = found.replaced(
            state=known.state,
            kv=known.kv,
            reason=known.reason,
            started=known.started,
            ended=known.ended,
            status=known,
        )
        if found.is_running:
            progress = commands.with_progress(folder, known)
            completes = _completes(folder.plan().options, progress)
            return found.replaced(
                saves=found.saves or completes,
                completes=completes,
                progress=progress.progress,
                usage=folder.usage(),
            )
        return found
    except MxclusterError as error:
        return found.replaced(state="broken", why=str(error), status=None)
    except OSError as error:
        why = "%s: %s" % (type(error).__name__, error)
        return found.replaced(state="broken", why=why, status=None)
