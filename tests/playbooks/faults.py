"""Faults of a job: how tests inject them, and the expected report, in one table for all suites."""

import collections
import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import threading
import time

from mxcluster import checkpoints, schemes
from mxcluster.node import addresses
from tests.machine import Stopwatch
from tests.playbooks.conftest import NET, PATIENCE, fill, small_disk
from tests.waiting import until

SCRIPTS = pathlib.Path(__file__).parent / "scripts"
KVS = tuple(scheme.name for scheme in schemes.distributed())
# Seconds of a quiet machine until no process runs after a process ends; timeouts are added. The
# slowest took 5.6 s (docs/faults.md).
QUICK = 15.0
CUT = 10.0  # seconds until a server without answers is detected: twice heartbeat_timeout
PORTS = (NET + ".11", NET + ".12", NET + ".13")


class Fault(collections.namedtuple("Fault", "strike cause words options seconds kvs")):
    """One kind of fault.

    Attributes:
        strike: the function that injects the fault into the Struck job once it trains; None if the
            job's script does.
        cause: (host, role) that the report must name, with the index of the first process of this
            role on this host.
        words: the texts that the reason or the log must contain.
        options: the options of train.yml.
        seconds: the maximum time until no process runs, on a quiet machine.
        kvs: the schemes under which the fault can happen.
    """

    def __new__(cls, strike, cause, words, seconds=QUICK, kvs=KVS, **options):
        return super().__new__(cls, strike, cause, words, options, seconds, kvs)


def signalled(host, role, signum, *words):
    """Return a fault: a signal ends the first process of a role on a host, or the host's agent.

    Args: `words` of the report, by default the name of the signal.
    """

    def strike(job):
        is_agent = role == "agent"
        os.kill(job.agent(host) if is_agent else job.pid(job.first(host, role)["name"]), signum)

    return Fault(strike, (host, role), words or [signum.name])


def killed_in_an_update(job):
    """Kill the server whose optimizer blocks and holds a lock of the groups' shared memory."""

    def updating():
        return [
            path.stem
            for path in job.folders.glob("*/%s/server-*.log" % job.job)
            if "fault at" in path.read_text()
        ]

    job.until(updating)
    os.kill(job.pid(updating()[0]), signal.SIGKILL)


def fill_the_disk(job):
    """Fill the file system of node2's jobs."""
    fill(job.folders / "node2")


SEPARATE = ("dist_sync", "dist_gsync")  # with the others no worker waits for a finished worker
RAISING, HANGING = (["faulty_optimizers:" + name] for name in ("Raising", "Hanging"))
WAIT = {"seconds": 8 + QUICK}
WORKER, SERVER = ("node2", "worker"), (None, "server")
# An option `fault` is the fault that the script scripts/faulty.py causes.
FAULTS = {
    "worker exits": Fault(None, WORKER, ["exited with status 1", "out of luck"], fault="exits"),
    "worker killed": signalled("node2", "worker", signal.SIGKILL),
    "worker held": signalled("node2", "worker", signal.SIGSTOP),
    "server killed": signalled("node2", "server", signal.SIGKILL),
    "server killed in an update": Fault(
        killed_in_an_update,
        SERVER,
        ["SIGKILL"],
        kvs=("dist_gsync",),
        fault="updater hangs",
        server_classes=HANGING,
    ),
    "server held": signalled("node2", "server", signal.SIGSTOP),
    "scheduler killed": signalled("node1", "scheduler", signal.SIGKILL),
    "scheduler held": signalled("node1", "scheduler", signal.SIGSTOP),
    "agent killed": signalled("node2", "agent", signal.SIGKILL, "agent", "killed"),
    "agent ended": signalled("node2", "agent", signal.SIGTERM, "was shut down", "SIGTERM"),
    "updater raises": Fault(
        None, SERVER, ["updater", "had enough"], fault="updater raises", server_classes=RAISING
    ),
    "updater hangs": Fault(
        None,
        SERVER,
        ["has not returned"],
        fault="updater hangs",
        server_classes=HANGING,
        stall_timeout=8,
        **WAIT,
    ),
    "worker never starts": Fault(
        None, WORKER, ["start_timeout"], fault="never starts", start_timeout=8, **WAIT
    ),
    "worker hangs": Fault(None, WORKER, ["no progress"], fault="hangs", stall_timeout=8, **WAIT),
    "unequal batches": Fault(None, WORKER, ["unequal"], kvs=SEPARATE, fault="has fewer batches"),
    "key left out": Fault(
        None,
        WORKER,
        ["has pushed the key 4 31 times", "worker-0 has pushed that key 32 times"],
        kvs=SEPARATE,
        fault="leaves out a key",
    ),
    "loss becomes NaN": Fault(
        None, (None, "worker"), ["became NaN", "on_nan=continue"], lr=1e6, program=True
    ),
    "disk full": Fault(fill_the_disk, ("node2", None), ["No space left"], small_disk=True),
    "port taken": Fault("hog", ("node2", None), ["bind failed"]),
}


