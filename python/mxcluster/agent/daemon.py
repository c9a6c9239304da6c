"""How an agent comes to life: away from the terminal and from the connection that started it, and never twice.

Either it detaches itself (`start`), or systemd runs it as an instance of mxcluster-agent@.service (`run`).
"""
import contextlib
import fcntl
import os
import select
import signal
import time
import traceback
from typing import Callable, Dict, Optional

from mxcluster import processes
from mxcluster.agent import claims
from mxcluster.agent.folder import JobFolder, Json
from mxcluster.agent.supervisor import SIGNALS, Supervisor
from mxcluster.errors import BadInput, MxclusterError

TIMEOUT = 30.0  # seconds until an agent must have started its processes
READY = b"ready\n"
STARTING = 120.0  # seconds from a plan to its agent: TIMEOUT, the wait for another start on the node, and a slow systemd


def start(folder: JobFolder, plan: Optional[Json] = None, secret_env: Optional[Dict[str, str]] = None,
          token: Optional[str] = None, script: Optional[str] = None) -> None:
    """Start the agent of a job folder, in which `plan` is written first; returns once it has written its first status.json.

    Asked again for the job that has just been started, it returns as well: the first answer was lost on its way.
    Raises BadInput if the folder holds another job already or another one holds what it wants, and MxclusterError with the end
    of agent.log if the agent does not get that far; then nothing is left of what was brought for the job.
    """
    if plan is None:
        folder.plan()  # refuses a folder that is none
    folder.make()
    with claims.starting(folder):
        if plan is None or not (folder.has(plan, token) and claims.runs(folder)):
            _start(folder, plan, secret_env, token, script)


def _start(folder: JobFolder, plan: Optional[Json], secret_env: Optional[Dict[str, str]], token: Optional[str],
           script: Optional[str]) -> None:
    brought = False
    try:
        lock = _lock(folder)
        try:
            check_unused(folder)
            if plan is not None:
                _write(folder, plan, secret_env, token, script)
                brought = True
            heard = _fork(folder, folder.plan(), lock)
        finally:
            os.close(lock)  # the agent keeps its copy of it, and with it the lock, as long as it lives
        if heard != READY:
            raise MxclusterError("\n".join(["the agent in %s did not start; the end of its agent.log:" % folder.path]
                                           + (folder.log_lines("agent") or ["(nothing)"])))
    except BaseException:
        if brought:
            _forget(folder)
        raise


def _fork(folder: JobFolder, plan: Json, lock: int) -> bytes:
    """Let a child become the agent: what that says."""
    _claim(folder, plan)
    hear, tell = os.pipe()
    child = os.fork()
    if child == 0:
        _become_agent(folder, plan, tell, lock)
    os.close(tell)
    os.waitpid(child, 0)
    try:
        return _hear(hear, time.monotonic() + TIMEOUT)
    finally:
        os.close(hear)


def prepare(folder: JobFolder, plan: Json, secret_env: Optional[Dict[str, str]] = None, token: Optional[str] = None,
            script: Optional[str] = None) -> None:
    """Write what a job needs before it starts. BadInput if the folder holds another job already."""
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
    """Remove a job that was prepared and has not started; whether there was one. One that is being started is waited for."""
    if not os.path.exists(folder.file("plan.json")):
        return False
    with claims.starting(folder):
        return _forget(folder)


def _forget(folder: JobFolder) -> bool:
    try:
        lock = _lock(folder)
    except (BadInput, FileNotFoundError):  # its agent lives, or there is no folder any more
        return False
    try:
        folder.remove()
    finally:
        os.close(lock)
    return not os.path.exists(folder.path)


def _write(folder: JobFolder, plan: Json, secret_env: Optional[Dict[str, str]], token: Optional[str],
           script: Optional[str]) -> None:
    if os.path.exists(folder.file("plan.json")):
        raise BadInput(_prepared(folder, time.time() - os.stat(folder.file("plan.json")).st_mtime))
    _claim(folder, plan)
    folder.prepare(plan, secret_env, token, script)


