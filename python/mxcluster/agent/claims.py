"""Find the ports and GPUs that the jobs of a node hold, and refuse conflicting jobs.

A job that waits for room holds the ports and GPUs of its ticket against the jobs behind it.

Jobs start one after the other. A job holds the ports and GPUs of its plan for as long as its agent
lives. Pid and start time identify the agent. No file records a claim, so a killed job leaves no
stale claim.
"""

import contextlib
import fcntl
import os
import time
from typing import Dict, Iterator, List, Optional, Sequence

from mxcluster.agent import tickets
from mxcluster.agent.folder import AGENT_LOCK, JobFolder
from mxcluster.errors import BadInput, MxclusterError
from mxcluster.model.answers import JobEntry
from mxcluster.model.names import MOST_OF_FIRST, attempt, is_job_id
from mxcluster.model.plan import NodePlan, Peer
from mxcluster.node import processes

LOCK = ".starting.lock"
PREPARED = 600.0  # the longest time from the preparation of a job to its first status (seconds)
RESTART = 120.0  # the longest time from the report of an attempt to the next attempt (seconds)
PATIENCE = 40.0  # seconds to wait for the start of another job, longer than any start
WAITS = ", which waits for room"  # after the name of a job that has a ticket and does not run


def held(root: str, but: Optional[str] = None) -> Dict[str, Dict[str, str]]:
    """Return the ports and GPUs that the jobs of this node hold, also waiting jobs ahead of `but`.

    The result is {"ports": {"127.0.0.11:9091": job name}, "gpus": {"0": job name}}.

    Args: `root` the folder of all job folders; `but` the name of a job to leave out.
    """
    ports, gpus = {}, {}  # type: Dict[str, str], Dict[str, str]
    for ticket in reversed(tickets.ahead_of(root, but)):  # the first one is named
        waiting = ticket.job + WAITS
        ports.update({"%s:%s" % (ticket.address, port): waiting for port in ticket.ports})
        gpus.update({str(number): waiting for number in ticket.gpus})
    for name in names(root):
        folder = JobFolder(os.path.join(root, name))
        if name == but or not runs(folder):
            continue
        plan = folder.known_plan()
        if plan is None:
            continue  # the probe finds the job's listening ports anyway
        entry = entry_of(name, plan)
        ports.update({"%s:%s" % (entry.address, port): name for port in entry.ports})
        gpus.update({str(number): name for number in entry.gpus})
    return {"ports": ports, "gpus": gpus}


def runs(folder: JobFolder) -> bool:
    """Return True if the agent of the job in `folder` is alive."""
    try:
        known = folder.status()
        if known is None or known.has_ended:
            return False
        return processes.alive(processes.recorded(known.agent))
    except (MxclusterError, OSError):
        return False


def state_of(root: str, job: str) -> str:
    """Return "runs", "ended" or "unknown" for a job and its restarts on this node.

    A job that waits, or that may be about to start or to restart, runs. Args: `root` the folder of
    all job folders.
    """

    def is_meant(name: str) -> bool:
        return name == job or attempt(name)[0] == job[:MOST_OF_FIRST]

    if any(is_meant(ticket.job) for ticket in tickets.ahead_of(root, None)):
        return "runs"
    known = [name for name in names(root) if is_meant(name)]
    for folder in (JobFolder(os.path.join(root, name)) for name in known):
        with contextlib.suppress(OSError):  # the folder was removed
            if is_owned(folder) or _may_restart(folder):
                return "runs"
    return "ended" if known else "unknown"


def _may_restart(folder: JobFolder) -> bool:
    """Return True for RESTART seconds if another attempt may follow the attempt in `folder`.

    Between two attempts no process of the job runs.
    """
    with contextlib.suppress(MxclusterError):
        known, plan = folder.status(), folder.known_plan()
        if known and known.ended and known.has_failed and known.reason != "stopped" and plan:
            began = known.ended + plan.options.restart_delay
            return bool(plan.options.max_restarts) and time.time() < began + RESTART
    return False


