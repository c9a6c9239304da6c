"""The commands of the agent: each takes a job folder and returns a dict fit for JSON."""
import contextlib
import errno
import os
import signal
import stat
import tarfile
import time
from typing import Any, Dict, List, Optional, Set, Union

from mxcluster import checkpoints, exitcodes, processes, pulse
from mxcluster.agent import daemon, left, parts, written
from mxcluster.agent.folder import LEASE, LOG_LINES, RESERVE, WHOLE_PLAN, JobFolder, private, remove
from mxcluster.agent.supervisor import failure
from mxcluster.errors import BadInput, MxclusterError
from mxcluster.package import OWN_FOLDERS, SCRIPT_FOLDER, SCRIPT_ZIP
from mxcluster.pulse import SUFFIX as PULSE

Json = Dict[str, Any]

POLL = 0.2  # seconds
STOP_TIMEOUT = 10.0  # seconds until a stop no longer trusts the agent
NO_FILE = "%s is not a regular file and cannot be collected: remove it and collect again"
PACKED = ("plan.json", "status.json", "events.jsonl", "meeting.json")


def prepare(folder: JobFolder, plan: Json, secret_env: Optional[Dict[str, str]] = None, token: Optional[str] = None,
            script: Optional[str] = None) -> Json:
    """Write what a job needs before it starts: {"job"}.  Refused if the folder holds a job already."""
    daemon.prepare(folder, plan, secret_env, token, script)
    return {"job": plan["job"]}


def run(folder: JobFolder) -> Json:
    """Be the agent of a prepared folder until the job has ended: {"job", "reason"}.  What its systemd unit runs."""
    daemon.run(folder)
    status = look(folder)
    return {"job": status["job"], "reason": status["reason"]}


def start(folder: JobFolder, plan: Optional[Json] = None, secret_env: Optional[Dict[str, str]] = None,
          token: Optional[str] = None, script: Optional[str] = None) -> Json:
    """Start the agent: {"job", "pid", "status"}.  A `plan` is written into the folder first, unless a job is there."""
    try:
        daemon.start(folder, plan, secret_env, token, script)
    except BaseException:
        if plan is None and folder.status() is None:  # nobody will come to forget it
            folder.forget_token()
        raise
    finally:
        folder.forget_secret_env()  # an agent that has not got far has not taken it
    status = look(folder)
    return {"job": status["job"], "pid": status["agent"]["pid"], "status": status}


def wait(folder: JobFolder, seconds: float, renew: bool, took: str = "") -> Json:
    """Wait until the job has ended, at most `seconds`: {"status", "progress"}. With `renew`, renew its lease all the while.

    `took`: the checkpoint that the controller has got all of.

    So the lease has to last only from one wait to the next, however loaded the machines are.  A wait whose caller is gone
    renews for `seconds` more, hence for at most half of the lease.
    """
    look(folder)
    if took:
        parts.take(folder, took)
    if renew:
        lease = float(folder.plan().get("lease") or 0)
        renew, seconds = bool(lease), min(seconds, lease / 2) if lease else seconds  # a detached job has none
    deadline = time.monotonic() + seconds
    held = seconds > 0
    while True:
        if renew:
            folder.renew_lease()
        answer = look(folder, tidy=True)
        agent = processes.Identity(**answer["agent"])
        held = held and answer["state"] != "ended" and processes.is_held(agent)
        rest = deadline - time.monotonic()
        if held and rest <= 0:  # all the time: nobody supervises the job, and its end would be seen by nobody
            processes.send(agent, signal.SIGKILL)
            _until_gone(agent, STOP_TIMEOUT)
            answer = look(folder, tidy=True, killed=exitcodes.AGENT_HELD)
        if answer["state"] == "ended" or rest <= 0:
            return with_progress(folder, answer)
        time.sleep(min(POLL, rest))


def status(folder: JobFolder) -> Json:
    """{"status", "progress"} as they are now; nothing is changed."""
    return with_progress(folder, look(folder))


def stop(folder: JobFolder, peer: bool = False) -> Json:
    """End the job if it runs, or was about to: {"ran": whether it did, "status": its last one, None if it never ran, "left"}.

    `peer`: the reason is that another node's part has failed; else somebody has asked for the end.
    """
    answer = _stop(folder, "peer" if peer else "stopped")
    return dict(answer, left=left.look(folder))


