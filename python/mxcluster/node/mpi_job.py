"""Run this node's part of an MPI job. The agent starts this program on each node of the job.

    python -m mxcluster.node.mpi_job run        on the first node: run mpirun
    python -m mxcluster.node.mpi_job serve      on each other node: run the daemons of mpirun
    python -m mxcluster.node.mpi_job launch [OPTION...] HOST COMMAND...     start one daemon

mpirun starts a daemon on each node, and the daemon starts the processes of that node. By default
mpirun uses ssh, which leaves orphaned daemons after an aborted job. Here mpirun calls `launch`, and
`launch` sends the daemon's command to the process `serve` of that node. So every process of the
user's program is a descendant of the agent on the same node, and ends with this agent. The process
has the plan's environment for this node. No node needs ssh access to another node.

`run` has a connection to each `serve`. Both ends send a heartbeat each second. If the connection is
lost, both programs end with the status PEER_DIED, because another process is the cause.
"""

import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Dict, List, Optional, Set, Tuple, cast

from mxcluster import exit_codes, seal
from mxcluster.errors import MxclusterError
from mxcluster.file_io import replace
from mxcluster.model.node_requests import HERE
from mxcluster.model.plan import MpiHost, MpiProgram, NodePlan
from mxcluster.node import addresses, mpi_daemons, mpi_engines, mpi_installation, processes
from mxcluster.node.mpi_channel import BEAT, Channel, connect
from mxcluster.package import OWN_FOLDERS

FOLDER = "mpi"  # in the job folder: the hosts file, and the program that mpirun calls
START = 60.0  # timeout in seconds for the start of the processes on all nodes
LEAVE = 10.0  # timeout in seconds for the end of the daemons after the success of mpirun
# Hydra (MPICH, Intel MPI) prints this line when it has seen the failure of a process and ends the
# others. MPICH 5.0 then waits for ever if another daemon was still starting its processes.
FAILED = b"BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES"
CLEANUP = 10.0  # timeout in seconds for the end of mpirun after this line
SSH_LOST = 255  # the exit status of ssh after a lost connection, which mpirun expects
# The variables that mpirun passes to all processes. Each daemon already has the variables of its
# node. Without this list, Hydra would replace them by the variables of the first node.
PASSED = ("MXCLUSTER_JOB",)
NO_NODE = "%s is not a node of this job: remove this host from mpi_env and mpi_command"


class Job:
    """The job's plan and token, from this node's job folder `path`."""

    def __init__(self, path: str):
        with open(os.path.join(path, "plan.json"), encoding="utf-8") as stream:
            self.plan = NodePlan.decode(json.load(stream))
        self.path, self.spec = path, cast(MpiProgram, self.plan.mpi)
        self.token = seal.read_token(path)
        self.opener = seal.Opener(self.token)
        self.hosts = {one.host: one for one in self.spec.hosts}  # in the order of the ranks
        self.own = self.hosts[self.plan.host]
        self.patience = self.plan.heartbeat.timeout  # seconds without a heartbeat

    @property
    def work_folder(self) -> str:
        """The path of the folder in which the program runs on this node."""
        return os.path.join(self.path, OWN_FOLDERS, self.own.name)

    def channel(self, connection: socket.socket, other: str) -> Channel:
        """Return a Channel from this node's MPI process to the process `other` of the plan."""
        return Channel(connection, self.token, self.opener, self.own.name, other)

    def prepare(self) -> mpi_installation.Installed:
        """Prepare this node for mpirun, and return the engine of the node.

        The function sets the engine's variables, and makes the work folder and the program
        `launch`. Raises MxclusterError if the node lacks the engine.
        """
        os.makedirs(self.work_folder, exist_ok=True)
        seen = mpi_installation.find(self.spec.pre_execution, self.spec.runtime)
        here = seen.installed
        if here is None:
            image = self.plan.container.image if self.plan.container else ""
            place = "in the image %s" % image if image else HERE
            name, pre_execution = self.spec.runtime, self.spec.pre_execution
            raise MxclusterError(mpi_installation.missing(name, pre_execution, seen, place))
        # Only mpirun calls this program, but the daemons of Open MPI 4 look for the program, too.
        program = os.path.join(self.path, FOLDER, "launch")
        os.makedirs(os.path.dirname(program), 0o700, exist_ok=True)
        line = "exec %s -m mxcluster.node.mpi_job launch" % shlex.quote(sys.executable)
        replace(program, '#!/bin/sh\n%s "$@"\n' % line, 0o700)
        engine, session = mpi_engines.ENGINES[here.engine], mpi_engines.session_folder(self.token)
        if engine.session:
            os.makedirs(session, 0o700, exist_ok=True)  # the agent removes it (`JobFolder.tidy`)
        own_way = mpi_engines.environment(
            engine,
            agent=program,
            as_root=os.geteuid() == 0,
            network=self.spec.network,
            interface=self.own.interface,
            infiniband=self.spec.infiniband,
            contained=bool(self.plan.container),
            session=session,
        )
        # A variable that the user has set in mpi_env stays.
        os.environ.update({name: own_way[name] for name in own_way if name not in os.environ})
        os.environ["MXCLUSTER_WORK_DIR"] = self.work_folder
        return here

    def coordinate(self) -> int:
        """Run the coordination command in the work folder, and return the command's exit status."""
        if not self.spec.coordination:
            return 0
        code = subprocess.call(
            mpi_installation.shell("", self.spec.coordination),
            cwd=self.work_folder,
            stdin=subprocess.DEVNULL,
        )
        if code:
            log(
                "mpi_coordination_command %s on this node: correct the command"
                % exit_codes.describe(code)
            )
        return code

    def start(self, command: str) -> "subprocess.Popen[bytes]":
        """Start `command` (a string) in a shell on this node, and return the process (Popen).

        The process gets SIGTERM when the calling thread ends.
        """
        parent = os.getpid()
        return subprocess.Popen(
            mpi_installation.shell(self.spec.pre_execution, command),
            stdin=subprocess.DEVNULL,
            cwd="/",
            preexec_fn=lambda: processes.set_pdeathsig(parent, signal.SIGTERM),
        )


