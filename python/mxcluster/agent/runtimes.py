"""Start the processes of a job on their node: as children of the agent, or in containers.

`of_plan` chooses the class Host or Containers. Both classes have the same methods, so the
supervisor treats both alike.

For a process in a container, the agent's child is the client of the engine. The client lives as
long as the container. The process itself is a child of the container's first process, which is
`mxcluster.node.contained`. On the node the process has another pid than in the container. Two
environment variables identify the process: the job folder, and the name in the plan.
"""

import json
import os
import re
import subprocess
import tempfile
import time
from typing import IO, Callable, Dict, List, Mapping, NamedTuple, Optional, Set, Union, cast

from mxcluster import exit_codes
from mxcluster.agent.folder import AGENT_LOCK
from mxcluster.model.plan import Container, NodePlan, Process
from mxcluster.node import containers, gpus, processes

# Besides the variables of the plan, a process on the host has these variables of the agent. In a
# container, a process has the variables of the image instead.
KEPT = ("PATH", "HOME", "LANG", "TMPDIR", "LD_LIBRARY_PATH")
VARIABLE = "MXCLUSTER_JOB_DIR"  # the plan gives this variable to every process
NAME = "MXCLUSTER_PROCESS"  # the name of a process in a container, as the plan has it
# The client ends with one of these statuses if the engine fails, or if the image lacks the program.
OF_ENGINE = (125, 126, 127)
# The messages of an engine's client after the end of the engine's service.
LOST = re.compile("error waiting for container|error during connect|to the [Dd]ocker daemon")
LOOK = 0.2  # seconds between two searches for new processes in containers
LATE = 3.0  # seconds: an engine can still make the container after a kill of the client


class Found(NamedTuple):
    """A process of the job in a container, and the first process of this container."""

    process: processes.Identity
    first: processes.Identity


class Host:
    """Runs the processes of a job as children of the agent."""

    contained = False

    @staticmethod
    def kept() -> Dict[str, str]:
        """Return the variables of the agent that a process gets, as a dict."""
        return {name: os.environ[name] for name in KEPT if name in os.environ}

    @staticmethod
    def popen(
        process: Process,
        environment: Dict[str, str],
        folder: str,
        log: int,
        in_child: Callable[[], None],
    ) -> "subprocess.Popen[bytes]":
        """Start `process`, a process of the plan, as `_start` does."""
        return _start(process.command, environment, subprocess.DEVNULL, folder, log, in_child)

    @staticmethod
    def identity(child: int, name: str) -> Optional[processes.Identity]:
        """Return the Identity of the process, which is the child of the agent itself.

        Args: `child` the pid of the child; `name` of the process.
        """
        return processes.identity(child)

    @staticmethod
    def roots() -> List[processes.Identity]:
        """Return []: all processes of the job are descendants of the agent."""
        return []

    @staticmethod
    def exit_code(code: int) -> int:
        """Return the exit code of a process from the exit code `code` of the agent's child."""
        return code

    @staticmethod
    def why_not_started(code: int, last: List[str]) -> Optional[str]:
        """Return None: after a failed start Popen has already raised the error."""
        return None

    @staticmethod
    def why_lost(code: int, last: List[str]) -> Optional[str]:
        """Return None: no engine can lose a process of the host."""
        return None

    @staticmethod
    def clean() -> List[str]:
        """Return []: the job leaves nothing besides processes."""
        return []


