"""What the jobs of a node hold, and how a job gets it: one after the other, and only what no other has.

A job holds its ports and GPUs for as long as its agent lives, which is known by pid and start time: there is no second book to
keep, and nothing in it that a job that was killed could leave behind.
"""
import contextlib
import fcntl
import json
import os
import time
from typing import Any, Dict, Iterator, List, Optional

from mxcluster import processes
from mxcluster.agent.folder import JobFolder
from mxcluster.errors import BadInput, MxclusterError
from mxcluster.options import is_job_id

Json = Dict[str, Any]

LOCK = ".starting.lock"
PREPARED = 600.0  # seconds that a job may take from its preparation to its first status
PATIENCE = 40.0  # seconds for another job that is just being started: longer than an agent may take


def held(root: str, but: Optional[str] = None) -> Json:
    """{"ports": {"127.0.0.11:9091": job}, "gpus": {"0": job}}: what the jobs of this node hold, but for the job `but`."""
    ports, gpus = {}, {}  # type: Dict[str, str], Dict[str, str]
    for name in names(root):
        folder = JobFolder(os.path.join(root, name))
        if name == but or not runs(folder):
            continue
        try:
            told = of_plan(read_plan(folder) or {})
        except (MxclusterError, OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            continue  # what it listens on is seen all the same
        ports.update({"%s:%s" % (told["address"], port): name for port in told["ports"]})
        gpus.update({str(number): name for number in told["gpus"]})
    return {"ports": ports, "gpus": gpus}


def runs(folder: JobFolder) -> bool:
    """Whether the agent of a job lives."""
    try:
        status = folder.status() or {}
        return status.get("state") == "running" and processes.alive(processes.Identity(**status["agent"]))
    except (MxclusterError, OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return False


def conflicts(plan: Json, taken: Json) -> List[str]:
    """What a part of a plan wants that others hold, a line each."""
    wanted = of_plan(plan)
    lines = ["port %s on %s is held by the job %s, which was faster" % (port, wanted["address"], taken["ports"][key])
             for port, key in ((port, "%s:%s" % (wanted["address"], port)) for port in sorted(wanted["ports"]))
             if key in taken["ports"]]
    lines += ["GPU %d is held by the job %s, which was faster" % (number, taken["gpus"][str(number)])
              for number in wanted["gpus"] if str(number) in taken["gpus"]]
    return [line + ": give the command again, and what is free will be taken, or wait until that job has ended" for line in lines]


def open_lock(path: str) -> int:
    """A descriptor of a lock file. Only its owner can open the file, and so only its owner can hold the lock."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    os.fchmod(lock, 0o600)  # an earlier version may have made it
    return lock


@contextlib.contextmanager
def starting(folder: JobFolder) -> Iterator[int]:
    """Be the only one who starts a job on this node: until it is seen to hold what it needs, nobody else looks for that.

    Gives the descriptor of the lock, for who wants to let go of it before the end.
    """
    path = os.path.join(os.path.dirname(folder.path), LOCK)
    lock = open_lock(path)
    try:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    raise MxclusterError("another job has been starting on this node for %d s (%s is locked): try again, or see "
                                         "with status.yml which it is" % (PATIENCE, path)) from error
                time.sleep(0.05)
        yield lock
    finally:
        os.close(lock)


def claim(folder: JobFolder, plan: Json) -> None:
    """Refuse a job that wants what another holds; asked by one who is `starting`.

    What other jobs have left behind is forgotten now, since nobody may ever ask for them again.
    """
    clear(os.path.dirname(folder.path), but=os.path.basename(folder.path))
    lines = conflicts(plan, held(os.path.dirname(folder.path), but=os.path.basename(folder.path)))
    if lines:
        raise Taken("\n".join(lines))


def clear(root: str, but: Optional[str] = None) -> List[str]:
    """Remove tokens, leases, reserves and secrets that no job of `root` owns any more: the names of the jobs.

    A machine that was switched off, and an agent and a controller that were killed together, leave them. The job
    `but`, and jobs whose agent lives or may be about to start, keep theirs.
    """
    cleared = []
    for folder in (JobFolder(os.path.join(root, name)) for name in names(root) if name != but):
        with contextlib.suppress(OSError):  # another user's, or removed meanwhile
            if not os.path.islink(folder.path) and folder.spent() and not _owned(folder):
                folder.tidy()
                cleared.append(os.path.basename(folder.path))
    return cleared


def _owned(folder: JobFolder) -> bool:
    """Whether the job's agent lives, or may be about to start: it holds the folder's lock for as long as it lives."""
    if not os.path.exists(folder.file("status.json")) and time.time() - os.stat(folder.path).st_mtime < PREPARED:
        return True
    try:
        lock = os.open(folder.file("agent.lock"), os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        return runs(folder)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return runs(folder)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)


class Taken(BadInput):
    """Another job has been faster."""


def names(root: str) -> List[str]:
    """The folders in `root` that may be jobs'."""
    try:
        return sorted(name for name in os.listdir(root) if is_job_id(name) and os.path.isdir(os.path.join(root, name)))
    except FileNotFoundError:
        return []


def read_plan(folder: JobFolder) -> Optional[Json]:
    """This node's part of the plan, None if it is not there."""
    try:
        with open(folder.file("plan.json"), encoding="utf-8") as stream:
            plan = json.load(stream)
    except FileNotFoundError:
        return None
    if not isinstance(plan, dict):
        raise BadInput("plan.json is no object")
    return plan


def of_plan(plan: Json) -> Json:
    """What a summary tells of the plan."""
    own = plan.get("processes") or (plan.get("meeting") or {}).get("own") or []  # verify.yml's jobs do no more than meet
    addresses = sorted({part["address"] for part in own if part.get("port")})
    return {"kv": plan.get("kv"), "lease": plan.get("lease"), "address": addresses[0] if addresses else None,
            "ports": {str(part["port"]): part["name"] for part in own if part.get("port")},
            "gpus": sorted({int(number) for part in own for number in part.get("gpus") or []}),
            "nodes": sorted({peer["host"] for peer in plan.get("peers") or []} | {str(plan.get("host"))})}