class Run:
    """The MPI job's part on the first node, which runs mpirun and watches the other nodes.

    Each other node runs the process `serve`.
    """

    def __init__(self, job: Job):
        self.job = job
        self.others = [one for host, one in job.hosts.items() if one is not job.own]
        self.channels: Dict[str, Channel] = {}  # by host
        self.heartbeats: Dict[str, float] = {}  # host -> monotonic time of the last heartbeat
        self.ready: Set[str] = set()  # hosts
        self.lost: Dict[str, str] = {}  # host -> reason
        self.read = 0  # bytes of the log in which `has_given_up` has found no failure

    def run(self) -> int:
        """Run the job to its end, and return the exit status."""
        for one in self.others:
            threading.Thread(target=self.follow, args=(one,), daemon=True).start()
        here = self.job.prepare()
        code = self.job.coordinate() or self.wait_for_nodes()
        if code:
            return code
        mpirun = self.job.start(self.command(here))
        daemons = mpi_daemons.Daemons(identity(mpirun))
        given_up: Optional[float] = None
        looked = 0.0
        while mpirun.poll() is None and not self.lost:
            time.sleep(0.05)
            now = time.monotonic()
            if now - looked > daemons.pause:
                looked, killed = now, daemons.killed()
                if killed:
                    mpirun.kill()
                    log(killed)
                    return 1
                if given_up is None and self.has_given_up():
                    given_up = now + CLEANUP
            if given_up and now > given_up:
                mpirun.kill()
                log(
                    "mpirun has reported the failure of a process, and has not ended for %d s: "
                    "mxcluster ends the job. Read the lines above" % CLEANUP
                )
                return 1
        if not self.lost and mpirun.returncode:
            self.look_after_failure()
        if self.status_of_lost():
            return exit_codes.PEER_DIED
        for channel in self.channels.values() if mpirun.returncode == 0 else ():
            channel.send("done")
        return status_of(mpirun.returncode)

    def has_given_up(self) -> bool:
        """Return True if mpirun has written the line FAILED to the log of this process."""
        try:
            with open(os.path.join(self.job.path, self.job.own.name + ".log"), "rb") as stream:
                stream.seek(self.read)
                piece = stream.read()
        except OSError:
            return False
        self.read += max(0, len(piece) - len(FAILED))  # the line may be written in two pieces
        return FAILED in piece

    def follow(self, one: MpiHost) -> None:
        """Connect to the process `serve` of the node `one`, and receive heartbeats.

        `one`: an item of the spec's "hosts". A separate thread runs this function until the
        connection is lost.
        """
        host = one.host
        try:
            channel = self.job.channel(connect(one.address, cast(int, one.port), START), one.name)
            channel.send("follow")
            channel.beat_on()
            self.channels[host] = channel
            while True:
                message = channel.receive(self.job.patience)
                self.heartbeats[host] = time.monotonic()
                if message and message.kind == "ready":
                    self.ready.add(host)
        except (OSError, seal.NotSealed) as error:
            self.lost[host] = (
                "the connection to the node's part of the job is lost (%s). Check this node and "
                "the network" % error
            )

    def wait_for_nodes(self) -> int:
        """Wait until all nodes have run the coordination command.

        Returns 0, or PEER_DIED if a node is lost.
        """
        while len(self.ready) < len(self.others) and not self.lost:
            time.sleep(0.05)
        return self.status_of_lost()

    def status_of_lost(self) -> int:
        """Log the lost nodes. Return PEER_DIED, or 0 if no node is lost."""
        for lost in sorted(self.lost.items()):
            log("%s: %s" % lost)
        return exit_codes.PEER_DIED if self.lost else 0

    def look_after_failure(self) -> None:
        """Wait after a failure of mpirun until each node has sent a heartbeat or a node is lost.

        mpirun also fails if a node is lost. The wait shows whether a lost node caused the failure.
        """
        ended = time.monotonic() + BEAT  # an earlier heartbeat may have been on its way
        while not self.lost and any(
            self.heartbeats.get(one.host, 0.0) < ended for one in self.others
        ):
            time.sleep(0.05)

    def command(self, here: mpi_installation.Installed) -> str:
        """Write mpirun's hosts file, and return the command line of mpirun as a string."""
        engine, hosts = mpi_engines.ENGINES[here.engine], self.job.spec.hosts
        hosts_file = os.path.join(self.job.path, FOLDER, "hosts")
        slots = [(one.host, one.processes) for one in hosts]
        replace(hosts_file, mpi_engines.hosts_file(engine, slots), 0o600)
        enter = 'cd "$MXCLUSTER_WORK_DIR" || exit; '
        program = mpi_installation.shell("", enter + self.job.spec.command)
        line = mpi_engines.command_line(
            engine,
            here.mpirun,
            hosts_file,
            sum(one.processes for one in hosts),
            PASSED,
            program,
            self.job.own.address,
            self.job.own.interface,
        )
        text = " ".join(map(shlex.quote, line))
        log("%s %s: %s" % (engine.title, here.version, text))
        return "exec " + text