def _stop(folder: JobFolder, reason: str) -> Json:
    if folder.status() is None and daemon.forget(folder):
        return {"ran": True, "status": None}
    known = folder.status()
    if known is None or known["state"] == "ended":
        return {"ran": False, "status": known}
    agent = processes.Identity(**known["agent"])
    try:
        processes.send(agent, signal.SIGUSR2 if reason == "peer" else signal.SIGTERM)
        if not _until_ended(folder, STOP_TIMEOUT):
            processes.send(agent, signal.SIGKILL)  # it hangs or is held by SIGSTOP; its processes die with it
            _until_gone(agent, STOP_TIMEOUT)
            return {"ran": True, "status": look(folder, tidy=True, reason=reason)}
    except PermissionError as error:
        raise MxclusterError("the agent in %s (pid %d) is another user's: stop it as that user"
                             % (folder.path, agent.pid)) from error
    return {"ran": True, "status": look(folder, tidy=True)}


def logs(folder: JobFolder, lines: int = LOG_LINES) -> Json:
    """{"logs": {"worker-0": [line, ...], "agent": [...]}}: the last lines of every log that there is."""
    names = sorted(name[:-len(".log")] for name in os.listdir(folder.path) if name.endswith(".log"))
    return {"logs": {name: folder.log_lines(name, lines) for name in names}}


def plan(folder: JobFolder) -> Json:
    """{"plan": the plan of the whole job}, for a controller that has never seen it."""
    return {"plan": folder.whole_plan()}


def collect(folder: JobFolder, output: Union[str, int]) -> Json:
    """Pack what a job has left on this node into the tar file `output`.

    Returns {"files", "bytes", "left_out", "left", "problem", "behind"}.

    `output` is a path, of a file that nobody else can read, or the descriptor of a file that is somebody's already.

    Packed are plan.json, status.json, events.jsonl, *.env, *.log, checkpoints/ and the files that scripts wrote, names
    relative to the folder and in alphabetical order. `behind` tells what of these files stays here, see `written`.
    `left_out` names everything else that lies in the folder. `left` tells what still lives, see `left`.
    `problem` is None, or why nothing could be packed: a disk that is full must not keep the rest from being told.
    """
    found = written.find(folder, output)
    names = sorted(_to_pack(folder) + found.names)
    own = {name.split(os.sep)[0] for name in names} | {LEASE, RESERVE, "agent.lock", WHOLE_PLAN, checkpoints.HELD,
                                                               checkpoints.TAKEN, SCRIPT_ZIP, SCRIPT_FOLDER, OWN_FOLDERS}
    own |= {name for name in os.listdir(folder.path) if name.endswith(PULSE)}
    answer = {"files": len(names), "bytes": 0, "left": left.look(folder), "problem": None, "behind": found.behind}  # type: Json
    try:
        if isinstance(output, int):
            answer["bytes"] = _write(folder, names, output, set(found.names), found.behind)
        else:
            own.add(os.path.basename(output))
            draft = "%s.%d.part" % (output, os.getpid())  # two may collect at once
            try:
                answer["bytes"] = _write(folder, names, private(draft), set(found.names), found.behind)
                os.replace(draft, output)
            finally:
                remove(draft)
    except OSError as error:
        answer.update(files=0, problem="what it has left could not be packed: %s" % (error.strerror or error))
    return dict(answer, left_out=sorted(set(os.listdir(folder.path)) - own))


def look(folder: JobFolder, tidy: bool = False, reason: str = "failed", killed: str = exitcodes.AGENT_KILLED) -> Json:
    """The status of the job, also when its agent can no longer write it: then it has ended, with `reason`, since it was `killed`.

    `tidy`: end what such an agent has left behind, and write its last status in its place.
    """
    known = folder.status()
    if known is None:
        raise BadInput("no job in %s: status.json is not there" % folder.path)
    if known["state"] == "ended" or processes.alive(processes.Identity(**known["agent"])):
        return known
    known = folder.status()  # it may have written its last word between the two looks
    if known["state"] == "ended":
        return known
    roots = [processes.Identity(part["pid"], part["start_time"]) for part in known["processes"] if part["pid"]]
    # The plan gives every process this variable; none older than the agent can have it from there.
    roots += [who for who in processes.with_variable("MXCLUSTER_JOB_DIR", folder.path)
              if who.start_time >= known["agent"]["start_time"] and who.pid != os.getpid()]
    there = processes.end_groups(roots) if tidy else processes.family(roots)
    names = [part["name"] for part in known["processes"]]
    last = without_agent(known, there, reason, folder.last_sign_of_life(names), folder.log_lines("agent"), killed)
    if tidy:
        with contextlib.suppress(OSError):  # a full disk: who asks again is told the same
            folder.tidy()
            folder.write_status(last)
    return last


