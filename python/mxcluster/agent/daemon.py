"""Start the agent of a job once, detached from the terminal and the connection.

Without systemd, `start` forks the agent process, and this process detaches itself. Under systemd,
the process of the unit mxcluster-agent@<job>.service calls `run` and becomes the agent.
"""

import contextlib
import fcntl
import os
import select
import signal
import time
import traceback
from typing import Callable, Dict, List, Optional

from mxcluster.agent import claims
from mxcluster.agent.folder import AGENT_LOCK, JobFolder
from mxcluster.agent.supervisor import SIGNALS, Supervisor
from mxcluster.errors import BadInput, MxclusterError, of_system
from mxcluster.model.plan import NodePlan
from mxcluster.node import processes

TIMEOUT = 30.0  # seconds until an agent must have started its processes
READY = b"ready\n"
# The longest time in seconds from the writing of a plan to the start of the job's agent. The time
# includes TIMEOUT, the wait for another start on the node, and the delay of a slow systemd.
STARTING = 120.0


def start(
    folder: JobFolder,
    plan: Optional[NodePlan] = None,
    secret_env: Optional[Dict[str, str]] = None,
    token: Optional[str] = None,
    script: Optional[str] = None,
    holder: Optional[processes.Identity] = None,
) -> None:
    """Start the agent of a job folder. Return after the agent has written its first status.json.

    The function first writes the files of the job (see `JobFolder.prepare` for the arguments).
    Without `plan` the folder must already hold these files. If the same job (plan and token)
    already runs in the folder, the function returns at once. In this case the controller has
    repeated a call whose reply was lost.

    `holder`: the process that an engine has started on this node. The agent ends with the holder.

    Raises BadInput if the folder holds another job, or if another job holds a port or GPU of the
    plan. Raises MxclusterError with the end of agent.log if the agent fails to start. After
    a failure the function removes the job folder, unless the caller prepared the folder earlier.
    """
    if plan is None:
        folder.plan()  # raises BadInput for a folder without a plan
    folder.make()
    with claims.starting(folder):
        if plan is None or not (folder.has(plan, token) and claims.runs(folder)):
            _start(folder, plan, secret_env, token, script, holder)


def _start(
    folder: JobFolder,
    plan: Optional[NodePlan],
    secret_env: Optional[Dict[str, str]],
    token: Optional[str],
    script: Optional[str],
    holder: Optional[processes.Identity],
) -> None:
    brought = False
    try:
        lock = _lock(folder)
        try:
            check_unused(folder)
            if plan is not None:
                _write(folder, plan, secret_env, token, script)
                brought = True
            heard = _fork(folder, folder.plan(), lock, holder)
        finally:
            os.close(
                lock
            )  # the agent's copy of the descriptor holds the lock for as long as the agent lives
        if heard != READY:
            raise MxclusterError(
                "\n".join(
                    [
                        "the agent did not start. Correct the error in the log below, and run "
                        "the playbook again. The end of %s:" % folder.file("agent.log")
                    ]
                    + (folder.log_lines("agent") + _failure(folder) or ["(nothing)"])
                )
            )
    except BaseException:
        if brought:
            _forget(folder)
        raise


def _failure(folder: JobFolder) -> List[str]:
    """Return [reason] of a failed job, [] without a reason. On a full disk the log lacks it."""
    failure = (folder.status() or {}).get("first_failure")
    return [str(failure["reason"])] if failure else []


def _fork(
    folder: JobFolder, plan: NodePlan, lock: int, holder: Optional[processes.Identity]
) -> bytes:
    """Fork the agent. Return READY when the agent has started the job's processes.

    Returns b"" if the agent fails, or does not start the processes within TIMEOUT. Raises Taken if
    another job holds a port or GPU of `plan`.
    """
    _claim(folder, plan)
    hear, tell = os.pipe()
    child = os.fork()
    if child == 0:
        _become_agent(folder, plan, tell, lock, holder)
    os.close(tell)
    os.waitpid(child, 0)
    try:
        return _hear(hear, time.monotonic() + TIMEOUT)
    finally:
        os.close(hear)


def prepare(
    folder: JobFolder,
    plan: NodePlan,
    secret_env: Optional[Dict[str, str]] = None,
    token: Optional[str] = None,
    script: Optional[str] = None,
) -> None:
    """Write the files that a job needs before its start (see `JobFolder.prepare`).

    A repeated call for the same job (plan and token) returns at once. Raises BadInput if the folder
    holds another job.
    """
    folder.make()
    with claims.starting(folder):
        if folder.has(plan, token):
            return
        lock = _lock(folder)
        try:
            check_unused(folder)
            _write(folder, plan, secret_env, token, script)
        finally:
            os.close(lock)


def forget(folder: JobFolder) -> bool:
    """Remove a prepared job that has not started. Return True if the function removed a job.

    If a start of the job is under way, the function first waits for the end of this start.
    """
    if not os.path.exists(folder.file("plan.json")):
        return False
    with claims.starting(folder):
        return _forget(folder)


def _forget(folder: JobFolder) -> bool:
    try:
        lock = _lock(folder)
    except (BadInput, FileNotFoundError):  # the job's agent lives, or the folder is gone
        return False
    try:
        folder.remove()
    finally:
        os.close(lock)
    return not os.path.exists(folder.path)