class Serve:
    """The MPI job's part on each other node, which runs the daemons of mpirun.

    The process `run` of the first node connects once, and `launch` connects once for each daemon.
    The part ends when `run` sends "done" or the connection to `run` is lost.
    """

    def __init__(self, job: Job):
        self.job = job
        self.first = job.spec.hosts[0].name
        self.to_run: Optional[Channel] = None  # the channel to `run`
        self.followed = threading.Event()
        self.over = threading.Event()
        self.code = 0
        self.daemons: Set[Channel] = set()  # the channels to the running programs `launch`

    def run(self) -> int:
        """Serve connections until the job ends, and return the exit status.

        The function also runs the coordination command. If this command fails, the result is the
        command's exit status.
        """
        self.job.prepare()
        listener = addresses.listen(self.job.own.address, cast(int, self.job.own.port))
        threading.Thread(target=self.accept, args=(listener,), daemon=True).start()
        code = self.job.coordinate()
        self.followed.wait(START)
        if code:  # `run` is connected, and sees the end of this process at once
            return code
        if self.to_run is None:
            log(
                "%s did not connect to this node within %d s: read the log of that process, and "
                "check the network" % (self.first, START)
            )
            return exit_codes.PEER_DIED
        with contextlib.suppress(OSError):  # `follow` sees the lost connection, too
            self.to_run.send("ready")
        self.over.wait()
        deadline = time.monotonic() + LEAVE
        while self.code == 0 and self.daemons and time.monotonic() < deadline:
            time.sleep(0.05)
        return self.code

    def accept(self, listener: socket.socket) -> None:
        """Accept connections on `listener`, and serve each connection in a new thread."""
        while True:
            connection = listener.accept()[0]
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection: socket.socket) -> None:
        """Serve one connection, or close a connection without the job's token."""
        with connection:
            channel = self.job.channel(connection, self.first)
            try:
                message = channel.receive(self.job.patience)
            except (OSError, seal.NotSealed) as error:
                log(
                    "this node has closed a connection without a valid message (%s): find the "
                    "program that connected" % error
                )
                return
            if message and message.kind == "follow":
                self.follow(channel)
            elif message and message.kind == "launch":
                self.launch(channel, message.payload.decode("utf-8"))

    def follow(self, channel: Channel) -> None:
        """Exchange heartbeats with `run` until `run` sends "done" or the connection is lost."""
        self.to_run = channel
        self.followed.set()
        channel.beat_on()
        try:
            while True:
                message = channel.receive(self.job.patience)
                if message and message.kind == "done":
                    break
        except (OSError, seal.NotSealed) as error:
            log(
                "the connection to %s is lost (%s): read the log of that process, and check the "
                "network" % (self.first, error)
            )
            self.code = exit_codes.PEER_DIED
        self.over.set()

    def launch(self, channel: Channel, command: str) -> None:
        """Run a daemon of mpirun to its end, and send the exit status to the program `launch`."""
        self.daemons.add(channel)
        try:
            daemon = self.job.start(command)
            log("mpirun's daemon is pid %d" % daemon.pid)
            code, killed = self.watch(daemon)
            # mpirun itself kills no daemon of another node. No look may have seen a daemon that a
            # signal killed at once; and a shell that waited for it gives the signal as its status.
            if by_signal(code) and mpi_daemons.starts_ranks(command):
                killed = killed or mpi_daemons.killed_by_signal(daemon.pid)
            if killed:
                log(killed)
                self.code = 1
                self.over.set()
            channel.send("ended", str(status_of(code)))
        except OSError:
            pass  # `launch` was killed, or this node has no shell: mpirun fails
        finally:
            self.daemons.discard(channel)

    def watch(self, daemon: "subprocess.Popen[bytes]") -> Tuple[int, Optional[str]]:
        """Wait for the end of `daemon`. Return (return code, message if a daemon was killed)."""
        daemons = mpi_daemons.Daemons(identity(daemon))
        while True:
            code, killed = daemon.poll(), daemons.killed()
            if killed or code is not None and not daemons.orphaned:
                return code or 0, killed
            try:
                daemon.wait(daemons.pause)
            except subprocess.TimeoutExpired:
                continue
            if daemons.orphaned:
                time.sleep(mpi_daemons.SOON)


