"""The folder of a job on a node, with methods to read and write the files in the folder."""

import base64
import contextlib
import errno
import json
import os
import re
import shlex
import shutil
import time
from typing import Dict, Iterable, List, Mapping, Optional, Tuple

from mxcluster import events, seal
from mxcluster.agent.kept_files import Mark, mark
from mxcluster.agent.log_files import LOG_LINES, piece, readable
from mxcluster.errors import DAMAGED, BadInput, MxclusterError
from mxcluster.file_io import read_json
from mxcluster.model import shapes
from mxcluster.model.events import Event, Latest, Metric, NodeUsage, Start
from mxcluster.model.plan import SERVER, WORKER, NodePlan, Plan
from mxcluster.model.plan import Process as PlannedProcess
from mxcluster.model.protocol import Prepare
from mxcluster.model.status import Status
from mxcluster.model.submission import NODES
from mxcluster.node import mpi_engines
from mxcluster.package import SCRIPT_FOLDER, SCRIPT_ZIP
from mxcluster.seal import TOKEN
from mxcluster.training.kvstore import shared_memory
from mxcluster.training.pulse_file import SUFFIX as PULSE

LOG_TAIL, EVENTS_HEAD, EVENTS_TAIL = 64 * 1024, 64 * 1024, 256 * 1024
SECRET_ENV = "secret_env.json"
WHOLE_PLAN = "job.json"
LEASE, RESERVE = "lease", "reserve"
AGENT_LOCK = "agent.lock"  # the agent holds it for as long as it lives
RESERVED = 4 << 20  # bytes: for the last status, and for packing the logs
# Files of a job of a batch system: the head's sign of life, and the order of a stop to the head.
BEAT, ORDER = "beat", "order"
CHANGED = (
    "another program has changed this file. If the job is running, the agent repairs the file "
    "within a second, so try again. If the job has ended, read the logs in the job folder"
)
_variables = shapes.table(shapes.text, shapes.text, 10000)
DRAFT = re.compile(r"\..+\.[0-9]+$")  # .status.json.1234: the draft of process 1234
Process = Tuple[Optional[str], Optional[int]]  # role and index


