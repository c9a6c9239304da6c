"""Run this node's part of an MPI job. The agent starts this program on each node of the job.

    python -m mxcluster.node.mpi_job run        on the first node: run mpirun
    python -m mxcluster.node.mpi_job serve      on each other node: run the daemons of mpirun
    python -m mxcluster.node.mpi_job launch [OPTION...] HOST COMMAND...     start one daemon

mpirun starts a daemon on each node, and the daemon starts the processes of that node. By default
mpirun uses ssh, which leaves orphaned daemons when a job breaks off. Here mpirun calls `launch`,
which sends the daemon's command to the process `serve` of that node. So every process of the
program is a descendant of its node's agent, has the environment that the plan gives to its node,
and ends with the agent. No node needs to log in on another one.

`run` has a connection to each `serve`. Both ends send a beat each second. If the connection is
lost, both programs end with the status PEER_DIED: another process is the cause.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from typing import Any, Dict, List, Optional

from mxcluster import exit_codes, seal
from mxcluster.errors import MxclusterError
from mxcluster.node import mpi_engines, mpi_installation, processes, rendezvous
from mxcluster.node.mpi_channel import BEAT, Channel, connect
from mxcluster.package import OWN_FOLDERS

Json = Dict[str, Any]

FOLDER = "mpi"  # in the job folder: the hosts file, and the program that mpirun calls
START = 60.0  # seconds in which the processes of all nodes must have started
LEAVE = 10.0  # seconds for the daemons to end after mpirun has succeeded
SSH_LOST = 255  # the exit status of ssh after a lost connection, which mpirun expects
# The variables that mpirun passes to all processes. Each daemon already has the variables of its
# node. Without this list, Hydra would replace them by the variables of the first node.
PASSED = ("MXCLUSTER_JOB",)
NO_NODE = "%s is not a node of this job"


class Job:
    """The plan of the job, from this node's job folder `path`."""

    def __init__(self, path: str):
        with open(os.path.join(path, "plan.json"), encoding="utf-8") as stream:
            self.plan = json.load(stream)
        self.path, self.spec = path, self.plan["mpi"]
        self.token = seal.read_token(path)
        self.opener = seal.Opener(self.token)
        self.hosts = {one["host"]: one for one in self.spec["hosts"]}  # in the order of the ranks
        self.own = self.hosts[self.plan["host"]]
        self.patience = float(self.plan["heartbeat"]["timeout"])  # seconds without a beat

    @property
    def work_folder(self) -> str:
        """The folder on this node in which the program runs."""
        return os.path.join(self.path, OWN_FOLDERS, self.own["name"])

    def channel(self, connection: Any, other: str, own: Optional[str] = None) -> Channel:
        """Return a Channel over `connection` between two processes of the plan."""
        return Channel(connection, self.token, self.opener, own or self.own["name"], other)

    def prepare(self) -> mpi_installation.Installed:
        """Set the engine's variables, make folders and the program `launch`, and return the engine.

        Raises MxclusterError if the node lacks the engine.
        """
        os.makedirs(self.work_folder, exist_ok=True)
        seen = mpi_installation.find(self.spec["pre_execution"], self.spec["runtime"])
        here = seen["installed"]
        if here is None:
            raise MxclusterError(
                mpi_installation.missing(self.spec["runtime"], self.spec["pre_execution"], seen)
            )
        # The daemons of Open MPI 4 look for this program, too, though mpirun alone calls it.
        program = os.path.join(self.path, FOLDER, "launch")
        os.makedirs(os.path.dirname(program), 0o700, exist_ok=True)
        line = "exec %s -m mxcluster.node.mpi_job launch" % shlex.quote(sys.executable)
        write(program, '#!/bin/sh\n%s "$@"\n' % line, 0o700)
        own_way = mpi_engines.environment(
            mpi_engines.ENGINES[here.engine],
            agent=program,
            as_root=os.geteuid() == 0,
            network=self.spec["network"],
            interface=self.own["interface"],
            infiniband=self.spec["infiniband"],
        )
        # A variable that the user has set in mpi_env stays.
        os.environ.update({name: own_way[name] for name in own_way if name not in os.environ})
        os.environ["MXCLUSTER_WORK_DIR"] = self.work_folder
        return here

    def coordinate(self) -> int:
        """Run the coordination command in the work folder to its end. Return its exit status."""
        if not self.spec["coordination"]:
            return 0
        code = subprocess.call(
            mpi_installation.shell("", self.spec["coordination"]),
            cwd=self.work_folder,
            stdin=subprocess.DEVNULL,
        )
        if code:
            say("mpi_coordination_command %s" % exit_codes.describe(code))
        return code

    def start(self, command: str) -> subprocess.Popen:
        """Start `command` (a text) in a shell of this node, and return the process (Popen).

        The process gets SIGTERM when the calling thread ends.
        """
        parent = os.getpid()
        return subprocess.Popen(
            mpi_installation.shell(self.spec["pre_execution"], command),
            stdin=subprocess.DEVNULL,
            cwd="/",
            preexec_fn=lambda: processes.set_pdeathsig(parent, signal.SIGTERM),
        )


