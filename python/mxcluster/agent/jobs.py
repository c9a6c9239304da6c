"""List the jobs of a node, from the folder that holds all job folders."""

import contextlib
import os
from typing import Any, Dict, List, Optional, Tuple, Union

from mxcluster.agent import batch_job, claims, commands
from mxcluster.agent.folder import JobFolder
from mxcluster.errors import DAMAGED, BadInput, MxclusterError
from mxcluster.model import protocol
from mxcluster.model.names import is_job_id

Json = Dict[str, Any]

LAST = 10  # the largest number of ended jobs in a listing
KINDS: Dict[str, Union[type, Tuple[type, ...]]] = {
    "job": str,
    "host": str,
    "state": str,
    "started": (int, float),
    "agent": dict,
    "processes": list,
}


def listing(request: protocol.Jobs) -> Json:
    """Return {"jobs": the `summary` of each job, the newest first}.

    The list has all running and prepared jobs, the LAST newest of the ended and broken jobs, and
    the job of the request at any age. Without check mode the function first removes tokens, leases,
    reserves and secrets of ended jobs. The result then has "cleared", the ids of these jobs (see
    `_clear`).
    """
    root = request.jobs_dir
    cleared = {} if request.check else {"cleared": _clear(root)}
    found = [
        entry
        for entry in (summary(JobFolder(os.path.join(root, name))) for name in claims.names(root))
        if entry
    ]
    found.sort(key=lambda entry: (entry["started"] or 0, entry["job"]), reverse=True)
    ended = [entry for entry in found if entry["state"] in ("ended", "broken")]
    left_out = {entry["job"] for entry in ended[LAST:]} - {request.job}
    return dict(cleared, jobs=[entry for entry in found if entry["job"] not in left_out])


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


def summary(folder: JobFolder) -> Optional[Json]:
    """Return the summary of a job's part on this node, or None if `folder` is not a job folder.

    The result is {"job", "state", "why", "kv", "reason", "started", "ended", "lease", "nodes":
    [host, ...], "ports": {"9091": process name}, "address", "gpus", "status", "progress"}. "state"
    is "running", "ended", "prepared" or "broken". "started" and "ended" are unix seconds, "lease"
    is in seconds. A prepared job has no status yet. A broken job has damaged files, and "why" is
    the error. "status" is the content of status.json. "progress" is the result of
    `JobFolder.progress` for a running job, else {}.
    """
    job = os.path.basename(folder.path)
    if not is_job_id(job) or os.path.islink(folder.path):
        return None
    entry = {
        "job": job,
        "state": "prepared",
        "why": None,
        "kv": None,
        "reason": None,
        "started": None,
        "ended": None,
        "lease": None,
        "nodes": [],
        "ports": {},
        "address": None,
        "gpus": [],
        "status": None,
        "progress": {},
    }  # type: Json
    try:
        status = _status(folder)
        plan = claims.read_plan(folder)
        if status is None and plan is None:
            return None
        entry.update(claims.of_plan(plan) if plan else {})
        if status is not None:
            entry.update(
                {key: status.get(key) for key in ("state", "kv", "reason", "started", "ended")},
                status=status,
            )
        if status is not None and entry["state"] == "running":
            entry["progress"] = commands.with_progress(folder, status)["progress"]
        elif status is None:
            entry["started"] = os.stat(folder.file("plan.json")).st_mtime
    except (MxclusterError, OSError) + DAMAGED as error:
        entry.update(
            state="broken",
            why=str(error)
            if isinstance(error, MxclusterError)
            else "%s: %s" % (type(error).__name__, error),
            status=None,
            progress={},
        )
    return entry


def _status(folder: JobFolder) -> Optional[Json]:
    """Return the current status of the job in `folder`, or None without status.json.

    Raises BadInput if a field of status.json is missing or of the wrong type.
    """
    known = folder.status()
    if known is None:
        return None
    wrong = [name for name, kind in KINDS.items() if not isinstance(known.get(name), kind)]
    if wrong:
        raise BadInput(
            "%s has no valid %s: another program has changed this file. Run status.yml again. If "
            "the error stays, end the job with stop.yml"
            % (folder.file("status.json"), ", ".join(sorted(wrong)))
        )
    return commands.look(folder)
