"""Submit a job to a batch system, read its status, and stop it, on the submit host.

All nodes of the job share the job folder of the submit host. The folder holds the submission
(`job.plan.submission`) as plan.json, the status that the head writes (`mxcluster.batch.head`), and
a job folder for each node (see `JobFolder.parts`). The agents run on other machines, so a pid does
not show that they run. The head writes the file BEAT every second. If BEAT is old, this module asks
the batch system for the state of the job.
"""

import os
import shlex
import sys
import tempfile
import time
from typing import Dict, List, Optional, Tuple

from mxcluster import batch_systems
from mxcluster.agent import claims
from mxcluster.agent.folder import BEAT, ORDER, JobFolder
from mxcluster.agent.waiting import until
from mxcluster.errors import BadInput, MxclusterError
from mxcluster.file_io import read_json
from mxcluster.model import failures
from mxcluster.model.answers import NodeResult, Stopped
from mxcluster.model.failures import Failure
from mxcluster.model.plan import NodePlan
from mxcluster.model.protocol import Prepare
from mxcluster.model.record import record
from mxcluster.model.shapes import table, words
from mxcluster.model.status import BatchState, Status
from mxcluster.model.submission import MOST
from mxcluster.node import processes

PARTS, PLANNED = "parts.json", "planned.json"  # files of the head: leftovers and lost nodes; plan
LOG = "batch"  # batch.log has the output of the head
SILENT = 4.0  # seconds without a beat before the first question to the batch system
LOST = 40.0  # seconds without a beat after which the head of a running job counts as lost
# A job has more time if the batch system is ending its processes, or has ended it without a reason:
# the accounting of Grid Engine is up to 15 s late.
ENDING = 3 * LOST
ACCOUNTS = 20.0
ENDS = 40.0  # timeout for the head's end of the job, in seconds; then the batch system cancels it
LEAVES = 10.0  # seconds until an ended job counts as a leftover in the batch system
VALID = 2.0  # seconds for which an answer of the batch system is valid
POLL = 0.5  # seconds between two checks
_parts = table(words, record(NodeResult), MOST)  # the content of PARTS
_answers: Dict[str, Tuple[float, batch_systems.State]] = {}  # job folder -> time, answer


def start(folder: JobFolder, files: Prepare) -> None:
    """Submit the job with these `files` to the batch system. The plan is a submission.

    A repeated call for the same job (plan and token) does nothing. Raises BadInput if the folder
    holds another job. Raises MxclusterError if the batch system refuses the job; the function then
    removes the folder.
    """
    folder.make()
    with claims.starting(folder):
        if folder.has(files) and folder.status():
            return
        if os.path.exists(folder.file("plan.json")):
            raise BadInput("%s holds another job: choose another job_id" % folder.path)
        plan, submission = files.plan, files.plan.batch
        assert submission  # only a submission comes here
        engine = batch_systems.of(submission.launcher)
        try:
            folder.prepare(files.replaced(script=None))
            if files.script:
                folder.write_private("script.b64", files.script)
            folder.write_private(ORDER, "")
            folder.begin_lease()
            script = shell_script(folder)
            number = engine.submit(folder.path, plan.job, submission.request, script)
        except BaseException:
            folder.remove()
            raise
        folder.write_status(status_of(plan, number))


def shell_script(folder: JobFolder) -> str:
    """Return the text of the shell script that runs the head on the first node of the job."""
    argv = [sys.executable, "-I", "-m", "mxcluster.batch.head", folder.path]
    return "#!/bin/sh\nexec %s\n" % " ".join(map(shlex.quote, argv))


def status_of(plan: NodePlan, number: str) -> Status:
    """Return the first status of a submitted job. `number`: the id in the batch system."""
    me = processes.identity(os.getpid())
    assert me  # this process runs
    return Status(
        job=plan.job,
        host=plan.host,
        kv=plan.kv,
        agent=me.record,
        started=time.time(),
        processes=[],
        batch=BatchState(launcher=plan.launcher, id=number),
    )