def cut(source, target, name=None, seconds=QUICK, words=()):
    """Return a fault: the packets from one node to a process of another node are dropped.

    Without a name the packets to all processes of that node are.
    """

    def strike(job):
        parts = [part for part in job.plan(target)["processes"] if name in (None, part["name"])]
        job.wires.cut(source, target, "{ %s }" % ", ".join(str(part["port"]) for part in parts))

    words = words or ["%s gets no answer from %s (%s at" % (source, target, name)]
    return Fault(strike, (source, "agent"), words, seconds)


# These faults need root and two nodes with a network between them. They do not affect ssh.
NETWORK = {
    "network cut": cut(
        "node2",
        "node1",
        words=[
            "the network between the nodes failed before any process",
            "node2 gets no answer from node1 (scheduler-0 at 10.203.0.1:9191, ",
        ],
    ),
    "network cut from worker to server": cut("node2", "node1", "server-0", CUT + QUICK),
    "network cut from server to worker": cut("node2", "node1", "worker-0", CUT + QUICK),
    "network cut from worker to scheduler": cut("node2", "node1", "scheduler-0"),
    "network cut from scheduler to worker": cut("node1", "node2", "worker-1"),
    "network cut from scheduler to server": cut("node1", "node2", "server-1"),
}
# The same faults for mxcluster's own training program, after its first checkpoint.
TO_SAVING = {
    name: fault._replace(options=dict(fault.options, program=True, savemodel=True))
    for name, fault in FAULTS.items()
    if callable(fault.strike) and "fault" not in fault.options
}


