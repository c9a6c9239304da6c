"""The commands of the agent, as functions that take the request and return the answer."""

import contextlib
import os
import signal
import time
from typing import Callable, Dict, List, Optional

from mxcluster.agent import (
    batch_job,
    checkpoint_transfer,
    daemon,
    leftovers,
    retention,
    runtimes,
    shared_folder,
)
from mxcluster.agent.folder import LOG_TAIL, JobFolder, Process
from mxcluster.agent.kept_files import Mark, mark
from mxcluster.agent.log_files import new_lines
from mxcluster.agent.supervisor import STOPS
from mxcluster.agent.waiting import until
from mxcluster.errors import BadInput, MxclusterError
from mxcluster.model import answers, failures, protocol
from mxcluster.model.engine import ProgramEnd
from mxcluster.model.events import Latest
from mxcluster.model.status import LatestPulse, Status
from mxcluster.node import processes, quota
from mxcluster.training import pulse_file

POLL = 0.2  # seconds between two reads of the status
GLANCE = 0.02  # seconds between two looks for a change of the status
WAITS = 0.03  # the part of a quota below one CPU that waits for a job take
MOST_WAIT = 15.0  # seconds to which such a quota lengthens a wait
PAUSE = 0.05  # seconds between two looks at an ending agent
STOP_TIMEOUT = 10.0  # seconds until a stop kills the agent


def prepare(request: protocol.Prepare) -> answers.JobStarted:
    """Write the files that a job needs before its start.

    Raises BadInput if the folder holds another job.
    """
    folder = JobFolder(request.job_dir)
    retention.remove(os.path.dirname(folder.path), request.remove)
    daemon.prepare(folder, request)
    return answers.JobStarted(job=request.plan.job)


def run(folder: JobFolder) -> ProgramEnd:
    """Run the agent of a prepared job until the job has ended. The job's unit runs this program."""
    daemon.run(folder)
    known = look(folder)
    return ProgramEnd(job=known.job, reason=known.reason)


def start(request: protocol.Start, signum: Optional[int] = None) -> answers.AgentStarted:
    """Start the agent of a job.

    The function first writes the plan into the folder, unless the same job already runs in the
    folder. Without a plan the folder must hold a plan from `prepare`. `signum`: see
    `daemon.start`. Raises BadInput if the folder holds another job.
    """
    folder = JobFolder(request.job_dir)
    if request.shared is not None:
        request = shared_folder.complete(request, request.shared)
    files = None if request.plan is None else request.turned_into(protocol.Prepare)
    is_batch = files is not None and files.plan.batch is not None
    retention.remove(os.path.dirname(folder.path), request.remove)  # the next look names problems
    try:
        if files is not None and is_batch:
            batch_job.start(folder, files)
        else:
            daemon.start(folder, files, signum)
    except BaseException:
        if files is None and folder.status() is None:  # no other command removes the token
            folder.forget_token()
        raise
    finally:
        if not is_batch:  # the head reads the file when the job starts
            folder.forget_secret_env()  # an agent that failed early has not read the file
    known = look(folder)
    return answers.AgentStarted(job=known.job, status=known)