def look(folder: JobFolder, known: Status, tidy: bool, reason: str = "failed") -> Status:
    """Return the status of a job without an end: `known`, or the end that the head did not write.

    `known`: the status in the folder. `tidy`: True to write the status of such an end, and to
    cancel the job in the batch system. `reason`: the reason of such an end.
    """
    silent = silence(folder)
    if silent is not None and silent < SILENT:
        return known
    state = answer(folder, known)
    if state.phase == "waits" and silent is None:
        return known.replaced(batch=of_batch(known).replaced(phase="waits", why=state.why))
    ended = state.phase == "ended"
    if silent is None and not ended and state.phase != "stuck":
        return known.replaced(batch=of_batch(known).replaced(phase="starts"))
    if silent is not None and silent < patience(state):
        return known
    known = folder.status() or known  # the head may have written the last status since
    if known.has_ended:
        return known
    job, cause = of_batch(known), None
    if reason != "stopped":
        text, kind = why_ended(folder, known, state, silent)
        cause = failed(folder, known, text, kind)
    if state.why or job.signal:
        # The batch system has killed the processes, so the failure of a process is no cause.
        known = known.replaced(first_failure=None)
    last = end(known, reason, cause)
    if tidy:
        if not ended:
            batch_systems.of(job.launcher).cancel(job.id)
        folder.tidy()
        folder.write_status(last)
    return last


def close(folder: JobFolder) -> bool:
    """Write the last status of a batch job that the batch system has ended, and tidy its folder.

    Return True in this case. The head writes no such status if the batch system cancels the job.
    The function cancels no job, because a job without a beat may still run.
    """
    known = folder.status()
    if known is None or not known.batch or known.has_ended:
        return False
    last = look(folder, known, False)
    if not last.has_ended or answer(folder, known).phase != "ended":
        return False
    folder.tidy()
    folder.write_status(last)
    return True


def patience(state: batch_systems.State) -> float:
    """Return the seconds without a beat after which a job in `state` has ended for mxcluster."""
    if state.phase == "ended":
        return SILENT if state.why or state.again else ACCOUNTS
    if state.phase in ("stuck", "waits"):  # the head has run, so a waiting job was requeued
        return SILENT
    return ENDING if state.phase == "ends" else LOST


def why_ended(
    folder: JobFolder, known: Status, state: batch_systems.State, silent: Optional[float]
) -> Tuple[str, str]:
    """Return (reason, kind) of the end of a job whose head has not written the last status.

    `silent`: see `silence`. See `failed` for the kinds.
    """
    job, kind = of_batch(known), failures.NODE if state.again else failures.BATCH
    name, number = batch_systems.facts(job.launcher).title, job.id
    if state.phase == "ended" and state.why:
        return "%s has ended the job %s: %s" % (name, number, state.why), kind
    if state.phase == "stuck":
        return (
            "%s could not start the job %s: %s. Check that all nodes share %s, and that the "
            "training user can write to it" % (name, number, state.why, folder.path)
        ), kind
    if silent is None:
        return (
            "the job %s of %s ended before it wrote to %s: check that all nodes share this folder, "
            "and that %s runs on them" % (number, name, folder.path, sys.executable)
        ), failures.BATCH
    if state.phase == "ended" and job.signal:
        return (
            "the program of mxcluster on the first node of the job %s got signal %s, and %s gives "
            "no reason: the node was shut down, or a program has sent the signal"
            % (number, job.signal, name)
        ), kind
    if state.phase == "ended" and state.again:  # no user and no limit is the cause
        return (
            "the program of mxcluster on the first node of the job %s ended without its last "
            "status: read the end of batch.log" % number
        ), failures.BATCH
    if state.phase == "ended":
        return (
            "%s has ended the job %s: a user deleted it, or a limit was over. Read the accounting "
            "of %s" % (name, number, name)
        ), failures.BATCH
    if state.phase == "waits":
        return (
            "%s has put the running job %s back into the queue, which ends all of its processes"
            % (name, number)
        ), failures.NODE
    if state.phase == "suspended":
        return (
            "%s has suspended the job %s for %.0f s: its processes miss each other"
            % (name, number, silent)
        ), failures.NODE
    return (
        "the first node of the job %s has not written to %s for %.0f s: the node or its file "
        "system is gone" % (number, folder.path, silent)
    ), (failures.BATCH if state.phase == "ends" else failures.NODE)


def failed(folder: JobFolder, known: Status, cause: str, kind: str = failures.BATCH) -> Failure:
    """Return the first failure of a job that ended because of `cause` (text).

    `kind`: NODE if a node or the batch system is the cause, so that another attempt may succeed,
    else BATCH.
    """
    try:
        lines = folder.log_lines(LOG)
    except OSError:  # the shared file system has a fault, which may be the cause
        lines = []
    return failures.of_agent(known.host, kind, cause, time.time(), lines)