class Run:
    """The first node's part: mpirun, and a connection to the process `serve` of each other node."""

    def __init__(self, job: Job):
        self.job = job
        self.others = [one for host, one in job.hosts.items() if one is not job.own]
        self.channels = {}  # type: Dict[str, Channel]  # by host
        self.heard = {}  # type: Dict[str, float]  # host -> monotonic time of its last beat
        self.ready = set()  # type: set  # hosts
        self.lost = {}  # type: Dict[str, str]  # host -> reason

    def run(self) -> int:
        """Run the job to its end and return the exit status."""
        for one in self.others:
            threading.Thread(target=self.follow, args=(one,), daemon=True).start()
        here = self.job.prepare()
        code = self.job.coordinate() or self.meet()
        if code:
            return code
        mpirun = self.job.start(self.command(here))
        while mpirun.poll() is None and not self.lost:
            time.sleep(0.05)
        if not self.lost and mpirun.returncode:
            self.look_after_failure()
        if self.lost:
            say("\n".join("%s: %s" % lost for lost in sorted(self.lost.items())))
            return exit_codes.PEER_DIED
        for channel in self.channels.values() if mpirun.returncode == 0 else ():
            channel.send("done")
        return status_of(mpirun.returncode)

    def follow(self, one: Json) -> None:
        """Connect to the process `serve` of the node `one`, and receive its beats.

        `one` is an item of the spec's "hosts". Runs in a thread of its own until the connection is
        lost.
        """
        host = one["host"]
        try:
            channel = self.job.channel(connect(one["address"], one["port"], START), one["name"])
            channel.send("follow")
            channel.beat_on()
            self.channels[host] = channel
            while True:
                message = channel.receive(self.job.patience)
                self.heard[host] = time.monotonic()
                if message and message.kind == "ready":
                    self.ready.add(host)
        except (OSError, seal.NotSealed) as error:
            self.lost[host] = "the connection to its part of the job is lost (%s)" % error

    def meet(self) -> int:
        """Wait until all nodes have run their coordination command. Return 0, or PEER_DIED."""
        while len(self.ready) < len(self.others) and not self.lost:
            time.sleep(0.05)
        for host, why in sorted(self.lost.items()):
            say("%s: %s" % (host, why))
        return exit_codes.PEER_DIED if self.lost else 0

    def look_after_failure(self) -> None:
        """Wait until each node has sent another beat, or until a node is lost.

        mpirun also fails when a node is lost. In this case the loss is the cause of the failure.
        """
        ended = time.monotonic() + BEAT  # an earlier beat may have been on its way
        while not self.lost and any(
            self.heard.get(one["host"], 0.0) < ended for one in self.others
        ):
            time.sleep(0.05)

    def command(self, here: mpi_installation.Installed) -> str:
        """Write mpirun's hosts file, and return the command line of mpirun as a text."""
        engine, folder = mpi_engines.ENGINES[here.engine], os.path.join(self.job.path, FOLDER)
        write(
            os.path.join(folder, "hosts"),
            mpi_engines.hosts_file(
                engine, [(one["host"], one["processes"]) for one in self.job.spec["hosts"]]
            ),
        )
        enter = 'cd "$MXCLUSTER_WORK_DIR" || exit; '
        program = mpi_installation.shell("", enter + self.job.spec["command"])
        line = mpi_engines.command_line(
            engine,
            here.mpirun,
            os.path.join(folder, "hosts"),
            sum(one["processes"] for one in self.job.spec["hosts"]),
            PASSED,
            program,
            self.job.own["address"],
            self.job.own["interface"],
        )
        text = " ".join(map(shlex.quote, line))
        say("%s %s: %s" % (engine.title, here.version, text))
        return "exec " + text


