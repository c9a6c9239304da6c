"""Run the agent of a job in this process, or start a process that does so.

`run` is the only way to become an agent: `python -m mxcluster.agent run --job-dir DIR`. The unit
mxcluster-agent@<job>.service runs this command. Without a unit `start` runs the command in a
session of its own. The agent then outlives the connection of the controller, or ends with the
program that an engine or a batch system has started (see `agent.engine` and `entry.server`).
"""

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from typing import Iterator, Optional

from mxcluster.agent import claims, machine_file, tickets
from mxcluster.agent.folder import AGENT_LOCK, JobFolder
from mxcluster.agent.log_files import readable
from mxcluster.agent.supervisor import SIGNALS, Supervisor
from mxcluster.errors import BadInput, MxclusterError, of_system
from mxcluster.model.plan import NodePlan
from mxcluster.model.protocol import Prepare
from mxcluster.node import json_cli, processes

# Seconds until an agent must have started its processes, as in the unit. The agent may wait for the
# start of another job.
TIMEOUT = 60.0
# The longest time in seconds from the writing of a plan to the start of the job's agent. The time
# includes TIMEOUT, the wait for another start on the node, and the delay of a slow systemd.
STARTING = 120.0


def start(folder: JobFolder, files: Optional[Prepare] = None, signum: Optional[int] = None) -> None:
    """Start the agent of a job folder. Return after the agent has written its first status.json.

    Args:
        folder: the job folder.
        files: the files of the job, which the function first writes. None if the folder holds them.
        signum: the signal that the agent gets at the end of this process. None for an agent that
            outlives this process.

    If the same job (plan and token) already runs in the folder, the function returns at once. In
    this case the controller has repeated a call whose reply was lost.

    Raises BadInput if the folder holds another job, or if another job holds a port or GPU of the
    plan. Raises MxclusterError with the end of agent.log if the agent fails to start. After
    a failure the function removes the job folder, unless the caller prepared the folder earlier.
    """
    has_written = False
    if files is None:
        folder.plan()  # raises BadInput for a folder without a plan
        folder.make()
    else:
        has_written = prepare(folder, files)
    try:
        with claims.starting(folder):
            if files is not None and claims.runs(folder):
                return
            with _locked(folder):
                _check(folder, folder.plan())
        _start_program(folder, signum)
    except BaseException:
        if has_written:
            _forget(folder)
        raise


def spawn(
    folder: JobFolder, program: str, log_name: str, signum: Optional[int] = None
) -> "subprocess.Popen[bytes]":
    """Start a program of `mxcluster.agent` in a session of its own.

    Args: `program` as in `agent.__main__`; `log_name` the log for its output; `signum` as for
    `start`.
    """
    log, me = folder.open_log(log_name), os.getpid()
    isolated = ["-I"] if sys.flags.isolated else []
    try:
        return subprocess.Popen(
            [sys.executable, *isolated, "-m", "mxcluster.agent", program, "--job-dir", folder.path],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            start_new_session=True,
            preexec_fn=(lambda: processes.set_pdeathsig(me, signum)) if signum else None,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise MxclusterError(
            "cannot run %s on this node (%s): run provision.yml, which checks this Python"
            % (sys.executable, error)
        ) from error
    finally:
        os.close(log)


def _start_program(folder: JobFolder, signum: Optional[int]) -> None:
    """Start `run`, and wait for the first status.json. See `start`."""
    path = folder.file("agent.log")
    # Open it before the start: the agent removes the folder of a refused job.
    with open(os.open(path, os.O_RDONLY | os.O_CREAT, 0o644), "rb") as log:
        agent = spawn(folder, "run", "agent", signum)
        deadline = time.monotonic() + TIMEOUT
        while True:
            has_ended = agent.poll() is not None  # before the look, so that it sees every end
            status = folder.status()
            cause = status.first_failure if status else None
            if status and (cause is None or cause.role != "agent"):
                agent.returncode = 0  # Popen must not warn of a process that outlives its parent
                return
            if has_ended or time.monotonic() > deadline:
                break
            time.sleep(0.02)
        agent.kill()
        agent.wait()
        lines = readable(log.read())
    error = json_cli.error_in(lines)  # the agent's own error
    lines += [cause.reason] if cause else []  # on a full disk the log lacks it
    raise MxclusterError(
        error
        or "the agent did not start. Correct the error in the log below, and run the playbook "
        "again. The end of %s:\n%s"
        % (path, "\n".join(lines or ["(nothing)"]))
    )


def prepare(folder: JobFolder, files: Prepare) -> bool:
    """Write the files that a job needs before its start. Return True if the function wrote them.

    A repeated call for the same job (plan and token) returns False. Raises BadInput if the folder
    holds another job.
    """
    folder.make()
    with claims.starting(folder):
        if folder.has(files):
            return False
        with _locked(folder):
            check_unused(folder)
            _write(folder, files)
    return True


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
        with _locked(folder):
            folder.remove()
    except (BadInput, FileNotFoundError):  # the job's agent lives, or the folder is gone
        return False
    return not os.path.exists(folder.path)


def _write(folder: JobFolder, files: Prepare) -> None:
    if os.path.exists(folder.file("plan.json")):
        raise BadInput(_prepared(folder, time.time() - os.stat(folder.file("plan.json")).st_mtime))
    _claim(folder, files.plan)
    try:
        folder.prepare(files)
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
    """Run the agent of a job folder in this process until the job has ended.

    After the start of the job's processes, the function sends READY=1 to systemd.
    """
    for signum in SIGNALS:
        signal.signal(signum, signal.SIG_DFL)  # a process inherits ignored signals from its parent
    with contextlib.ExitStack() as until_started:
        plan = folder.plan()
        until_started.enter_context(claims.starting(folder))

        def ready() -> None:
            tickets.remove(os.path.dirname(folder.path), plan.job)
            until_started.close()  # from now on other jobs see the ports and GPUs of this job
            processes.tell_systemd()
            machine_file.write(folder, plan)

        with _locked(folder):
            _check(folder, plan)
            os.chdir(folder.path)
            log = folder.open_log("agent")
            os.dup2(log, 2)  # the agent's notes go to stderr; the caller sees only start and end
            os.close(log)
            Supervisor(folder, plan).run(ready=ready)


def _check(folder: JobFolder, plan: NodePlan) -> None:
    """Check that the job of the folder may start. See `start` for the errors."""
    check_unused(folder)
    _claim(folder, plan)


def check_unused(folder: JobFolder) -> None:
    """Raise BadInput if a job has run in `folder` before."""
    status = folder.status()
    if status is not None:
        raise BadInput(
            "%s holds a job that has ended already (%s): choose another job_id"
            % (folder.path, status.reason or "its agent was killed")
        )


@contextlib.contextmanager
def _locked(folder: JobFolder) -> Iterator[None]:
    """Hold the folder's lock. Raises BadInput if another agent holds the lock.

    The kernel releases the lock if this process ends.
    """
    lock = claims.open_lock(folder.file(AGENT_LOCK))
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        status = folder.status()
        os.close(lock)
        job = os.path.basename(folder.path)
        agent = status.agent.pid if status else "not known yet"
        raise BadInput(
            "another controller has started the job %s (%s, agent pid %s), and this job runs: %s"
            % (job, folder.path, agent, _instead(job))
        ) from error
    try:
        yield
    finally:
        os.close(lock)