def end(known: Status, reason: str, cause: Optional[Failure]) -> Status:
    """Return the last status of a job. `cause`: the first failure if `known` has none."""
    first = known.first_failure or cause
    return known.ended_by(reason, time.time(), rendezvous=None, first_failure=first)


def silence(folder: JobFolder) -> Optional[float]:
    """Return the seconds since the last beat of the head, None before the first beat.

    Both times come from the clock of the file system. A network file system asks its server for
    the times of a file when a program opens or makes the file. The new file has no name, because
    the head may remove its files at any moment. The new file has no content, because the disk may
    be full.
    """
    try:
        with open(folder.file(BEAT), "rb") as stream:
            beat = os.fstat(stream.fileno()).st_mtime
    except OSError:
        return None
    draft = ".%d" % os.getpid()  # for file systems without files that have no name
    with tempfile.TemporaryFile(dir=folder.path, prefix=".clock", suffix=draft) as stream:
        return max(0.0, os.fstat(stream.fileno()).st_mtime - beat)


def answer(folder: JobFolder, known: Status, anew: bool = False) -> batch_systems.State:
    """Return the State of the job in the batch system. An answer is valid for VALID seconds.

    `anew`: True to ask again in any case.
    """
    when, state = _answers.get(folder.path, (0.0, batch_systems.State("unknown", "")))
    if anew or not when or time.monotonic() - when > VALID:
        state = batch_systems.of(of_batch(known).launcher).state(of_batch(known).id)
        _answers[folder.path] = time.monotonic(), state
    return state


def stop(folder: JobFolder, known: Status, reason: str) -> Stopped:
    """End a job, and return the answer without leftovers. `reason`: "stopped" or "peer".

    The head ends the agents. If the head needs more than ENDS seconds, or if the job waits in the
    queue, the batch system cancels the job. Raises MxclusterError if the batch system may still
    have the job after ENDS seconds. The folder then keeps the order, and the job counts as running.
    """
    job = of_batch(known)
    folder.write_private(ORDER, reason)
    if silence(folder) is not None:
        until(lambda: look(folder, folder.status() or known, False).has_ended, ENDS, POLL)
    batch_systems.of(job.launcher).cancel(job.id)
    remaining = _remaining_job(folder, known, ENDS)
    last = folder.status() or known
    if remaining and not last.has_ended:
        raise MxclusterError(remaining + ". Then run stop.yml again")
    folder.tidy()  # also the order, if the head has ended before it came
    if not last.has_ended:
        last = end(last, reason, None)
        folder.write_status(last)
    return Stopped(ran=True, status=last)


def left(folder: JobFolder, known: Status) -> List[str]:
    """Return a line for each leftover of an ended job, on the nodes and in the batch system."""
    try:
        parts = read_json(folder.file(PARTS), _parts) or {}
    except (BadInput, OSError):  # the lines are lost
        parts = {}
    lines = [
        "%s: %s" % (host, line) for host, part in sorted(parts.items()) for line in part.left or []
    ]
    remaining = _remaining_job(folder, known, LEAVES)
    return lines + [remaining] if remaining else lines


def _remaining_job(folder: JobFolder, known: Status, seconds: float) -> str:
    """Wait until the job has ended in the batch system. Return "" then.

    Return a line for the user if the batch system may still have the job after `seconds`.
    """
    if until(lambda: answer(folder, known, anew=True).phase == "ended", seconds, POLL):
        return ""
    job = of_batch(known)
    is_mute = answer(folder, known).phase == "unknown"
    what = "does not answer, so it may still have" if is_mute else "still has"
    facts = batch_systems.facts(job.launcher)
    return "%s %s the job %s: run `%s %s`" % (facts.title, what, job.id, facts.cancel, job.id)


def script_of(folder: JobFolder) -> Optional[str]:
    """Return the script's folder as a zip file in base64, None without a script."""
    try:
        with open(folder.file("script.b64"), encoding="ascii") as stream:
            return stream.read()
    except FileNotFoundError:
        return None


def of_batch(known: Status) -> BatchState:
    """Return the state of a submitted job in its batch system."""
    assert known.batch, "only the status of a submitted job comes here"
    return known.batch