class Serve:
    """The part of each other node: run the daemons of mpirun until `run` sends "done".

    `run` connects once, `launch` connects once for each daemon.
    """

    def __init__(self, job: Job):
        self.job = job
        self.first = job.spec["hosts"][0]["name"]
        self.ready = threading.Event()
        self.followed = threading.Event()
        self.over = threading.Event()
        self.code = 0
        self.daemons = 0
        self.lock = threading.Lock()

    def run(self) -> int:
        """Serve to the end of the job and return the exit status."""
        self.job.prepare()
        listener = rendezvous.listen(self.job.own["address"], self.job.own["port"])
        threading.Thread(target=self.accept, args=(listener,), daemon=True).start()
        code = self.job.coordinate()
        if code:
            self.followed.wait(START)  # so that `run` sees the end of this process at once
            return code
        self.ready.set()
        if not self.followed.wait(START):
            say("%s has not connected within %d s" % (self.first, START))
            return exit_codes.PEER_DIED
        self.over.wait()
        deadline = time.monotonic() + LEAVE
        while self.code == 0 and self.daemons and time.monotonic() < deadline:
            time.sleep(0.05)
        return self.code

    def accept(self, listener: Any) -> None:
        """Accept connections; a thread serves each of them."""
        while True:
            connection = listener.accept()[0]
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection: Any) -> None:
        """Serve one connection. A connection without the job's token is closed."""
        with connection:
            channel = self.job.channel(connection, self.first)
            try:
                message = channel.receive(self.job.patience)
            except (OSError, seal.NotSealed) as error:
                say("a connection is refused: %s" % error)
                return
            if message and message.kind == "follow":
                self.follow(channel)
            elif message and message.kind == "launch":
                self.launch(channel, message.payload.decode("utf-8"))

    def follow(self, channel: Channel) -> None:
        """Exchange beats with `run` until `run` sends "done" or the connection is lost."""
        self.followed.set()
        channel.beat_on()
        try:
            threading.Thread(target=self.tell_ready, args=(channel,), daemon=True).start()
            while True:
                message = channel.receive(self.job.patience)
                if message and message.kind == "done":
                    break
        except (OSError, seal.NotSealed) as error:
            say("the connection to %s is lost (%s)" % (self.first, error))
            self.code = exit_codes.PEER_DIED
        self.over.set()

    def tell_ready(self, channel: Channel) -> None:
        """Send "ready" to `run` when the coordination command has succeeded."""
        self.ready.wait()
        try:
            channel.send("ready")
        except OSError:
            pass  # `follow` sees the lost connection, too

    def launch(self, channel: Channel, command: str) -> None:
        """Run a daemon of mpirun to its end, and send its exit status to the program `launch`."""
        with self.lock:
            self.daemons += 1
        try:
            daemon = self.job.start(command)
            say("mpirun's daemon is pid %d" % daemon.pid)
            channel.send("ended", str(status_of(daemon.wait())))
        except OSError:
            pass  # `launch` was killed, or this machine has no shell: mpirun fails
        finally:
            with self.lock:
                self.daemons -= 1


def launch(job: Job, arguments: List[str]) -> int:
    """Start a daemon of mpirun, and return its exit status when it has ended.

    `arguments` are those of ssh: options without values, the host, the words of the command.
    """
    words = list(arguments)
    while words and words[0].startswith("-"):
        words.pop(0)
    one = job.hosts.get(words[0]) if words else None
    if one is None:
        say(NO_NODE % (words[0] if words else "''"))
        return SSH_LOST
    command = " ".join(words[1:])
    if one is job.own:
        os.chdir("/")
        line = mpi_installation.shell(job.spec["pre_execution"], command)
        os.execv(line[0], line)
    try:
        channel = job.channel(connect(one["address"], one["port"], START), one["name"])
        channel.send("launch", command)
        while True:
            message = channel.receive()
            if message and message.kind == "ended":
                return int(message.payload)
    except (OSError, ValueError, seal.NotSealed) as error:
        say("%s: the connection to its part of the job is lost (%s)" % (one["host"], error))
        return SSH_LOST


def status_of(code: int) -> int:
    """Return the exit status for a Popen's `code`, as in shells: 128 + the signal's number."""
    return 128 - code if code < 0 else code


def write(path: str, text: str, mode: int = 0o600) -> None:
    """Write the file `path` with this mode."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with open(descriptor, "w", encoding="utf-8") as stream:
        stream.write(text)


def say(text: str) -> None:
    """Write `text` to the log of this process."""
    print("mxcluster: " + text.replace("\n", "\nmxcluster: "), file=sys.stderr, flush=True)


def main(argv: List[str]) -> int:
    """Carry out the command line `argv` and return the exit status."""
    try:
        job = Job(os.environ["MXCLUSTER_JOB_DIR"])
        if argv[0] == "launch":
            return launch(job, argv[1:])
        return Run(job).run() if argv[0] == "run" else Serve(job).run()
    except (MxclusterError, OSError) as error:
        say(str(error))
        return 1


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(status)  # do not join threads that wait for a connection