def _write(
    folder: JobFolder,
    plan: NodePlan,
    secret_env: Optional[Dict[str, str]],
    token: Optional[str],
    script: Optional[str],
) -> None:
    if os.path.exists(folder.file("plan.json")):
        raise BadInput(_prepared(folder, time.time() - os.stat(folder.file("plan.json")).st_mtime))
    _claim(folder, plan)
    try:
        folder.prepare(plan, secret_env, token, script)
    except OSError as error:
        with contextlib.suppress(OSError):
            folder.remove()  # a full disk gets its space back
        raise MxclusterError(of_system(error, folder.path)) from error


def _prepared(folder: JobFolder, age: float) -> str:
    """Return the error message for a job folder with a prepared job and without an agent.

    `age`: seconds since the plan was written.
    """
    job = os.path.basename(folder.path)
    if age < STARTING:
        return "another controller has just started the job %s (%s): %s" % (
            job,
            folder.path,
            _instead(job),
        )
    return (
        "%s holds a job that was prepared %d minutes ago and has not started: choose another "
        "job_id, or remove that job with stop.yml -e job=%s" % (folder.path, age // 60, job)
    )


def _instead(job: str) -> str:
    """Return the advice for a user whose job id `job` belongs to another job.

    With this advice the other job runs on.
    """
    return "choose another job_id, or wait for that job with train.yml -e attach=%s" % job


def _claim(folder: JobFolder, plan: NodePlan) -> None:
    """Raise Taken and remove the job folder if another job holds a port or GPU of `plan`."""
    try:
        claims.claim(folder, plan)
    except claims.Taken:
        folder.remove()
        raise


def run(folder: JobFolder) -> None:
    """Run the agent of a job folder until the job has ended.

    After the start of the job's processes, the function sends READY=1 to systemd.
    """
    with contextlib.ExitStack() as until_started:
        plan = folder.plan()
        until_started.enter_context(claims.starting(folder))
        lock = _lock(folder)
        check_unused(folder)
        _claim(folder, plan)
        os.chdir(folder.path)
        log = folder.open_log("agent")
        os.dup2(log, 2)  # the agent's notes go to stderr; the caller sees only start and end
        os.close(log)

        def ready() -> None:
            until_started.close()  # from now on other jobs see the ports and GPUs of this job
            processes.tell_systemd()

        try:
            Supervisor(folder, plan).run(ready=ready)
        finally:
            os.close(lock)


def check_unused(folder: JobFolder) -> None:
    """Raise BadInput if a job has run in `folder` before."""
    status = folder.status()
    if status is not None:
        raise BadInput(
            "%s holds a job that has ended already (%s): choose another job_id"
            % (folder.path, status.get("reason") or "its agent was killed")
        )


def _lock(folder: JobFolder) -> int:
    """Return a descriptor that holds the folder's lock.

    The kernel releases the lock when the last process with the descriptor ends. Raises BadInput if
    another agent holds the lock.
    """
    lock = claims.open_lock(folder.file(AGENT_LOCK))
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        status = folder.status()
        os.close(lock)
        job, agent = (
            os.path.basename(folder.path),
            status["agent"]["pid"] if status else "not known yet",
        )
        raise BadInput(
            "another controller has started the job %s (%s, agent pid %s), and this job runs: %s"
            % (job, folder.path, agent, _instead(job))
        ) from error
    return lock


def _become_agent(
    folder: JobFolder, plan: NodePlan, tell: int, lock: int, holder: Optional[processes.Identity]
) -> None:
    """Run the agent in the forked child. The child forks the agent, and init adopts the agent.

    `tell`: the descriptor for READY. `lock`: the descriptor that holds the folder's lock. `holder`:
    the process with which the agent ends, None without an engine. The function never returns,
    because the code after its call is for the parent process.
    """
    try:
        os.setsid()
        if os.fork() == 0:
            os.chdir(folder.path)
            _detach_files(folder, keep=(tell, lock))
            for signum in SIGNALS:
                signal.signal(
                    signum, signal.SIG_DFL
                )  # a process inherits ignored signals from its parent
            Supervisor(folder, plan, holder).run(ready=_teller(tell))
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def _detach_files(folder: JobFolder, keep: tuple) -> None:
    """Connect stdin to /dev/null, and stdout and stderr to agent.log. Close other descriptors.

    `keep`: the descriptors that stay open. If the agent kept the pipes of the caller (ssh, Ansible)
    open, the caller would wait for the agent's end.
    """
    null, log = os.open(os.devnull, os.O_RDONLY), folder.open_log("agent")
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        if descriptor > 2 and descriptor not in keep:
            try:
                os.close(descriptor)
            except OSError:  # the descriptor that listed the directory
                pass


def _teller(tell: int) -> Callable[[], None]:
    def ready() -> None:
        try:
            os.write(tell, READY)
        except OSError:  # the starting process has ended; the job goes on while its lease holds
            pass
        os.close(tell)

    return ready


def _hear(descriptor: int, deadline: float) -> bytes:
    """Return the bytes from `descriptor` until the other end is closed or the deadline has passed.

    `deadline`: monotonic seconds.
    """
    heard = b""
    while select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]:
        piece = os.read(descriptor, 64)
        if not piece:
            break
        heard += piece
    return heard
