"""The jobs of a node, as the folder tells that holds their folders."""
import os
from typing import Any, Dict, Optional

from mxcluster.agent import claims, commands
from mxcluster.agent.folder import JobFolder
from mxcluster.errors import BadInput, MxclusterError
from mxcluster.options import is_job_id

Json = Dict[str, Any]

LAST = 10  # jobs that have ended and are told of
KINDS = {"job": str, "host": str, "state": str, "started": (int, float), "agent": dict, "processes": list}


def listing(root: str, last: int = LAST, also: Optional[str] = None, clear: bool = False) -> Json:
    """{"jobs": [a summary of each, see `summary`, the newest first]}: those that have not ended, and the `last` that have.

    `also`: tell of the job with this id too, however old it is. `clear`: remove what no job owns any more, see
    `claims.clear`; "cleared" names the jobs that left something.
    """
    cleared = {"cleared": claims.clear(root)} if clear else {}
    found = [entry for entry in (summary(JobFolder(os.path.join(root, name))) for name in claims.names(root)) if entry]
    found.sort(key=lambda entry: (entry["started"] or 0, entry["job"]), reverse=True)
    ended = [entry for entry in found if entry["state"] in ("ended", "broken")]
    left_out = {entry["job"] for entry in ended[last:]} - {also}
    return dict(cleared, jobs=[entry for entry in found if entry["job"] not in left_out])


def summary(folder: JobFolder) -> Optional[Json]:
    """One node's part of one job; None if the folder is no job's.

    {"job", "state": "running", "ended", "prepared" (no agent has been seen) or "broken" (its files make no sense), "why" of
    that, "kv", "reason", "started", "ended", "lease", "nodes": [host, ...], "ports": {"9091": name}, "address", "gpus",
    "status", "progress"}; progress is of a job that runs.
    """
    job = os.path.basename(folder.path)
    if not is_job_id(job) or os.path.islink(folder.path):
        return None
    entry = {"job": job, "state": "prepared", "why": None, "kv": None, "reason": None, "started": None, "ended": None,
             "lease": None, "nodes": [], "ports": {}, "address": None, "gpus": [], "status": None, "progress": {}}  # type: Json
    try:
        status = _status(folder)
        plan = claims.read_plan(folder)
        if status is None and plan is None:
            return None
        entry.update(claims.of_plan(plan) if plan else {})
        if status is not None:
            entry.update({key: status.get(key) for key in ("state", "kv", "reason", "started", "ended")}, status=status)
        if entry["state"] == "running":
            entry["progress"] = commands.with_progress(folder, status)["progress"]
        elif status is None:
            entry["started"] = os.stat(folder.file("plan.json")).st_mtime
    except (MxclusterError, OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        entry.update(state="broken", why="%s: %s" % (type(error).__name__, error), status=None, progress={})
    return entry


def _status(folder: JobFolder) -> Optional[Json]:
    """The status as it is now, with all that it must have."""
    known = folder.status()
    if known is None:
        return None
    wrong = [name for name, kind in KINDS.items() if not isinstance(known.get(name), kind)]
    if wrong:
        raise BadInput("status.json has no %s" % ", ".join(sorted(wrong)))
    return commands.look(folder)
