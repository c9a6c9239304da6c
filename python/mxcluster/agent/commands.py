"""The commands of the agent, as functions that take a JobFolder and return a dict for JSON."""

import contextlib
import errno
import os
import signal
import stat
import tarfile
import time
from typing import IO, Any, BinaryIO, Callable, Dict, List, Optional, Set, Union, cast

from mxcluster import exit_codes
from mxcluster.agent import (
    batch_job,
    checkpoint_transfer,
    daemon,
    engine_file,
    leftovers,
    runtimes,
    script_files,
)
from mxcluster.agent.folder import (
    AGENT_LOCK,
    LEASE,
    RESERVE,
    WHOLE_PLAN,
    JobFolder,
    private,
    remove,
)
from mxcluster.agent.supervisor import failure
from mxcluster.errors import BadInput, MxclusterError
from mxcluster.job import checkpoints
from mxcluster.job.plan.submission import NODES
from mxcluster.model import protocol
from mxcluster.model.events import Latest
from mxcluster.node import processes
from mxcluster.package import OWN_FOLDERS, SCRIPT_FOLDER, SCRIPT_ZIP
from mxcluster.training import progress_file
from mxcluster.training.progress_file import SUFFIX as PULSE

Json = Dict[str, Any]

POLL = 0.2  # seconds between two reads of the status
STOP_TIMEOUT = 10.0  # seconds until a stop kills the agent
# A log may have any size, also without a byte on the disk. The archive gets the end of a long log.
LOG_MOST = 64 << 20  # most bytes of a log, of the events or of another small file
LOGS_MOST = 1 << 30  # most bytes of all these files together
NO_FILE = (
    "%s is not a regular file, so mxcluster cannot fetch the job's files: remove that path on this "
    "node, and fetch the files with train.yml -e attach=<job>"
)
PACKED = (
    "plan.json",
    "status.json",
    "events.jsonl",
    "meeting.json",
    batch_job.PARTS,
    batch_job.PLANNED,
)


def prepare(request: protocol.Prepare) -> Json:
    """Write the files that a job needs before its start. Return {"job": the job's id}.

    Raises BadInput if the folder holds another job.
    """
    daemon.prepare(
        JobFolder(request.job_dir),
        request.plan,
        request.secret_env,
        request.token,
        request.script,
    )
    return {"job": request.plan.job}


def run(folder: JobFolder) -> Json:
    """Run the agent of a prepared job until the job has ended. Return {"job", "reason"}.

    "job" is the job's id, "reason" the reason of the end. The job's systemd unit runs this command.
    """
    daemon.run(folder)
    status = look(folder)
    return {"job": status["job"], "reason": status["reason"]}


def start(request: protocol.Start) -> Json:
    """Start the agent of a job. Return {"job": the job's id, "pid": the agent's pid, "status"}.

    The function first writes the plan into the folder, unless the same job already runs in the
    folder. Without a plan the folder must hold a plan from `prepare`. Raises BadInput if the folder
    holds another job.
    """
    folder, plan = JobFolder(request.job_dir), request.plan
    files = (request.secret_env, request.token, request.script)
    try:
        if plan is not None and plan.batch:
            batch_job.start(folder, plan, *files)
        else:
            daemon.start(folder, plan, *files)
    except BaseException:
        if plan is None and folder.status() is None:  # no other command removes the token
            folder.forget_token()
        raise
    finally:
        if not (plan and plan.batch):  # the head reads the file when the job starts
            folder.forget_secret_env()  # an agent that failed early has not read the file
    status = look(folder)
    return {"job": status["job"], "pid": status["agent"]["pid"], "status": status}