class Struck:
    """A job on the local inventory with the fault `name` of the table `faults`."""

    def __init__(self, project, name, kv, job, faults=FAULTS, wires=None):
        self.project, self.name, self.fault, self.kv, self.job = (
            project,
            name,
            faults[name],
            kv,
            job,
        )
        self.folders = project.path / ".state" / "local" / "jobs"
        # dist_gsync gets groups of two workers and of one; the wires join two nodes only.
        self.workers = 3 if kv == "dist_gsync" and not wires else 2
        options = dict(
            self.fault.options,
            kv=kv,
            job_id=job,
            num_workers=self.workers,
            num_servers=2,
            root_port=9191,
        )
        if options.pop("program", False):
            options.setdefault("num_epochs", 2000)
            options.setdefault("step_ms", 20)  # the workers mostly sleep, and slow no other test
        else:
            options.update(
                script=str(SCRIPTS / "faulty.py"), script_args=[kv, options.pop("fault", "nothing")]
            )
        self.disk = contextlib.ExitStack()
        if options.pop("small_disk", False):  # a full disk of the machine would affect more
            self.disk.enter_context(small_disk(self.folders / "node2"))
        self.wires = wires
        self.hog = Hog(self.folders, job) if self.fault.strike == "hog" else None
        inventory = ["-i", wires.inventory] if wires else []
        self.process = project.start("train.yml", *inventory, "-e", json.dumps(options))
        self.output = b""
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        self.output = self.process.stdout.read()

    def run(self):
        """Inject the fault, and wait for the end of the job.

        Returns (seconds until no process ran, seconds until ansible-playbook ended).
        """
        if callable(self.fault.strike):
            self.until(self.trains)
            self.fault.strike(self)
            struck = time.time()
        elif self.hog:
            self.until(lambda: self.hog.since)
            struck = self.hog.since
        else:
            struck = None
        self.until(
            lambda: not self.project.processes() and (struck or self.process.poll() is not None),
            over=True,
        )
        gone = (
            time.time() if struck else max(status["ended"] for status in self.statuses().values())
        )
        self.until(lambda: self.process.poll() is not None, over=True)
        self.reader.join()
        ended = time.time()
        began = struck or self.struck_by_itself()
        return gone - began, ended - began

    def close(self):
        """End the playbook, free the taken port, and unmount the small disk."""
        self.kill()
        if self.hog:
            self.hog.close()
        self.disk.close()

    def struck_by_itself(self):
        """Return the time of a fault that the script injects, from the logs or the verdict."""
        logs = "".join(
            path.read_text(errors="replace") for path in self.folders.glob("*/%s/*.log" % self.job)
        )
        found = re.findall(r"^fault at ([0-9.]+)$", logs, re.MULTILINE)
        return min(map(float, found)) if found else self.verdict()["first_failure"]["time"]

    def verdict(self):
        """Return the verdict of the failed job."""
        path = self.project.path / "runs" / self.job / "verdict.json"
        assert path.exists(), self.evidence()
        return json.loads(path.read_text())

    def statuses(self):
        found = {}
        for path in self.folders.glob("*/%s/status.json" % self.job):
            found[path.parent.parent.name] = json.loads(path.read_text())
        return found

    def plan(self, host):
        return json.loads((self.folders / host / self.job / "plan.json").read_text())

    def started(self):
        return min([status["started"] for status in self.statuses().values()] or [None])

    def agents_memory(self):
        """Return the memory of the largest agent in MiB, 0 once all agents have ended."""
        sizes = [0]
        for status in self.statuses().values():
            with contextlib.suppress(OSError):
                text = pathlib.Path("/proc/%d/status" % status["agent"]["pid"]).read_text()
                sizes += [
                    int(number) / 1024.0
                    for number in re.findall(r"^VmRSS:\s+(\d+) kB", text, re.MULTILINE)
                ]
        return max(sizes)

    def trains(self):
        if self.fault.options.get("savemodel"):
            return last_checkpoint(self.project, self.job) is not None
        logs = [path.read_text() for path in self.folders.glob("*/%s/worker-*.log" % self.job)]
        return len(logs) == self.workers and all("step 20\n" in log for log in logs)

    def first(self, host, role):
        """Return the plan's entry of the first process of a role on a host, None without one."""
        return next((part for part in self.plan(host)["processes"] if part["role"] == role), None)

    def pid(self, name):
        return next(
            part["pid"]
            for status in self.statuses().values()
            for part in status["processes"]
            if part["name"] == name
        )

    def agent(self, host):
        return self.statuses()[host]["agent"]["pid"]

    def until(self, condition, over=False):
        """Wait for condition(); with `over`, the playbook may have ended before."""

        def come():
            value = condition()
            assert value or over or self.process.poll() is None, (
                "the playbook ended before: " + self.evidence()
            )
            return value

        return until(come, PATIENCE, self.evidence, pause=0.1)

    def kill(self):
        """Kill the playbook if it still runs."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)

    def evidence(self):
        """Return the output and the logs as one text."""
        self.kill()
        self.reader.join(5)
        logs = [
            "--- %s\n%s" % (path, path.read_text(errors="replace")[-2000:])
            for path in sorted(self.folders.glob("*/%s/*.log" % self.job))
        ]
        if self.hog:
            logs.append("the port is not taken: %s" % self.hog.error)
        return "\n".join([self.name, self.kv, self.output.decode(errors="replace")[-6000:]] + logs)


def last_checkpoint(project, job):
    """Return the last complete checkpoint of the job on the controller, None without one."""
    return checkpoints.last_complete(str(project.path / "runs" / job / "checkpoints"), "mlp")[0]


def suffer(project, name, kv, job, faults=FAULTS, wires=None):
    """Run a job with a fault, and check the report and the leftovers.

    Returns (seconds until no process ran, seconds until ansible-playbook ended).
    """
    struck = Struck(project, name, kv, job, faults, wires)
    try:
        with Stopwatch() as watch:
            gone, ended = struck.run()
        check(struck)
    finally:
        struck.close()
    summary = "%s, %s: gone after %.1f s, ansible-playbook back after %.1f s, slowness %.2f" % (
        *(name, kv, gone, ended),
        watch.slowness,
    )
    assert gone <= struck.fault.seconds * watch.slowness, "%s\n%s" % (summary, struck.evidence())
    print("fault: " + summary, flush=True)
    return gone, ended


def check(struck):
    """Check the verdict, the output and the leftovers of a job that a fault has ended."""
    project, job, fault, verdict = struck.project, struck.job, struck.fault, struck.verdict()
    failure, output = verdict["first_failure"], struck.output.decode(errors="replace")
    assert struck.process.returncode != 0 and not verdict["ok"], struck.evidence()
    host, role = fault.cause
    assert host in (None, failure["host"]) and role in (None, failure["role"]), "%s\n%s" % (
        failure,
        struck.evidence(),
    )
    if host and role not in (None, "agent"):
        assert failure["index"] == struck.first(host, role)["index"], "%s\n%s" % (
            failure,
            struck.evidence(),
        )
    for word in fault.words:
        assert word in output, "%r is missing in the output\n%s" % (word, struck.evidence())
    logs = {path.name for path in (project.path / "runs" / job / "nodes").glob("*/*.log")}
    plan = json.loads((project.path / "runs" / job / "plan.json").read_text())
    assert (
        logs >= {part["name"] + ".log" for part in plan["processes"]}
        and len(plan["processes"]) >= 5
    ), (logs, plan)
    nothing_left(struck)
    if failure["role"] == "worker" and failure["log"]:
        assert failure["log"][-1] in output, struck.evidence()


def nothing_left(struck):
    """Check that an ended job has no processes, no ports and no files of a running job."""
    left = {
        address: [port for port in addresses.listeners(address) if 9191 <= port < 9291]
        for address in PORTS
    }
    assert not any(left.values()) and not struck.project.processes(), left
    for pattern in ("lease", "token", "*.pulse", "reserve"):
        assert not list(struck.folders.glob("*/%s/%s" % (struck.job, pattern))), pattern


class Hog(threading.Thread):
    """Bind the port of node2's first server after the rendezvous, before the server does."""

    def __init__(self, folders, job):
        super().__init__(daemon=True)
        self.path, self.since, self.socket = folders / "node2" / job, None, None
        self.error, self.closed = None, threading.Event()
        self.start()

    def run(self):
        while self.since is None and not self.closed.wait(0.01):
            try:
                status = json.loads((self.path / "status.json").read_text())
                if any(part["pid"] for part in status["processes"]):
                    plan = json.loads((self.path / "plan.json").read_text())
                    process = next(part for part in plan["processes"] if part["role"] == "server")
                    self.socket = socket.socket()
                    self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    self.socket.bind((process["address"], process["port"]))
                    self.socket.listen(1)
                    self.since = time.time()
            except (OSError, ValueError) as error:  # before the job writes these files
                self.error = error

    def close(self):
        self.closed.set()
        self.join()
        if self.socket:
            self.socket.close()
