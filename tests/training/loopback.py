"""Start the processes of a job on loopback without Ansible and agents, for kv-store tests."""

import json
import os
import pathlib
import signal
import subprocess
import time
import uuid

from mxcluster.job.plan import processes

NODE_PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "python"
SCHEDULER = "127.0.0.11"
PORT = 19091 + 100 * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])  # tests run concurrently


class Job:
    """Scheduler, servers and workers on 127.0.0.11 and up, which end together.

    `groups` contains the group of each worker. Under dist_gsync each of `servers` is a process for
    each group. Every worker runs `script`. `environment` applies to every process,
    `worker_environment[i]` to worker i.
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
        staleness=0,
        wrap=(),
        heartbeat=5,
    ):
        each = 1 + max(groups) if kv == "dist_gsync" else 1  # processes of a server
        servers = [
            {"address": "127.0.0.%d" % (21 + index // each), "port": port + index % each}
            for index in range(servers * each)
        ]
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.processes = {}
        with open(
            os.open(str(self.folder / "token"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w"
        ) as stream:
            stream.write(uuid.uuid4().hex)
        self._common = dict(
            PATH=os.environ["PATH"],
            PYTHONPATH=str(NODE_PACKAGE),
            HOME=str(self.folder),
            DMLC_PS_ROOT_URI=SCHEDULER,
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
            self._common.setdefault(
                "MXCLUSTER_SERVER_RANKS", ",".join(map(str, processes.ranks(servers)))
            )
        run = [*wrap, str(python), "-u", "-m", "mxcluster.training"]
        self._start("scheduler", 0, SCHEDULER, port, [*run, "serve"])
        for index, server in enumerate(servers):
            own = (
                dict(
                    DMLC_NUM_WORKER=str(groups.count(index % each)),
                    MXCLUSTER_GROUP=str(index % each),
                )
                if each > 1
                else {}
            )
            self._start("server", index, server["address"], server["port"], [*run, "serve"], own)
        for index in range(len(groups)):
            own = dict(
                MXCLUSTER_GROUP=str(groups[index]), **(worker_environment or {}).get(index, {})
            )
            self._start(
                "worker",
                index,
                "127.0.0.%d" % (31 + index),
                port,
                [*run, "script", str(script), "--", *map(str, arguments)],
                own,
            )

    def _start(self, role, index, address, port, command, own=None):
        name = "%s-%d" % (role, index)
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
        log = open(self.folder / (name + ".log"), "wb")
        self.processes[name] = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=str(self.folder),
            start_new_session=True,
        )

    def wait(self, seconds=120, grace=20):
        """Return {process: exit status}; a process killed after `seconds` has a string as status.

        `grace` is the time in seconds for the other processes after a failure.
        """
        deadline = time.time() + seconds
        while time.time() < deadline and any(
            process.poll() is None for process in self.processes.values()
        ):
            if any(process.poll() for process in self.processes.values()):
                deadline = min(deadline, time.time() + grace)
            time.sleep(0.05)
        codes = {}
        for name, process in self.processes.items():
            codes[name] = process.poll() if process.poll() is not None else "still running"
        self.end()
        return codes

    def end(self):
        for process in self.processes.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def succeed(self, seconds=120):
        """Wait, and fail with all logs unless all processes exit with 0."""
        codes = self.wait(seconds)
        assert set(codes.values()) == {0}, "%s\n%s" % (codes, self.evidence())
        return self

    def evidence(self, lines=25):
        """Return the last lines of every log."""
        parts = []
        for name in self.processes:
            text = (self.folder / (name + ".log")).read_text(errors="replace").splitlines()[-lines:]
            parts.append("--- %s\n%s" % (name, "\n".join(text)))
        return "\n".join(parts)

    def events(self, kind):
        """Return the events of one kind, in the order of writing."""
        path = self.folder / "events.jsonl"
        if not path.exists():
            return []
        return [
            event
            for event in map(json.loads, path.read_text().splitlines())
            if event["event"] == kind
        ]