def wait(request: protocol.Wait) -> Json:
    """Wait for the end of the job. Return the status as `with_progress` does.

    The function renews the lease during the whole wait. The lease then has to last only from one
    wait to the next. If the controller dies, the current wait still renews the lease. Hence a wait
    takes at most half of the lease.
    """
    folder, seconds = JobFolder(request.job_dir), request.seconds
    look(folder)
    if request.took:
        checkpoint_transfer.take(folder, request.took)
    lease = folder.plan().lease  # a detached job has no lease
    if lease:
        seconds = min(seconds, lease / 2)
    deadline = time.monotonic() + seconds
    held = seconds > 0
    while True:
        if lease:
            folder.renew_lease()
        answer = look(folder, tidy=True)
        agent = processes.Identity(**answer["agent"])
        held = held and answer["state"] != "ended" and processes.is_held(agent)
        rest = deadline - time.monotonic()
        if (
            held and rest <= 0
        ):  # an agent stopped by SIGSTOP can neither supervise the job nor record its end
            _kill(agent)
            answer = look(folder, tidy=True, killed=exit_codes.AGENT_HELD)
        if answer["state"] == "ended" or rest <= 0:
            return with_progress(folder, answer)
        time.sleep(min(POLL, rest))


def status(request: protocol.Status) -> Json:
    """Return the job's status as `with_progress` does, without any change on the node."""
    folder = JobFolder(request.job_dir)
    return with_progress(folder, look(folder))


def stop(request: protocol.Stop) -> Json:
    """End a running or prepared job. Return {"ran", "status", "left"}.

    "ran": True if the function has ended a job. "status": the last status, None if the job never
    ran. "left": lines about leftover processes and ports (see `leftovers.look`). Raises
    MxclusterError if another user owns the agent.
    """
    folder = JobFolder(request.job_dir)
    answer = _stop(folder, "peer" if request.peer else "stopped")
    return dict(answer, left=_left(folder))


def _left(folder: JobFolder) -> List[str]:
    """Return a line for each leftover of a job on this node, or on all nodes of a batch job."""
    known = folder.status()
    if known and batch_job.is_batch(known):
        return batch_job.left(folder, known)
    return leftovers.look(folder)


def _stop(folder: JobFolder, reason: str) -> Json:
    if folder.status() is None and daemon.forget(folder):
        return {"ran": True, "status": None}
    known = folder.status()
    if known is None or known["state"] == "ended":
        return {"ran": False, "status": known}
    if batch_job.is_batch(known):
        return batch_job.stop(folder, known, reason)
    agent = processes.Identity(**known["agent"])
    try:
        processes.send(agent, signal.SIGUSR2 if reason == "peer" else signal.SIGINT)
        if not _until(lambda: look(folder)["state"] == "ended", STOP_TIMEOUT):
            _kill(agent)  # the agent hangs, or SIGSTOP has stopped it
            return {"ran": True, "status": look(folder, tidy=True, reason=reason)}
    except PermissionError as error:
        raise MxclusterError(
            "the agent of the job in %s (pid %d) runs as another user: set mxcluster_user to that "
            "user, and run stop.yml again" % (folder.path, agent.pid)
        ) from error
    return {"ran": True, "status": look(folder, tidy=True)}


def logs(request: protocol.Logs) -> Json:
    """Return {"logs": {"worker-0": [line, ...], "agent": [line, ...]}}, the end of each log.

    The names of a batch job's logs begin with the host, because the job folder holds the logs of
    all nodes.
    """
    folder = JobFolder(request.job_dir)
    found = {}  # type: Dict[str, List[str]]
    for part in [folder] + folder.parts():
        host = os.path.basename(os.path.dirname(part.path)) + "-" if part is not folder else ""
        for name in sorted(os.listdir(part.path)):
            if name.endswith(".log"):
                found[host + name[: -len(".log")]] = part.log_lines(
                    name[: -len(".log")], request.lines
                )
    return {"logs": found}


def plan(request: protocol.ReadPlan) -> Json:
    """Return {"plan": the plan of the whole job}, for a controller that attaches to the job."""
    return {"plan": JobFolder(request.job_dir).job_json()}