def conflicts(plan: NodePlan, taken: Dict[str, Dict[str, str]]) -> List[str]:
    """Return a message for each port and GPU of `plan` that another job holds.

    `plan` is this node's part of the new job's plan. `taken` is the result of `held`.
    """
    new = entry_of(plan.job, plan)
    keys = {port: "%s:%s" % (new.address, port) for port in sorted(new.ports)}
    lines = [
        "port %s on %s is held by the job %s" % (port, new.address, _first(taken["ports"][key]))
        for port, key in keys.items()
        if key in taken["ports"]
    ]
    lines += [
        "GPU %d is held by the job %s" % (number, _first(taken["gpus"][str(number)]))
        for number in new.gpus
        if str(number) in taken["gpus"]
    ]
    return [
        line + ": wait until that job has ended, or run train.yml again. With root_port=auto and "
        "gpus=auto the new plan takes free ports and GPUs"
        for line in lines
    ]


def _first(job: str) -> str:
    """Return the name of a holder from `held` with the reason of its priority."""
    return job if job.endswith(WAITS) else job + ", which started first"


def open_lock(path: str) -> int:
    """Return a descriptor of the lock file `path`, which has mode 0600.

    With this mode only the owner can open and lock the file.
    """
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    os.fchmod(lock, 0o600)  # an earlier version may have made the file with another mode
    return lock


@contextlib.contextmanager
def starting(folder: JobFolder) -> Iterator[int]:
    """Hold the node's start lock, so that one job at a time claims ports and GPUs.

    Yields the descriptor of the lock. Raises MxclusterError if another job still holds the lock
    after PATIENCE seconds.
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
                    raise MxclusterError(
                        "another job has been starting on this node for %d s (%s is locked): find "
                        "that job with status.yml, and run train.yml after the start of that job"
                        % (PATIENCE, path)
                    ) from error
                time.sleep(0.05)
        yield lock
    finally:
        os.close(lock)


def claim(folder: JobFolder, plan: NodePlan) -> None:
    """Raise Taken if another job holds a port or GPU of `plan`. The caller must hold `starting`.

    The function also removes files of ended jobs (see `clear`), because every start of a job on the
    node calls this function.
    """
    root, own = os.path.split(folder.path)
    clear(root, but=own)
    lines = conflicts(plan, held(root, but=own))
    if lines:
        raise Taken("\n".join(lines))


def clear(root: str, but: Optional[str] = None) -> List[str]:
    """Remove tokens, leases, disk reserves and secrets of ended jobs. Return these jobs' names.

    Such files stay on disk after a power loss, or if both the agent and the controller were killed.
    The function skips the job `but`, and each job whose agent lives or may be about to start.

    Args: `root` the folder of all job folders.
    """
    cleared = []
    for folder in (JobFolder(os.path.join(root, name)) for name in names(root) if name != but):
        with contextlib.suppress(OSError):  # another user owns the folder, or it was removed
            if not os.path.islink(folder.path) and folder.spent() and not is_owned(folder):
                folder.tidy()
                cleared.append(os.path.basename(folder.path))
    return cleared


def is_owned(folder: JobFolder) -> bool:
    """Return True if the agent of the job in `folder` lives, or may be about to start.

    An agent holds the lock of its folder for as long as it lives. The agents of a batch job are on
    other machines, and its own commands find their end.
    """
    with contextlib.suppress(MxclusterError):
        known = folder.status()
        if known and known.batch and not known.has_ended:
            return True
    if (
        not os.path.exists(folder.file("status.json"))
        and time.time() - os.stat(folder.path).st_mtime < PREPARED
    ):
        return True
    try:
        lock = os.open(folder.file(AGENT_LOCK), os.O_RDWR | os.O_NOFOLLOW)
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
    """The error for a job that needs a port or GPU of another job."""


def names(root: str) -> List[str]:
    """Return the sorted names of the folders in `root` that can be job folders."""
    try:
        return sorted(
            name
            for name in os.listdir(root)
            if is_job_id(name) and os.path.isdir(os.path.join(root, name))
        )
    except FileNotFoundError:
        return []


def entry_of(job: str, plan: NodePlan) -> JobEntry:
    """Return the summary of a prepared `job`. `plan`: this node's part of the plan."""
    own: Sequence[Peer] = plan.processes
    if not own and plan.rendezvous:  # a job of verify.yml has a rendezvous only
        own = plan.rendezvous.own
    return JobEntry(
        job=job,
        state="prepared",
        kv=plan.kv,
        lease=plan.lease,
        saves=plan.options.savemodel,
        address=min((part.address for part in own if part.port), default=None),
        ports={str(part.port): part.name for part in own if part.port},
        gpus=sorted({number for part in plan.processes for number in part.gpus}),
        nodes=sorted({peer.host for peer in plan.peers} | {plan.host}),
    )
