"""A job of a batch system, as the submit host sees it: start, look and stop.

The job folder on the submit host is shared by all nodes of the job. It holds the submission
(`job.plan.batch`) as plan.json, the status that the head writes (`mxcluster.batch.head`), and a job
folder for each node, see `JobFolder.parts`. The agents run on other machines, so no pid tells
whether they live. The head changes the file BEAT every second. If BEAT is old, the batch system
tells whether the job still runs.
"""

import json
import os
import shlex
import sys
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

from mxcluster.agent import claims
from mxcluster.agent.folder import BEAT, CLOCK, ORDER, JobFolder
from mxcluster.agent.supervisor import failure
from mxcluster.errors import BadInput
from mxcluster.node import batch_systems, processes

Json = Dict[str, Any]

AGENT = {"name": "agent", "role": "agent", "index": None}
PARTS, PLANNED = "parts.json", "planned.json"  # files of the head: its findings, and the plan
LOG = "batch"  # .log: the output of the head
SILENT = 4.0  # seconds without a beat after which the batch system is asked
LOST = 40.0  # seconds without a beat after which the head of a running job counts as lost
ENDS = 40.0  # seconds in which the head ends the job; the batch system then cancels it
ASKED = 2.0  # seconds for which an answer of the batch system counts
POLL = 0.5  # seconds
_answers: Dict[str, Tuple[float, batch_systems.State]] = {}  # job folder -> time, answer


def start(
    folder: JobFolder,
    plan: Json,
    secret_env: Optional[Dict[str, str]] = None,
    token: Optional[str] = None,
    script: Optional[str] = None,
) -> None:
    """Submit the job of `plan`, a submission, to its batch system.

    A repeated call for the same job (plan and token) does nothing. Raises BadInput if the folder
    holds another job, and MxclusterError if the batch system refuses the job; nothing is left then.
    """
    folder.make()
    with claims.starting(folder):
        if folder.has(plan, token) and folder.status():
            return
        if os.path.exists(folder.file("plan.json")):
            raise BadInput("%s holds another job: choose another job_id" % folder.path)
        wanted = plan["batch"]
        engine = batch_systems.of(wanted["launcher"])
        try:
            folder.prepare(plan, secret_env, token)
            if script:
                folder.write_private("script.b64", script)
            folder.write_private(ORDER, "")
            folder.begin_lease()
            number = engine.submit(folder.path, plan["job"], wanted, shell_script(folder))
        except BaseException:
            folder.remove()
            raise
        folder.write_status(status_of(plan, number))


def shell_script(folder: JobFolder) -> str:
    """Return the shell script that the batch system runs on the first node of the job."""
    argv = [sys.executable, "-I", "-m", "mxcluster.batch.head", folder.path]
    return "#!/bin/sh\nexec %s\n" % " ".join(map(shlex.quote, argv))


def status_of(plan: Json, number: str) -> Json:
    """Return the first status of a submitted job. `number` is the batch system's id."""
    me = processes.identity(os.getpid())
    assert me  # this process runs
    return {
        "job": plan["job"],
        "host": plan["host"],
        "kv": plan.get("kv"),
        "agent": me._asdict(),
        "state": "running",
        "reason": None,
        "started": time.time(),
        "ended": None,
        "processes": [],
        "meeting": None,
        "first_failure": None,
        "lease": None,
        "unanswered": [],
        "left": [],
        "batch": {"launcher": plan["batch"]["launcher"], "id": number, "phase": "waits", "why": ""},
    }


def look(folder: JobFolder, known: Json, tidy: bool, reason: str = "failed") -> Json:
    """Return the status of a job that runs: `known`, or its end if the head can write none.

    `tidy`: write the status of such an end, and cancel what is left in the batch system. `reason`:
    that of the end.
    """
    silent = silence(folder)
    if silent is not None and silent < SILENT:
        return known
    state = answer(folder, known)
    if state.phase == "waits" and silent is None:
        return dict(known, batch=dict(known["batch"], phase="waits", why=state.why))
    ended = state.phase == "ended"
    if not ended and (silent is None or silent < LOST):
        return known if silent else dict(known, batch=dict(known["batch"], phase="starts"))
    known = folder.status() or known  # the head may have written its last status since
    if known["state"] == "ended":
        return known
    cause = None if reason == "stopped" else why_ended(folder, known, state, silent)
    # The signals of the batch system end processes, which is no cause.
    known = dict(known, first_failure=None) if state.why else known
    last = end(known, reason, failed(folder, known, cause) if cause else None)
    if tidy:
        if not ended:
            batch_systems.of(known["batch"]["launcher"]).cancel(known["batch"]["id"])
        folder.tidy()
        folder.write_status(last)
    return last