def wait(
    request: protocol.Wait, pause: Optional[Callable[[float], bool]] = None
) -> answers.Progress:
    """Wait for the end of the job. Return the status as `with_progress` does.

    `pause`: a function that sleeps for about the given seconds, and returns True if the wait must
    end now. By default each wait lasts until the end of the job or of its time.

    The function renews the lease during the whole wait. The lease then has to last only from one
    wait to the next. If the controller dies, the current wait still renews the lease. Hence a wait
    takes at most half of the lease.

    On a node with a quota below one CPU, a process for each wait would take much of the quota from
    the training. There a wait takes up to MOST_WAIT instead of `request.seconds`.
    """
    folder, seconds = JobFolder(request.job_dir), request.seconds
    look(folder)
    if request.took:
        checkpoint_transfer.take(folder, request.took)
    lease = folder.plan().lease  # a detached job has no lease
    if seconds > 0 and pause is None:
        longer = quota.least_pause(quota.own_cpu(), WAITS, quota.tightest())
        seconds = max(seconds, min(longer, MOST_WAIT))
    if lease:
        seconds = min(seconds, lease / 2)
    deadline = time.monotonic() + seconds
    held, path = seconds > 0, folder.file("status.json")
    while True:
        if lease:
            folder.renew_lease()
        seen = mark(path)
        known = look(folder, tidy=True)
        agent = processes.recorded(known.agent)
        held = held and not known.has_ended and processes.is_held(agent)
        rest = deadline - time.monotonic()
        if held and rest <= 0:
            # An agent that SIGSTOP has stopped can neither supervise the job nor record its end.
            _kill(agent)
            known = look(folder, tidy=True, kind=failures.AGENT_HELD)
        if known.has_ended or rest <= 0:
            return with_progress(folder, known)
        if pause is None:
            _until_changed(path, seen, min(POLL, rest))
        elif pause(min(POLL, rest)):
            return with_progress(folder, known)


def _until_changed(path: str, seen: Mark, seconds: float) -> None:
    """Wait for at most `seconds` until the `mark` of the file `path` is another than `seen`."""
    until(lambda: mark(path) != seen, seconds, GLANCE)


def status(request: protocol.Status) -> answers.Progress:
    """Return the job's status as `with_progress` does, without any change on the node."""
    folder = JobFolder(request.job_dir)
    return with_progress(folder, look(folder))


def stop(request: protocol.Stop) -> answers.Stopped:
    """End a running or prepared job. Raises MxclusterError if another user owns the agent."""
    folder = JobFolder(request.job_dir)
    reason = "lease" if request.lease else "peer" if request.peer else "stopped"
    return _stop(folder, reason).replaced(left=left(folder))


def left(folder: JobFolder) -> List[str]:
    """Return a line for each leftover of a job on this node, or on all nodes of a batch job."""
    known = folder.status()
    return batch_job.left(folder, known) if known and known.batch else leftovers.look(folder)


def _stop(folder: JobFolder, reason: str) -> answers.Stopped:
    if folder.status() is None and daemon.forget(folder):
        return answers.Stopped(ran=True, status=None)
    known = folder.status()
    if known is None or known.has_ended:
        return answers.Stopped(ran=False, status=known)
    if known.batch:
        return batch_job.stop(folder, known, reason)
    agent = processes.recorded(known.agent)
    try:
        processes.send(agent, {text: signum for signum, text in STOPS.items()}[reason])
        # An agent that SIGSTOP has stopped cannot end.
        until(lambda: look(folder).has_ended or processes.is_held(agent), STOP_TIMEOUT, PAUSE)
        if not look(folder).has_ended:
            _kill(agent)  # the agent hangs, or SIGSTOP has stopped it
            return answers.Stopped(ran=True, status=look(folder, tidy=True, reason=reason))
    except PermissionError as error:
        raise MxclusterError(
            "the agent of the job in %s (pid %d) runs as another user: set mxcluster_user to that "
            "user, and run stop.yml again" % (folder.path, agent.pid)
        ) from error
    return answers.Stopped(ran=True, status=look(folder, tidy=True))


def logs(request: protocol.Logs) -> answers.Logs:
    """Return the end of each log, or the new lines of logs that still grow.

    With `seconds` of the request, the function waits for a new line or for the end of the job.
    """
    folder, deadline = JobFolder(request.job_dir), time.monotonic() + request.seconds
    while True:
        known = folder.status() if request.seconds else None  # None also for a prepared job
        ended = not request.seconds or known is not None and look(folder).has_ended
        found = _logs(folder, request, ended)
        if ended or any(found.logs.values()) or time.monotonic() >= deadline:
            return found
        time.sleep(POLL)