def identity(child: "subprocess.Popen[bytes]") -> processes.Identity:
    """Return the Identity of a child that has not been waited for."""
    found = processes.identity(child.pid)
    assert found
    return found


def launch(job: Job, arguments: List[str]) -> int:
    """Run a daemon of mpirun on a node to the daemon's end, and return the daemon's exit status.

    `arguments`: [OPTION, ..., HOST, COMMAND, ...], as for ssh. The options have no values. If HOST
    is this node, the function does not return: the daemon replaces this process, and the process
    ends with the daemon's exit status. Returns SSH_LOST for an unknown host or a lost connection.
    """
    words = list(arguments)
    while words and words[0].startswith("-"):
        words.pop(0)
    one = job.hosts.get(words[0]) if words else None
    if one is None:
        log(NO_NODE % (words[0] if words else "''"))
        return SSH_LOST
    command = " ".join(words[1:])
    if one is job.own:
        os.chdir("/")
        line = mpi_installation.shell(job.spec.pre_execution, command)
        os.execv(line[0], line)
    try:
        channel = job.channel(connect(one.address, cast(int, one.port), START), one.name)
        channel.send("launch", command)
        while True:
            message = channel.receive()
            if message and message.kind == "ended":
                return int(message.payload)
    except (OSError, ValueError, seal.NotSealed) as error:
        log(
            "%s: the connection to the node's part of the job is lost (%s). Check this node and "
            "the network" % (one.host, error)
        )
        return SSH_LOST


def by_signal(code: int) -> bool:
    """Return True for the return code (from Popen) of a process, or of its shell, that was killed.

    A shell gives 128 plus the number of the signal.
    """
    return 128 < status_of(code) <= 128 + 64


def status_of(code: int) -> int:
    """Return the exit status of a shell for `code`, the return code of a Popen.

    The status of a killed process is 128 plus the number of the signal.
    """
    return 128 - code if code < 0 else code


def log(text: str) -> None:
    """Write `text` to the log of this process (stderr)."""
    print("mxcluster: " + text.replace("\n", "\nmxcluster: "), file=sys.stderr, flush=True)


def main(argv: List[str]) -> int:
    """Carry out the command line `argv` and return the exit status."""
    try:
        job = Job(os.environ["MXCLUSTER_JOB_DIR"])
        if argv[0] == "launch":
            return launch(job, argv[1:])
        return Run(job).run() if argv[0] == "run" else Serve(job).run()
    except (MxclusterError, OSError) as error:
        log(str(error))
        return 1


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(status)  # do not join threads that wait for a connection