class JobFolder:
    """The files of one job on one node.

    All paths are absolute. The methods may raise OSError.
    """

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)

    def file(self, name: str) -> str:
        """Return the path of the file `name` in the folder."""
        return os.path.join(self.path, name)

    def parts(self) -> List["JobFolder"]:
        """Return the folders of the nodes of a job of a batch system; [] for any other job.

        The nodes share the folder of the job. That of a node is nodes/<host>/<job>.
        """
        try:
            hosts = sorted(os.listdir(self.file(NODES)))
        except (FileNotFoundError, NotADirectoryError):
            return []
        names = [os.path.join(NODES, host, os.path.basename(self.path)) for host in hosts]
        return [JobFolder(self.file(name)) for name in names if os.path.isdir(self.file(name))]

    def make(self) -> None:
        """Make the job folder with mode 0700.

        Plans, logs and scripts in the folder are private to the training user.
        """
        os.makedirs(self.path, exist_ok=True)
        if os.stat(self.path).st_mode & 0o077:
            os.chmod(self.path, 0o700)

    def prepare(self, files: Prepare) -> None:
        """Write plan.json, the three cluster files, copies of the script's folder, and other files.

        The agent reads the file with the secret variables and deletes it. The job's processes read
        the file with the token, which `tidy` removes at the job's end. The plan of the whole job
        goes into job.json, which another controller can read later.
        """
        self.make()
        plan = files.plan
        if files.script:
            import zipfile  # not at the top: each poll would import it, for 3 ms

            from mxcluster.agent import saved_files

            with open(private(self.file(SCRIPT_ZIP)), "wb") as stream:
                stream.write(base64.b64decode(files.script))
            own = [process.folder for process in plan.processes if process.folder]
            with zipfile.ZipFile(self.file(SCRIPT_ZIP)) as packed:
                for name in [SCRIPT_FOLDER] + own:
                    packed.extractall(self.file(name))
                    for member in packed.infolist():  # `extractall` does not set permissions
                        if member.external_attr >> 16 & 0o111 and not member.filename.endswith("/"):
                            os.chmod(os.path.join(self.file(name), member.filename), 0o700)
            saved_files.prepare(self.path, [process.name for process in plan.of_role(WORKER)])
        for name, text in sorted(plan.files.items()):
            with open(self.file(name), "w", encoding="utf-8") as stream:
                stream.write(text)
        texts = {
            "plan.json": json.dumps(plan.replaced(whole=None).encode(), indent=1),
            WHOLE_PLAN: json.dumps(plan.whole.encode()) if plan.whole else None,
            SECRET_ENV: json.dumps(files.secret_env) if files.secret_env else None,
            TOKEN: files.token,
        }
        # status.yml may read the files at any time, and must not see a part of a plan.
        for name, content in texts.items():
            if content:
                draft = ".%s.%d" % (name, os.getpid())
                self.write_private(draft, content)
                os.replace(self.file(draft), self.file(name))

    def write_private(self, name: str, text: str) -> None:
        """Write `text` into the file `name`, mode 0600. An existing file keeps its inode."""
        with open(private(self.file(name)), "w", encoding="utf-8") as stream:
            stream.write(text)

    def has(self, files: Prepare) -> bool:
        """Return True if the job with these files is prepared here and has not ended.

        In this case the controller has repeated a command whose reply was lost.
        """
        try:
            with open(self.file(TOKEN), encoding="ascii", errors="replace") as stream:
                is_same = bool(files.token) and stream.read() == files.token
        except OSError:
            return False
        return is_same and self.known_plan() == files.plan.replaced(whole=None)

    def whole_plan(self) -> Plan:
        """Return the plan of the whole job, for all nodes.

        Raises BadInput if job.json is missing or damaged.
        """
        cure = (
            "train.yml cannot attach to this job, so end the job with stop.yml -e job=%s"
            % os.path.basename(self.path)
        )
        plan = read_json(self.file(WHOLE_PLAN), Plan.decode, cure)
        if plan is None:
            raise BadInput(
                "%s is missing: train.yml has started no job in this folder. Use a job id that "
                "status.yml shows" % self.file(WHOLE_PLAN)
            )
        return plan

    def remove(self) -> None:
        """Remove the job folder, unless the job has started."""
        if self.status() is None:
            shutil.rmtree(self.path)

    def take_secret_env(self) -> Dict[str, str]:
        """Read `secret_env.json` and delete the file, so that no copy stays on disk.

        Returns {variable: value}, or {} without the file.
        """
        try:
            return self.read_secret_env()
        except FileNotFoundError:
            return {}
        finally:
            self.forget_secret_env()

    def read_secret_env(self) -> Dict[str, str]:
        """Return {variable: value} from `secret_env.json`.

        Raises OSError without the file, and BadInput, without the content, for a damaged file.
        """
        path = self.file(SECRET_ENV)
        try:
            with open(path, encoding="utf-8") as stream:
                return _variables(json.load(stream))
        except DAMAGED:
            raise BadInput(
                "%s is damaged: run train.yml again, which writes this file" % path
            ) from None

    def forget_secret_env(self) -> None:
        """Delete `secret_env.json`, if the file exists.

        An agent that fails early leaves the file on disk.
        """
        remove(self.file(SECRET_ENV))

    def forget_token(self) -> None:
        """Delete the file with the job's token, if the file exists."""
        remove(self.file(TOKEN))

    def kept(self) -> List[str]:
        """Return the paths of the files that must not change while the job runs.

        Processes may read these files at any time.
        """
        names = ["plan.json", WHOLE_PLAN, TOKEN] + sorted(self.plan().files)
        return [self.file(name) for name in names]

    def spent(self) -> List[str]:
        """Return the names of unfinished drafts and of files that only a running job needs."""
        return [
            name
            for name in os.listdir(self.path)
            if name in (TOKEN, LEASE, RESERVE, SECRET_ENV, BEAT, ORDER)
            or name.endswith(PULSE)
            or DRAFT.match(name)
        ]

    def tidy(self) -> None:
        """Remove what only a running job needs, and drafts.

        These are files in this folder, the job's shared memory, and the temporary folder of mpirun.
        """
        self._forget_memory()
        self.forget_session()
        for name in self.spent():
            remove(self.file(name))
        for part in self.parts():
            part.tidy()

    def _forget_memory(self) -> None:
        """Remove the shared memory of the job's server processes.

        Normally the last server process that opens the shared memory unlinks the file in /dev/shm.
        If a server process was killed before that, this method unlinks the file.
        """
        with contextlib.suppress(OSError, MxclusterError, ZeroDivisionError):
            plan = self.plan()
            token = seal.read_token(self.path)
            for process in plan.of_role(SERVER):
                if process.group == 0 and process.index is not None:
                    remove(shared_memory.path_of(token, process.index // len(plan.groups)))

    def forget_session(self) -> None:
        """Remove the folder with the temporary files of killed mpiruns and daemons of the job.

        No other user can replace a folder of this user in /tmp.
        """
        with contextlib.suppress(OSError, MxclusterError):
            path = mpi_engines.session_folder(seal.read_token(self.path))
            if os.lstat(path).st_uid == os.geteuid():
                shutil.rmtree(path, ignore_errors=True)  # a link stays

    def free(self) -> int:
        """Return the number of bytes that this user can still write in the folder."""
        found = os.statvfs(self.path)
        return (found.f_bavail if os.geteuid() else found.f_bfree) * found.f_frsize

    def has_inodes(self) -> bool:
        """Return True if this user can make another file in the folder.

        If the file system reports no free inode, the method makes a test file, because some file
        systems count their inodes wrongly.
        """
        found = os.statvfs(self.path)
        if not found.f_files or (found.f_favail if os.geteuid() else found.f_ffree):
            return True
        try:
            os.close(private(self.file(".probe")))
            remove(self.file(".probe"))
        except OSError as error:
            return error.errno != errno.ENOSPC
        return True

    def take_reserve(self) -> None:
        """Write a file of RESERVED bytes.

        `tidy` removes the file, so that a full disk has room for the last status.
        """
        with open(self.file(RESERVE), "wb") as stream:
            stream.write(b"\1" * RESERVED)

    def plan(self) -> NodePlan:
        """Return this node's part of the plan.

        Raises BadInput if plan.json is missing or damaged.
        """
        path, cure = self.file("plan.json"), "run train.yml again, which writes a new plan"
        plan = read_json(path, NodePlan.decode, cure)
        if plan is None:
            raise BadInput(
                "%s is missing: run train.yml again, which writes this file before the agent starts"
                % path
            )
        if not (plan.processes or plan.rendezvous or plan.batch):
            raise BadInput("%s is damaged (it has no process): %s" % (path, cure))
        return plan

    def known_plan(self) -> Optional[NodePlan]:
        """Return this node's part of the plan, None if plan.json is missing or damaged."""
        try:
            return self.plan()
        except (BadInput, OSError):
            return None

    def status(self) -> Optional[Status]:
        """Return the content of status.json, or None without the file.

        Raises BadInput if the file is damaged.
        """
        return read_json(self.file("status.json"), Status.decode, CHANGED)

    def write_status(self, status: Status) -> Mark:
        """Replace status.json by `status` atomically. Return the `kept_files.mark` of the new file.

        The method makes no fsync: only a crash of the node could lose the file, and such a crash
        ends the job as well.
        """
        draft = self.file(".status.json.%d" % os.getpid())
        with open(draft, "w", encoding="utf-8") as stream:
            json.dump(status.encode(), stream, indent=1)
            stream.write("\n")
        written = mark(draft)  # before another process can change the file
        os.replace(draft, self.file("status.json"))
        return written

    def begin_lease(self, renewed: Optional[float] = None) -> None:
        """Make the lease file.

        `renewed`: the time of the last renewal (unix seconds), None for the current time.
        """
        with open(self.file(LEASE), "a"):
            pass
        self.renew_lease(renewed)

    def renew_lease(self, renewed: Optional[float] = None) -> None:
        """Set the mtime of the lease file, if the file exists.

        `renewed`: the new mtime (unix seconds), None for the current time.
        """
        # Pass the time explicitly: a network file system would use its server's clock otherwise.
        now = time.time() if renewed is None else renewed
        try:
            os.utime(self.file(LEASE), (now, now))
        except FileNotFoundError:
            pass

    def lease_mtime(self) -> Optional[float]:
        """Return the time of the last lease renewal (unix seconds), None without a lease file."""
        return _mtime(self.file(LEASE))

    def write_env(
        self, process: PlannedProcess, environment: Dict[str, str], secret: Iterable[str] = ()
    ) -> None:
        """Write a process's command and environment as a shell script, <name>.env with mode 0600.

        `process`: the process in the plan. `environment`:
        {variable: value}. `secret`: the names of secret variables. The script lists these names
        without values.
        """
        command = " ".join(shlex.quote(word) for word in process.command)
        lines = [
            "# The environment of %s. To run this process by hand, start `env -i sh`, cd to this "
            "folder, source this file, and run the command:" % process.name,
            "# " + command.replace("\n", "\n# "),
        ]
        lines += [
            "# from secret_env, not written to disk: export %s=..." % name
            for name in sorted(secret)
        ]
        lines += [
            "export %s=%s" % (name, shlex.quote(value))
            for name, value in sorted(environment.items())
        ]
        with open(
            private(self.file(process.name + ".env")),
            "w",
            encoding="utf-8",
            errors="surrogateescape",
        ) as stream:
            stream.write("\n".join(lines) + "\n")

    def open_log(self, name: str) -> int:
        """Open <name>.log for appending, and return the descriptor."""
        return os.open(self.file(name + ".log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def log_lines(self, name: str, lines: int = LOG_LINES) -> List[str]:
        """Return the last `lines` lines of <name>.log (see `readable`), or [] without a log."""
        return readable(piece(self.file(name + ".log"), LOG_TAIL), lines)

    def progress(self, names: Mapping[Process, str]) -> Dict[str, Latest]:
        """Return {process name: its latest events}. `names` is {(role, index): process name}.

        The events come from the last 256 KB of events.jsonl. `start` events also come from the
        first 64 KB, because each process writes a single `start` event.
        """
        path = self.file(events.FILE)
        head = [
            event
            for event in _events(piece(path, EVENTS_HEAD, tail=False))
            if isinstance(event, Start)
        ]
        found: Dict[str, Latest] = {}
        for event in events.first_hand(head + _events(piece(path, EVENTS_TAIL))):
            name = names.get((event.role, event.index))
            if name is None:
                continue
            latest = found.get(name, Latest())
            if isinstance(event, Metric):
                found[name] = events.with_metric(latest, event)
            elif event.KIND in Latest.FIELDS:
                found[name] = latest.replaced(**{event.KIND: events.after(latest, event)})
        return found

    def usage(self) -> Optional[NodeUsage]:
        """Return the latest figures of this node in the last 256 KB of events.jsonl, or None."""
        latest = _events(piece(self.file(events.FILE), EVENTS_TAIL))
        return next((one for one in reversed(latest) if isinstance(one, NodeUsage)), None)

    def last_sign_of_life(self) -> float:
        """Return the time of the last write by the agent or a process (unix seconds).

        Returns 0.0 without a file.
        """
        names = [name for name in os.listdir(self.path) if name.endswith(".log")]
        times = [_mtime(self.file(name)) for name in ["status.json", events.FILE] + names]
        return max(filter(None, times), default=0.0)


def _mtime(path: str) -> Optional[float]:
    """Return the mtime of a file (unix seconds), None without the file."""
    try:
        return os.stat(path).st_mtime
    except OSError:
        return None


def private(path: str) -> int:
    """Empty the file `path`, set mode 0600, and return a descriptor for writing."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.fchmod(descriptor, 0o600)  # the file may have existed with another mode
    return descriptor


def remove(path: str) -> None:
    """Remove the file `path`, if the file exists."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def _events(data: bytes) -> List[Event]:
    """Return the events in `data`, a piece of events.jsonl. Skip damaged lines."""
    texts = data.decode("utf-8", errors="replace").split("\n")
    return [line.event for line in events.lines_of(texts)]
