"""List the jobs of a node, from the folder that holds all job folders."""

import contextlib
import os
from typing import List, Optional

from mxcluster.agent import batch_job, claims, commands
from mxcluster.agent.folder import JobFolder
from mxcluster.errors import DAMAGED, MxclusterError
from mxcluster.job.option_types import is_job_id
from mxcluster.model import protocol
from mxcluster.model.answers import JobEntry, JobList
from mxcluster.model.shapes import Wrong

LAST = 10  # the largest number of ended jobs in a listing


def listing(request: protocol.Jobs) -> JobList:
    """Return the `summary` of each job, the newest first.

    The list has all running and prepared jobs, the LAST newest of the ended and broken jobs, and
    the job of the request at any age. Without check mode the function first removes tokens, leases,
    reserves and secrets of ended jobs (see `_clear`).
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
    older = {entry.job for entry in ended[LAST:]} - {request.job}
    return JobList(jobs=[entry for entry in found if entry.job not in older], cleared=cleared)


def _clear(root: str) -> List[str]:
    """Remove tokens, leases, reserves and secrets of ended jobs. Return the ids of these jobs.

    The function also closes batch jobs (see `batch_job.close`).
    """
    closed = []
    for name in claims.names(root):
        with contextlib.suppress(MxclusterError, OSError, *DAMAGED):  # `summary` names the error
            if batch_job.close(JobFolder(os.path.join(root, name))):
                closed.append(name)
    return sorted(set(closed + claims.clear(root)))


def summary(folder: JobFolder) -> Optional[JobEntry]:
    """Return the summary of a job's part on this node, or None if `folder` is not a job folder."""
    job = os.path.basename(folder.path)
    if not is_job_id(job) or os.path.islink(folder.path):
        return None
    found = JobEntry(job=job, state="prepared")
    try:
        known = None if folder.status() is None else commands.look(folder)
        plan = claims.read_plan(folder)
        if known is None and plan is None:
            return None
        if plan:
            found = JobEntry.decode(dict(found.encode(), **claims.of_plan(plan)))
        if known is None:
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
            return found.replaced(progress=commands.with_progress(folder, known).progress)
        return found
    except (MxclusterError, OSError, Wrong) + DAMAGED as error:
        text = str(error)
        if isinstance(error, Wrong):
            text = "%s is damaged: %s" % (folder.file("plan.json"), error)
        elif not isinstance(error, MxclusterError):
            text = "%s: %s" % (type(error).__name__, error)
        return found.replaced(state="broken", why=text, status=None)