def collect(request: protocol.Collect, target: Optional[int] = None) -> Json:
    """Pack the files of a job on this node into a tar file.

    `target`: the open descriptor of the tar file, which keeps its owner. Without `target`, the
    function writes to the path of the request. A new file there gets mode 0600.

    Returns {"files", "bytes", "left_out", "left", "problem", "behind"}:

    - "files" and "bytes": the number of packed files, and the size of the tar file;
    - "left_out": names of the other entries of the folder, except mxcluster's own files;
    - "left": lines about leftover processes and ports (see `leftovers.look`);
    - "problem": the reason why no file was packed, such as a full disk, else None;
    - "behind": lines about files of scripts that stay on the node (see `script_files.find`), and
      about logs that are too long for the archive (see `_allowed`).

    The tar file has plan.json, status.json, events.jsonl, meeting.json, *.env, *.log, checkpoints/
    and the files that scripts wrote. Names are relative to the folder and in alphabetical order.
    """
    folder = JobFolder(request.job_dir)
    output: Union[str, int] = request.output if target is None else target
    found = script_files.find(folder, output)
    names = _to_pack(folder)
    for part in folder.parts():
        place = os.path.relpath(part.path, folder.path)
        names += [os.path.join(place, name) for name in _to_pack(part)]
        of_script = script_files.find(part, output)
        found.names.extend(os.path.join(place, name) for name in of_script.names)
        found.behind.extend(of_script.behind)
    names = sorted(names + found.names)
    own = {name.split(os.sep)[0] for name in names} | {
        LEASE,
        RESERVE,
        AGENT_LOCK,
        WHOLE_PLAN,
        checkpoints.HELD,
        checkpoints.TAKEN,
        SCRIPT_ZIP,
        SCRIPT_FOLDER,
        NODES,
        "script.b64",
        "batch.lock",
        "nonce",
        OWN_FOLDERS,
        engine_file.FILE,
        engine_file.HOSTS,
    }
    own |= {name for name in os.listdir(folder.path) if name.endswith(PULSE)}
    answer = {
        "files": len(names),
        "bytes": 0,
        "left": _left(folder),
        "problem": None,
        "behind": found.behind,
    }  # type: Json
    try:
        if isinstance(output, int):
            answer["bytes"] = _write(folder, names, output, set(found.names), found.behind)
        else:
            own.add(os.path.basename(output))
            draft = "%s.%d.part" % (output, os.getpid())  # two controllers can collect at once
            try:
                answer["bytes"] = _write(
                    folder, names, private(draft), set(found.names), found.behind
                )
                os.replace(draft, output)
            finally:
                remove(draft)
    except OSError as error:
        answer.update(
            files=0,
            problem="cannot pack the job's files in %s (%s): free disk space or correct the rights "
            "of the files on this node, and fetch the files with train.yml -e attach=<job>"
            % (folder.path, error.strerror or error),
        )
    return dict(answer, left_out=sorted(set(os.listdir(folder.path)) - own))


def look(
    folder: JobFolder,
    tidy: bool = False,
    reason: str = "failed",
    killed: str = exit_codes.AGENT_KILLED,
) -> Json:
    """Return the status of the job, even if the agent was killed before it wrote the last status.

    If the agent was killed, the job has ended. The status then has `reason` as the reason of the
    end and `killed` as the text of the failure. With `tidy` the function also ends the leftover
    processes of a killed agent, and writes the last status. Raises BadInput if the folder has no
    status.
    """
    known = folder.status()
    if known is None:
        raise BadInput(
            "%s has no status.json, so no job has started there: use a job id that status.yml shows"
            % folder.path
        )
    if known["state"] == "ended":
        return known
    if batch_job.is_batch(known):
        return batch_job.look(folder, known, tidy, reason)
    if processes.alive(processes.Identity(**known["agent"])):
        return known
    # The agent may have written its last status since the first read.
    known = folder.status() or known
    if known["state"] == "ended":
        return known
    roots = [
        processes.Identity(part["pid"], part["start_time"])
        for part in known["processes"]
        if part["pid"]
    ]
    # The plan sets MXCLUSTER_JOB_DIR for every process. A process that is older than the agent got
    # the variable from another parent.
    roots += [
        who
        for who in processes.with_variable(runtimes.VARIABLE, folder.path)
        if who.start_time >= known["agent"]["start_time"] and who.pid != os.getpid()
    ]
    there = processes.end_groups(roots) if tidy else processes.family(roots)
    names = [part["name"] for part in known["processes"]]
    last = without_agent(
        known, there, reason, folder.last_sign_of_life(names), folder.log_lines("agent"), killed
    )
    if tidy:
        leftovers.remove_containers(folder)
        with contextlib.suppress(OSError):  # a full disk: a later call computes the same status
            folder.tidy()
            folder.write_status(last)
    return last