class Containers:
    """Runs the processes of the job in the folder `path` in containers.

    `plan` is this node's part of the plan. `agent` is the Identity of the agent. All processes of
    the job are younger than the agent.
    """

    contained = True

    def __init__(self, path: str, plan: NodePlan, agent: processes.Identity):
        self.path, self.agent = path, agent
        self.container = cast(Container, plan.container)
        self.engine = self.container.engine
        node = plan.nodes[plan.host]
        self.mounts = [(path, True)] + [
            (one, False) for one in node.mounts or [] if os.path.exists(one)
        ]
        self.gpus: Optional[List[str]] = None  # the first start asks the engine
        self.firsts: Set[processes.Identity] = set()  # first processes of the containers
        self.seen: Dict[str, Found] = {}  # the result of the latest search
        self.looked = 0.0  # the monotonic time of the latest search
        self.cut_off = False  # True if a client was killed before the agent knew its process

    @staticmethod
    def kept() -> Dict[str, str]:
        """Return {}: a process in a container has the variables of the image."""
        return {}

    def client(self, process: Process) -> List[str]:
        """Return the command line of the client that runs `process`, a process of the plan."""
        if self.gpus is None:
            self.gpus = []
            if gpus.count():
                info = containers.info_of(self.engine)
                self.gpus = containers.gpu_options(self.engine, info) or []
        words = containers.run_options(self.container, self.mounts, self.gpus)
        words += ["--interactive", "--label", "%s=%s" % (containers.LABEL, self.path)]
        words += ["--label", "mxcluster.process=%s" % process.name, "--workdir", self.path]
        return words + containers.first_process(self.container)

    def popen(
        self,
        process: Process,
        environment: Dict[str, str],
        folder: str,
        log: int,
        in_child: Callable[[], None],
    ) -> "subprocess.Popen[bytes]":
        """Start the client that runs `process`, a process of the plan, as `_start` does.

        `contained` reads the command and the environment of the process from stdin. Stdin is a
        nameless file in memory, so that no secret gets to the disk.
        """
        order = {
            "command": process.command,
            "env": dict(environment, **{NAME: process.name}),
            "lock": os.path.join(self.path, AGENT_LOCK),
        }
        with tempfile.TemporaryFile(dir=containers.SHARED_MEMORY) as stdin:
            stdin.write(json.dumps(order).encode("utf-8"))
            stdin.seek(0)
            client, variables = self.client(process), containers.client_environment()
            return _start(client, variables, stdin, folder, log, in_child)

    def identity(self, child: int, name: str) -> Optional[processes.Identity]:
        """Return the Identity of a process, or None if the engine has not started it yet.

        Args: `child` the pid of the client; `name` of the process.
        """
        if time.monotonic() - self.looked >= LOOK:
            self.seen, self.looked = self.find(), time.monotonic()
        there = self.seen.get(name)
        return there.process if there else None

    def find(self) -> Dict[str, Found]:
        """Return {name in the plan: Found} of the job's running processes in containers."""
        lines = {line.pid: line for line in processes.table()}
        own: Dict[int, str] = {}
        for pid, line in lines.items():
            if line.start_time < self.agent.start_time or line.state in processes.DEAD:
                continue
            if processes.variable(pid, VARIABLE) == self.path:
                name = processes.variable(pid, NAME)
                if name:
                    own[pid] = name
        found: Dict[str, Found] = {}
        # An orphan of the process has the same parent and variables, but is younger.
        for pid in sorted(own, key=lambda one: lines[one].start_time):
            first = lines.get(lines[pid].parent)
            if first and first.pid not in own and first.pid != self.agent.pid:
                found.setdefault(own[pid], Found(lines[pid].identity, first.identity))
        self.firsts |= {one.first for one in found.values()}
        return found

    def roots(self) -> List[processes.Identity]:
        """Return the first processes of all containers of the job."""
        self.find()
        return sorted(self.firsts)

    @staticmethod
    def exit_code(code: int) -> int:
        """Return the exit code of a process. For status 128 + n this is -n, the negative signal.

        Args: `code` the exit code of the client. It is negative if a signal killed the client.
        """
        return exit_codes.of_shell(code)

    def why_not_started(self, code: int, last: List[str]) -> Optional[str]:
        """Return the reason of a failed start, or None if the process may have run.

        The agent calls the method for a process without a known pid.

        Args: `code` the exit code of the client; `last` the last lines of the process's log.
        """
        if code not in OF_ENGINE:
            self.cut_off = self.cut_off or code != 0
            return None
        why = " ".join(last) or "exit status %d" % code
        return "did not start in a container of %s: %s" % (self.engine, why)

    def why_lost(self, code: int, last: List[str]) -> Optional[str]:
        """Return the reason if the engine has lost the container of a process, else None.

        Args: as for `why_not_started`. The client prints its error into the log of the process.
        """
        errors = [line for line in last if LOST.search(line)]
        if code != OF_ENGINE[0] or not errors:
            return None
        return (
            "%s on this node has lost the container of the process, so its exit status is unknown: "
            "look at the service of %s. %s" % (self.engine, self.engine, errors[-1])
        )

    def clean(self) -> List[str]:
        """Remove the leftover containers of the job, and return their ids."""
        removed = containers.remove(self.engine, self.path)
        deadline = time.monotonic() + (LATE if self.cut_off else 0)
        while time.monotonic() < deadline:
            time.sleep(0.5)
            removed += containers.remove(self.engine, self.path)
        return removed


Runtime = Union[Host, Containers]


def of_folder(path: str, agent: processes.Identity) -> List[processes.Identity]:
    """Return the processes with the variable of the job folder `path`, without this process.

    A process that is older than the job's agent got the variable from another parent.
    """
    return [
        who
        for who in processes.with_variable(VARIABLE, path)
        if who.start_time >= agent.start_time and who.pid != os.getpid()
    ]


def _start(
    argv: List[str],
    environment: Mapping[str, str],
    stdin: Union[int, IO[bytes]],
    folder: str,
    log: int,
    in_child: Callable[[], None],
) -> "subprocess.Popen[bytes]":
    """Start `argv` in a session of its own, in the job folder `folder`.

    Args: `log` the descriptor for the output; `in_child` runs between fork and exec.
    """
    return subprocess.Popen(
        argv,
        env=environment,
        stdin=stdin,
        cwd=folder,
        start_new_session=True,
        stdout=log,
        stderr=log,
        preexec_fn=in_child,
    )


def of_plan(path: str, plan: Optional[NodePlan], agent: processes.Identity) -> Runtime:
    """Return the runtime of the job in the folder `path`.

    Args: `plan` this node's part of the plan; `agent` the Identity of the agent.
    """
    return Containers(path, plan, agent) if plan and plan.container else Host()
