"""Start the processes of a job on loopback without Ansible and agents, for kv-store tests."""

import contextlib
import functools
import json
import os
import pathlib
import signal
import subprocess
import time
import uuid

from mxcluster.job.plan import processes
from mxcluster.node.processes import set_pdeathsig
from mxcluster.training.kvstore import shared_memory
from tests import json_lines
from tests.networks import own_network
from tests.plans import process_of

NODE_PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "python"
SCRIPTS = pathlib.Path(__file__).with_name("scripts")  # of the users
PORT = 19091
# The last numbers of the addresses of the scheduler, of the first server and of the first worker.
SCHEDULER, SERVER, WORKER = 11, 21, 31

started = []  # the jobs of the present test, for its end and for the report of its failure


def program(**values):
    """Return the arguments of a training program on its command line: ProgramArguments as JSON."""
    return [json.dumps(values, default=str)]


def run_alone(python, *command, **environment):
    """Run a script of SCRIPTS without a job. Return the finished process.

    The test fails with the whole stderr if the exit status is not 0. Args: `command` the name of
    the script, and its arguments; `environment` more variables.
    """
    done = subprocess.run(
        [str(python), "-W", "ignore", str(SCRIPTS / command[0]), *map(str, command[1:])],
        capture_output=True,
        text=True,
        timeout=600,
        env=dict(os.environ, PYTHONPATH=str(NODE_PACKAGE), OMP_NUM_THREADS="1", **environment),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def log_of(folder, process):
    """Return the output of a process such as "worker-0" of the job in `folder`."""
    return (folder / (process + ".log")).read_text()


class Job:
    """Scheduler, servers and workers in the network of this test process, which end together.

    `groups` contains the group of each worker. Under dist_gsync each of `servers` is a process for
    each group. Every worker runs `script`, a path or the name of a script in SCRIPTS.
    `environment` applies to every process, `worker_environment[i]` to worker i. Worker i runs with
    `worker_python[i]`, if there is one.

    A healthy process sends a heartbeat each second. The `heartbeat` timeout is much longer, because
    a busy machine may stop a process for seconds. A test of a job whose processes notice a death
    chooses a shorter one. `package` is the folder that holds mxcluster.

    `addresses` has the address of each process.
    """

    def __init__(
        self,
        python,
        folder,
        script,
        kv,
        groups=(0, 0),
        servers=1,
        port=PORT,
        arguments=(),
        environment=None,
        worker_environment=None,
        worker_python=None,
        staleness=0,
        wrap=(),
        heartbeat=60,
        package=NODE_PACKAGE,
    ):
        each = 1 + max(groups) if kv == "dist_gsync" else 1  # processes of a server
        servers = [
            {"address": _address(SERVER + index // each), "port": port + index % each}
            for index in range(servers * each)
        ]
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.processes, self.addresses = {}, {}
        started.append(self)
        token = uuid.uuid4().hex
        # The servers of a host share a file, whose name the last one removes.
        self._memories = [
            shared_memory.path_of(token.encode(), host) for host in range(len(servers) // each)
        ]
        with open(
            os.open(str(self.folder / "token"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w"
        ) as stream:
            stream.write(token)
        self._common = dict(
            PATH=os.environ["PATH"],
            PYTHONPATH=str(package),
            HOME=str(self.folder),
            DMLC_PS_ROOT_URI=_address(SCHEDULER),
            DMLC_PS_ROOT_PORT=str(port),
            DMLC_NUM_SERVER=str(len(servers)),
            DMLC_NUM_WORKER=str(len(groups)),
            DMLC_INTERFACE="lo",
            PS_HEARTBEAT_INTERVAL="1",
            PS_HEARTBEAT_TIMEOUT=str(heartbeat),
            OMP_NUM_THREADS="1",
            MXNET_CPU_WORKER_NTHREADS="1",
            MXCLUSTER_JOB="test",
            MXCLUSTER_JOB_DIR=str(self.folder),
            MXCLUSTER_KV=kv,
            MXCLUSTER_STALENESS=str(staleness),
            MXCLUSTER_GROUPS=",".join(map(str, groups)),
            **(environment or {}),
        )
        if each > 1:
            ranks = processes.ranks([process_of("server", **server) for server in servers])
            self._common.setdefault("MXCLUSTER_SERVER_RANKS", ",".join(map(str, ranks)))

        def run(python):
            return [*wrap, str(python), "-u", "-m", "mxcluster.training"]

        self._start("scheduler", 0, _address(SCHEDULER), port, [*run(python), "serve"])
        for index, server in enumerate(servers):
            own, group, place = {}, index % each, (server["address"], server["port"])
            if each > 1:
                own = dict(DMLC_NUM_WORKER=str(groups.count(group)), MXCLUSTER_GROUP=str(group))
            self._start("server", index, *place, [*run(python), "serve"], own)
        words = ["script", str(SCRIPTS / script), "--", *map(str, arguments)]
        for index, group in enumerate(groups):
            own = dict(MXCLUSTER_GROUP=str(group), **(worker_environment or {}).get(index, {}))
            command = [*run((worker_python or {}).get(index, python)), *words]
            self._start("worker", index, _address(WORKER + index), port, command, own)

    def _start(self, role, index, address, port, command, own=None):
        name = "%s-%d" % (role, index)
        self.addresses[name] = address
        environment = dict(
            self._common,
            DMLC_ROLE=role,
            DMLC_NODE_HOST=address,
            PORT=str(port),
            MXCLUSTER_ROLE=role,
            MXCLUSTER_INDEX=str(index),
            MXCLUSTER_HOST=address,
            **(own or {}),
        )
        with open(self.folder / (name + ".log"), "wb") as log:
            self.processes[name] = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=str(self.folder),
                start_new_session=True,
                # Processes that outlive a killed run would hold the ports of the next one.
                preexec_fn=functools.partial(set_pdeathsig, os.getpid()),
            )

    def has_failed(self):
        """Return True if a process has ended with another status than 0."""
        return any(process.poll() for process in self.processes.values())

    def wait(self, seconds=300, grace=20):
        """Return {process: exit status}; a process killed after `seconds` has a string as status.

        `grace` is the time in seconds for the other processes after a failure.
        """
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and any(
            process.poll() is None for process in self.processes.values()
        ):
            if self.has_failed():
                deadline = min(deadline, time.monotonic() + grace)
            time.sleep(0.05)
        codes = {}
        for name, process in self.processes.items():
            codes[name] = process.poll() if process.poll() is not None else "still running"
        self.end()
        return codes

    def end(self):
        """Kill the processes, and remove their shared memory, as an agent does."""
        for process in self.processes.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        for path in self._memories:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    def succeed(self):
        """Wait, and fail with all logs unless all processes exit with 0."""
        codes = self.wait()
        assert set(codes.values()) == {0}, "%s\n%s" % (codes, self.evidence())
        return self

    def evidence(self):
        """Return the exit status, the time of the last output and the whole output of each process.

        MXNet's own message of an abort stands before the stacks of all threads, so that the last
        lines alone may lack it. The status of a process that the job itself has killed is -9.
        """
        parts = []
        for name, process in self.processes.items():
            path = self.folder / (name + ".log")
            text = path.read_text(errors="replace")
            written = time.strftime("%H:%M:%S", time.localtime(path.stat().st_mtime))
            parts.append(
                "--- %s, status %s, last output %s\n%s" % (name, process.poll(), written, text)
            )
        return "\n".join(parts)

    def events(self, kind):
        """Return the events of one kind, in the order of writing."""
        found = json_lines.complete(self.folder / "events.jsonl")
        return [event for event in found if event["event"] == kind]


def _address(number):
    return "%s.%d" % (own_network(), number)