def without_agent(
    known: Json,
    left: List[processes.Identity],
    reason: str,
    when: float,
    log: List[str],
    killed: str,
) -> Json:
    """Return the last status of a job whose agent was killed.

    `known`: the status that the agent wrote last. `left`: the leftover processes. `reason`: why the
    job ended. `when`: the approximate time of the end (unix seconds). `log`: the last lines of the
    agent's log. `killed`: the text of the failure.

    No process received the exit codes of the job's processes, so `exit_code` and `ended_by` stay
    null.
    """
    parts = [
        part
        if part["state"] == "ended"
        or processes.Identity(part["pid"] or 0, part["start_time"] or 0) in left
        else dict(part, state="ended", ended_at=when)
        for part in known["processes"]
    ]
    cause = known["first_failure"]
    if cause is None and reason == "failed":
        agent = {"role": "agent", "index": None, "name": "agent"}
        cause = failure(known["host"], agent, killed, None, when, log)
    met = known.get("meeting")
    if met and met["state"] == "running":
        met = dict(met, state="ended", ended_at=when)
    return dict(
        known,
        state="ended",
        reason=reason,
        ended=when,
        processes=parts,
        meeting=met,
        first_failure=cause,
        left=[who._asdict() for who in left],
    )


def with_progress(folder: JobFolder, answer: Json) -> Json:
    """Return {"status", "progress", "pulses", "checkpoints"} for the status `answer`.

    - "status": `answer`;
    - "progress": see `JobFolder.progress`;
    - "pulses": {process name: the content of the process's progress file, plus "idle", the seconds
      since the last progress by this node's clock};
    - "checkpoints": see `checkpoint_transfer.offered`; missing without a manifest.
    """
    names = {(part["role"], part["index"]): part["name"] for part in answer["processes"]}
    progress: Dict[str, Latest] = {}
    pulses: Dict[str, Any] = {}
    for place in folder.parts() or [folder]:
        progress.update(place.progress(names))
        for name in names.values():
            read = progress_file.read(progress_file.file_of(place.path, name))
            pulses[name] = read or pulses.get(name)
    offered = checkpoint_transfer.offered(folder)
    return dict(
        {"checkpoints": offered} if offered else {},
        status=answer,
        progress={name: latest.encode() for name, latest in progress.items()},
        pulses={
            name: dict(found, idle=max(0.0, time.time() - found["time"]))
            for name, found in pulses.items()
            if found
        },
    )


def _kill(agent: processes.Identity) -> None:
    """Kill the agent and wait for the agent's end. The agent's processes die with the agent."""
    processes.send(agent, signal.SIGKILL)
    _until(lambda: not processes.alive(agent), STOP_TIMEOUT)


def _until(test: Callable[[], bool], seconds: float) -> bool:
    """Wait until `test` returns True, for `seconds` at most. Return the last result of `test`."""
    deadline = time.monotonic() + seconds
    while not test():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.05)
    return True


def _to_pack(folder: JobFolder) -> List[str]:
    """Return the sorted names of the files to collect, except the files of scripts.

    The names are relative to the job folder.
    """
    names = [
        name
        for name in os.listdir(folder.path)
        if name in PACKED or name.endswith((".env", ".log"))
    ]
    # Those of a node of a batch job are a link to those of the job.
    top = folder.file("checkpoints")
    for root, folders, files in os.walk(top) if not os.path.islink(top) else ():
        linked = [
            name for name in folders if os.path.islink(os.path.join(root, name))
        ]  # os.walk lists a link to a folder as a folder, and does not follow the link
        names += [os.path.relpath(os.path.join(root, name), folder.path) for name in files + linked]
    return sorted(names)