def _prepared(folder: JobFolder, age: float) -> str:
    """The refusal of a folder whose plan was written `age` seconds ago, and whose agent has not started."""
    job = os.path.basename(folder.path)
    if age < STARTING:
        return "another controller has just started the job %s (%s): %s" % (job, folder.path, _instead(job))
    return ("%s holds a job that was prepared %d minutes ago and has not started: choose another job_id, or remove it with "
            "stop.yml -e job=%s" % (folder.path, age // 60, job))


def _instead(job: str) -> str:
    """What a controller can do whose job id is another job's. Nothing that ends the other job."""
    return "choose another job_id, or wait for that job with train.yml -e attach=%s" % job


def _claim(folder: JobFolder, plan: Json) -> None:
    """Refuse a job that another has been faster than. Nothing is left of it: what was brought for it goes."""
    try:
        claims.claim(folder, plan)
    except claims.Taken:
        folder.remove()
        raise


def run(folder: JobFolder) -> None:
    """Be the agent of a job folder; returns when the job has ended. systemd learns when it has started its processes."""
    with contextlib.ExitStack() as until_started:
        plan = folder.plan()
        until_started.enter_context(claims.starting(folder))
        lock = _lock(folder)
        check_unused(folder)
        _claim(folder, plan)
        os.chdir(folder.path)
        log = folder.open_log("agent")
        os.dup2(log, 2)  # what the agent notes; whoever runs it hears of its start and its end only
        os.close(log)

        def ready():
            until_started.close()  # what it holds can be seen now
            processes.tell_systemd()
        try:
            Supervisor(folder, plan).run(ready=ready)
        finally:
            os.close(lock)


def check_unused(folder: JobFolder) -> None:
    """Refuse a folder that a job was run in before."""
    status = folder.status()
    if status is not None:
        raise BadInput("%s holds a job that has ended already (%s): choose another job_id"
                       % (folder.path, status.get("reason") or "its agent was killed"))


def _lock(folder: JobFolder) -> int:
    """A descriptor that holds the folder's lock. The kernel lets go of it when the last process that has it ends."""
    lock = claims.open_lock(folder.file("agent.lock"))
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        status = folder.status()
        os.close(lock)
        job, agent = os.path.basename(folder.path), status["agent"]["pid"] if status else "not known yet"
        raise BadInput("another controller has started the job %s (%s, agent pid %s), and it runs: %s"
                       % (job, folder.path, agent, _instead(job))) from error
    return lock


def _become_agent(folder: JobFolder, plan: Json, tell: int, lock: int) -> None:
    """In the forked child: fork once more, so as to lead no session and be init's child, then run the supervisor.

    Never returns: what is on the stack belongs to the parent.
    """
    try:
        os.setsid()
        if os.fork() == 0:
            os.chdir(folder.path)
            _detach_files(folder, keep=(tell, lock))
            for signum in SIGNALS:
                signal.signal(signum, signal.SIG_DFL)  # whoever started us may have ignored them: that is inherited
            Supervisor(folder, plan).run(ready=_teller(tell))
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def _detach_files(folder: JobFolder, keep: tuple) -> None:
    """stdin from /dev/null, stdout and stderr to agent.log, everything else but `keep` closed: whoever started the
    agent (ssh, ansible) waits for the other ends of the pipes that it gave us."""
    null, log = os.open(os.devnull, os.O_RDONLY), folder.open_log("agent")
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        if descriptor > 2 and descriptor not in keep:
            try:
                os.close(descriptor)
            except OSError:  # the one that listed the directory
                pass


def _teller(tell: int) -> Callable[[], None]:
    def ready():
        try:
            os.write(tell, READY)
        except OSError:  # whoever started us has not waited; the lease decides what becomes of the job
            pass
        os.close(tell)
    return ready


def _hear(descriptor: int, deadline: float) -> bytes:
    """What comes until the other end is closed, or until `deadline` (monotonic seconds)."""
    heard = b""
    while select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]:
        piece = os.read(descriptor, 64)
        if not piece:
            break
        heard += piece
    return heard