def without_agent(known: Json, left: List[processes.Identity], reason: str, when: float, log: List[str], killed: str) -> Json:
    """The last status of a job whose agent was `killed` at about `when` (unix seconds), given the processes still `left`.

    How its processes ended nobody has seen: their exit codes are null, like who ended them.
    """
    parts = [part if part["state"] == "ended" or processes.Identity(part["pid"] or 0, part["start_time"] or 0) in left
             else dict(part, state="ended", ended_at=when) for part in known["processes"]]
    cause = known["first_failure"]
    if cause is None and reason == "failed":
        agent = {"role": "agent", "index": None, "name": "agent"}
        cause = failure(known["host"], agent, killed, None, when, log)
    met = known.get("meeting")
    if met and met["state"] == "running":
        met = dict(met, state="ended", ended_at=when)
    return dict(known, state="ended", reason=reason, ended=when, processes=parts, meeting=met, first_failure=cause,
                left=[who._asdict() for who in left])


def with_progress(folder: JobFolder, answer: Json) -> Json:
    """A status, and with it the last events of its processes, their pulses, and what there is of checkpoints.

    "idle" of a pulse: seconds since it changed, by this node's clock.
    """
    pulses = {part["name"]: pulse.read(pulse.file_of(folder.path, part["name"])) for part in answer["processes"]}
    names = {(part["role"], part["index"]): part["name"] for part in answer["processes"]}
    offered = parts.offered(folder)
    return dict({"checkpoints": offered} if offered else {}, status=answer, progress=folder.progress(names),
                pulses={name: dict(found, idle=max(0.0, time.time() - found["time"])) for name, found in pulses.items() if found})


def _until_ended(folder: JobFolder, seconds: float) -> Optional[Json]:
    """Wait until the job has ended, also by the death of its agent; None if it has not after `seconds`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        answer = look(folder)
        if answer["state"] == "ended":
            return answer
        time.sleep(0.05)
    return None


def _until_gone(who: processes.Identity, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while processes.alive(who) and time.monotonic() < deadline:
        time.sleep(0.05)


def _to_pack(folder: JobFolder) -> List[str]:
    """The names to collect, relative to the folder, in alphabetical order."""
    names = [name for name in os.listdir(folder.path) if name in PACKED or name.endswith((".env", ".log"))]
    for root, folders, files in os.walk(folder.file("checkpoints")):
        linked = [name for name in folders if os.path.islink(os.path.join(root, name))]  # os.walk does not enter them
        names += [os.path.relpath(os.path.join(root, name), folder.path) for name in files + linked]
    return sorted(names)


def _write(folder: JobFolder, names: List[str], descriptor: int, scripts: Set[str], behind: List[str]) -> int:
    """Write the tar file and close it: its size. Of the files that `scripts` wrote, those that cannot be read stay `behind`."""
    with open(descriptor, "wb") as stream:
        with tarfile.open(fileobj=stream, mode="w") as archive:
            for name in names:
                try:
                    source = _open(folder.file(name))
                except (OSError, MxclusterError) as error:
                    if name not in scripts:
                        raise
                    behind.append("%s cannot be read (%s)" % (name, getattr(error, "strerror", None) or error))
                else:
                    _pack(archive, source, name)
        return stream.tell()


def _open(path: str) -> int:
    """The descriptor of a file, which is no link and nothing else than a file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO):  # a link, a socket
            raise
        raise MxclusterError(NO_FILE % path) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise MxclusterError(NO_FILE % path)
    return descriptor


def _pack(archive: tarfile.TarFile, source: int, name: str) -> None:
    """Add one file as it is now: a log that grows meanwhile is cut where it ended when it was opened.

    Its owner, and permissions such as setuid, mean nothing elsewhere. Files that share an inode are all packed whole.
    """
    with open(source, "rb") as stream:
        found = os.fstat(source)
        info = tarfile.TarInfo(name)
        info.size, info.mtime, info.mode = found.st_size, int(found.st_mtime), 0o644 if found.st_mode & 0o044 else 0o600
        archive.addfile(info, stream)