def why_ended(folder: JobFolder, known: Json, state: batch_systems.State, silent: Optional[float]) -> str:
    """Return why the head has written no last status. `silent`: see `silence`."""
    name = batch_systems.of(known["batch"]["launcher"]).NAME
    number = known["batch"]["id"]
    if state.phase == "ended" and state.why:
        return "%s has ended the job %s: %s" % (name, number, state.why)
    if silent is None:
        return (
            "the job %s of %s ended before it had written to %s: check that all nodes share this "
            "folder, and that %s can run on them" % (number, name, folder.path, sys.executable)
        )
    if state.phase == "ended":
        return (
            "%s has ended the job %s: it was deleted or killed, or its limits were over (see the "
            "accounting of %s)" % (name, number, name)
        )
    return (
        "the first node of the job %s has written nothing to %s for %.0f s: the node or its file "
        "system is gone" % (number, folder.path, silent)
    )


def failed(folder: JobFolder, known: Json, cause: str) -> Json:
    """Return the value of "first_failure" for a job that `cause` has ended."""
    lines = folder.log_lines(LOG)
    return failure(known["host"], AGENT, cause, None, time.time(), lines, kind="batch")


def end(known: Json, reason: str, cause: Optional[Json]) -> Json:
    """Return the last status of a job; `cause` is its first failure, if there is none yet."""
    now = time.time()
    return dict(
        known,
        state="ended",
        reason=reason,
        ended=now,
        meeting=None,
        processes=[
            part if part["state"] == "ended" else dict(part, state="ended", ended_at=now)
            for part in known["processes"]
        ],
        first_failure=known["first_failure"] or cause,
    )


def silence(folder: JobFolder) -> Optional[float]:
    """Return the seconds since the last beat of the head, None before the first one.

    Both times come from the clock of the file system. A file is opened before its time is read:
    a network file system then asks its server.
    """
    try:
        with open(folder.file(BEAT), "rb") as stream:
            beat = os.fstat(stream.fileno()).st_mtime
    except OSError:
        return None
    with open(folder.file(CLOCK), "wb") as stream:
        stream.write(b"\n")
        stream.flush()
        return max(0.0, os.fstat(stream.fileno()).st_mtime - beat)


def answer(folder: JobFolder, known: Json, anew: bool = False) -> batch_systems.State:
    """Return the batch system's State of the job. An answer counts for ASKED seconds.

    `anew`: ask in any case.
    """
    when, state = _answers.get(folder.path, (0.0, batch_systems.State("unknown", "")))
    if anew or not when or time.monotonic() - when > ASKED:
        state = batch_systems.of(known["batch"]["launcher"]).state(known["batch"]["id"])
        _answers[folder.path] = time.monotonic(), state
    return state


def stop(folder: JobFolder, known: Json, reason: str) -> Json:
    """End a job and return {"ran", "status"}. `reason` is "stopped" or "peer".

    The head ends the agents. If it does not within ENDS seconds, or if the job still waits, the
    batch system cancels the job.
    """
    engine, number = batch_systems.of(known["batch"]["launcher"]), known["batch"]["id"]
    folder.write_private(ORDER, reason)
    if silence(folder) is not None:
        _until(lambda: look(folder, folder.status() or known, False)["state"] == "ended", ENDS)
    engine.cancel(number)
    _until(lambda: answer(folder, known, anew=True).phase == "ended", ENDS)
    last = folder.status() or known
    if last["state"] != "ended":
        last = end(last, reason, None)
        folder.tidy()
        folder.write_status(last)
    return {"ran": True, "status": last}


def left(folder: JobFolder, known: Json) -> List[str]:
    """Return a line for each leftover of an ended job: on its nodes, and in the batch system."""
    lines = []
    try:
        with open(folder.file(PARTS), encoding="utf-8") as stream:
            found = json.load(stream)
        for host, part in sorted(found.items()):
            lines += ["%s: %s" % (host, line) for line in part["left"] or []]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass  # the head has written no findings
    engine = batch_systems.of(known["batch"]["launcher"])
    if not _until(lambda: answer(folder, known, anew=True).phase in ("ended", "unknown"), 10.0):
        lines.append("%s still has the job %s" % (engine.NAME, known["batch"]["id"]))
    return lines


def script_of(folder: JobFolder) -> Optional[str]:
    """Return the script's folder as a zip file in base64, None for a job without a script."""
    try:
        with open(folder.file("script.b64"), encoding="ascii") as stream:
            return stream.read()
    except FileNotFoundError:
        return None


def is_batch(known: Optional[Json]) -> bool:
    """Return True if `known`, a status, is that of a submitted job."""
    return bool(known and known.get("batch"))


def _until(test: Callable[[], bool], seconds: float) -> bool:
    """Wait until `test` returns True, for `seconds` at most. Return whether it does."""
    deadline = time.monotonic() + seconds
    while not test():
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL)
    return True