def _write(
    folder: JobFolder, names: List[str], descriptor: int, scripts: Set[str], behind: List[str]
) -> int:
    """Write the files `names` of the job folder into a tar file. Return the size in bytes.

    The tar file goes to `descriptor`, which the function then closes. `scripts` has the names of
    the files of scripts. For each unreadable file of `scripts` the function adds a line to
    `behind`. Any other unreadable file raises OSError or MxclusterError. For each log that is cut,
    and for each hollow checkpoint, the function adds a line, too. Raises OSError before the first
    write if the disk of `descriptor` lacks space for the files.
    """
    found = {name: os.lstat(folder.file(name)) for name in names}
    hollow = [name for name in names if name not in scripts and _is_hollow(name, found[name])]
    for name in hollow:
        behind.append(
            "%s stays on the node (the file has %d bytes, most of them without content): copy the "
            "file by hand" % (name, found[name].st_size)
        )
    names = [name for name in names if name not in hollow]
    sizes = {name: found[name].st_size for name in names}
    allowed = _allowed([name for name in names if name not in scripts], sizes)
    for name in sorted(allowed):
        if sizes[name] > allowed[name]:
            behind.append(
                "the beginning of %s stays on the node (the file has %d bytes, and the last %d "
                "were collected): copy the file by hand" % (name, sizes[name], allowed[name])
            )
    with open(descriptor, "wb") as stream:
        if sum(min(sizes[name], allowed.get(name, sizes[name])) for name in names) > (
            script_files.room(descriptor)
        ):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        with tarfile.open(fileobj=stream, mode="w") as archive:
            for name in names:
                try:
                    source = _open(folder.file(name))
                except (OSError, MxclusterError) as error:
                    if name not in scripts:
                        raise
                    behind.append(
                        "%s stays on the node, because mxcluster cannot read this file (%s): "
                        "copy the file as root" % (name, getattr(error, "strerror", None) or error)
                    )
                else:
                    _pack(archive, source, name, allowed.get(name))
        return stream.tell()


def _allowed(names: List[str], sizes: Dict[str, int]) -> Dict[str, int]:
    """Return {name: most bytes in the archive} of logs and small files.

    The limit is LOG_MOST for each file and LOGS_MOST for all. Logs come last, so that they leave
    space for the status and the events. Checkpoints have no limit. Args: `names` of the files
    except those of scripts; `sizes` in bytes.
    """
    allowed, room = {}, LOGS_MOST
    for name in sorted(names, key=lambda one: one.endswith(".log")):
        if not _is_checkpoint(name):
            allowed[name] = min(LOG_MOST, room)
            room -= min(sizes[name], allowed[name])
    return allowed


def _is_checkpoint(name: str) -> bool:
    return name.startswith("checkpoints" + os.sep)


def _is_hollow(name: str, found: os.stat_result) -> bool:
    """Return True for a large checkpoint with less than half of its size on the disk.

    Such a sparse file needs almost no space of the training user, but its whole size in the
    archive. Half, because a file system may compress a checkpoint.
    """
    size = found.st_size
    return _is_checkpoint(name) and size > LOG_MOST and 2 * 512 * found.st_blocks < size


def _open(path: str) -> int:
    """Return a descriptor of the regular file `path`.

    Raises MxclusterError if `path` is a link, a socket or another special file.
    """
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


def _pack(archive: tarfile.TarFile, source: int, name: str, most: Optional[int] = None) -> None:
    """Add the file of the descriptor `source` to `archive` as `name`, and close the descriptor.

    `most`: the number of bytes to pack, from the end of the file; None for the whole file.

    A log may still grow, so the function packs the file up to its size at the call. If the file
    shrinks meanwhile, zeros fill the rest of its size in the archive. The archive stores no owner
    and no special permissions such as setuid, which have no meaning on the controller. The archive
    stores a hard link as a whole file.
    """
    with open(source, "rb") as stream:
        found = os.fstat(source)
        info = tarfile.TarInfo(name)
        if most is not None and found.st_size > most:
            stream.seek(found.st_size - most)
        info.size, info.mtime, info.mode = (
            found.st_size - stream.tell(),
            int(found.st_mtime),
            0o644 if found.st_mode & 0o044 else 0o600,
        )
        archive.addfile(info, cast(IO[bytes], _Padded(stream)))


class _Padded:
    """A file to pack. `read` returns zeros after the end of the file.

    tarfile writes the size of a file before its content. Shorter content would break the archive.
    """

    def __init__(self, stream: BinaryIO):
        self._stream = stream

    def read(self, size: int) -> bytes:
        """Return `size` bytes."""
        return self._stream.read(size).ljust(size, b"\0")