def _logs(folder: JobFolder, request: protocol.Logs, ended: bool) -> answers.Logs:
    """Return the answer to `request` now.

    The names of a batch job's logs begin with the host, because the job folder holds the logs of
    all nodes. Args: `ended` True if the logs do not grow any more.
    """
    logs: Dict[str, List[str]] = {}
    offsets: Dict[str, int] = {}
    for part in [folder] + folder.parts():
        host = os.path.basename(os.path.dirname(part.path)) + "-" if part is not folder else ""
        for file in sorted(os.listdir(part.path)):
            short = file[: -len(".log")]
            if not file.endswith(".log") or request.only and short not in request.only:
                continue
            name, path = host + short, part.file(file)
            if request.offsets is None:
                offsets[name] = os.lstat(path).st_size
                lines, offsets[name] = new_lines(path, max(0, offsets[name] - LOG_TAIL), ended)
                logs[name] = lines[max(0, len(lines) - request.lines) :]
            else:
                logs[name], offsets[name] = new_lines(path, request.offsets.get(name, 0), ended)
    return answers.Logs(logs=logs, offsets=offsets, ended=ended)


def plan(request: protocol.ReadPlan) -> answers.WholePlan:
    """Return the plan of the whole job, for a controller that attaches to the job."""
    return answers.WholePlan(plan=JobFolder(request.job_dir).whole_plan().encode())


def look(
    folder: JobFolder,
    tidy: bool = False,
    reason: str = "failed",
    kind: str = failures.AGENT_KILLED,
) -> Status:
    """Return the status of the job, even if the agent was killed before it wrote the last status.

    If the agent was killed, the job has ended. The status then has `reason` as the reason of the
    end and a failure of the kind `kind`. With `tidy` the function also ends the leftover processes
    of a killed agent, and writes the last status. Raises BadInput if the folder has no status.
    """
    known = folder.status()
    if known is None:
        raise BadInput(
            "%s has no status.json, so no job has started there: use a job id that status.yml shows"
            % folder.path
        )
    if known.has_ended:
        return known
    if known.batch:
        return batch_job.look(folder, known, tidy, reason)
    if processes.alive(processes.recorded(known.agent)):
        return known
    # The agent may have written its last status since the first read.
    known = folder.status() or known
    if known.has_ended:
        return known
    roots = [processes.recorded(part) for part in known.processes if part.pid]
    roots += runtimes.of_folder(folder.path, processes.recorded(known.agent))
    left = processes.end_groups(roots) if tidy else processes.family(roots)
    when = folder.last_sign_of_life()
    cause = known.first_failure
    if reason == "failed" and cause is None:
        cause = failures.of_agent(known.host, kind, when=when, log=folder.log_lines("agent"))
    # No process has received the exit codes of the processes, so they stay unknown.
    parts = [
        part if processes.recorded(part) in left else part.at_end(when) for part in known.processes
    ]
    last = known.ended_by(
        reason, when, processes=parts, first_failure=cause, left=[who.record for who in left]
    )
    if tidy:
        leftovers.remove_containers(folder)
        with contextlib.suppress(OSError):  # a full disk: a later call computes the same status
            folder.tidy()
            folder.write_status(last)
    return last


def with_progress(folder: JobFolder, known: Status) -> answers.Progress:
    """Return the answer for the status `known`, with the latest events and pulses."""
    names: Dict[Process, str] = {(part.role, part.index): part.name for part in known.processes}
    progress: Dict[str, Latest] = {}
    pulses: Dict[str, LatestPulse] = {}
    for place in folder.parts() or [folder]:
        progress.update(place.progress(names))
        for name in names.values():
            pulse = pulse_file.read(pulse_file.file_of(place.path, name))
            if pulse:
                idle = max(0.0, time.time() - pulse.time)
                pulses[name] = LatestPulse(idle=idle, **vars(pulse))
    return answers.Progress(
        status=known,
        progress=progress,
        pulses=pulses,
        checkpoints=checkpoint_transfer.offered(folder),
    )


def _kill(agent: processes.Identity) -> None:
    """Kill the agent and wait for the agent's end. The agent's processes die with the agent."""
    processes.send(agent, signal.SIGKILL)
    until(lambda: not processes.alive(agent), STOP_TIMEOUT, PAUSE)
