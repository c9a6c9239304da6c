"""How a process of a job runs on its node: as a child of the agent, or in a container.

`of_plan` chooses. The two classes have the same methods, so the supervisor knows no difference.

The agent's child for a process in a container is the client of the engine, which lives as long as
the container. The process itself is a child of the container's first process
(`mxcluster.node.contained`). The node sees it under a pid of its own, and knows it by two variables
of its environment.
"""

import json
import os
import subprocess
import tempfile
import time
from typing import Any, Dict, List, NamedTuple, Optional, Union

from mxcluster.agent.folder import AGENT_LOCK
from mxcluster.node import containers, gpus, processes
from mxcluster.node.contained import OF_SIGNAL

Json = Dict[str, Any]

# Variables that processes on the host inherit from the agent, besides the plan's environment. In a
# container they are those of the image.
KEPT = ("PATH", "HOME", "LANG", "TMPDIR", "LD_LIBRARY_PATH")
VARIABLE = "MXCLUSTER_JOB_DIR"  # the plan gives this variable to every process
NAME = "MXCLUSTER_PROCESS"  # a process in a container has its name in the plan
SIGNALS = 64
# Exit statuses of a client whose container has not run: the engine failed, or lacks the program.
OF_ENGINE = (125, 126, 127)
LATE = 3.0  # seconds in which an engine may still make the container of a client that was killed


class Found(NamedTuple):
    """A process of the job in a container: itself, and the first process of the container."""

    process: processes.Identity
    first: processes.Identity


class Host:
    """Runs processes as plain children of the agent."""

    contained = False

    @staticmethod
    def kept() -> Dict[str, str]:
        """Return the variables that a process inherits from the agent."""
        return {name: os.environ[name] for name in KEPT if name in os.environ}

    @staticmethod
    def popen(process: Json, environment: Dict[str, str], **options: Any) -> subprocess.Popen:
        """Start `process`, an entry of the plan. `options`: those of Popen."""
        return subprocess.Popen(
            process["command"], env=environment, stdin=subprocess.DEVNULL, **options
        )

    @staticmethod
    def identity(child: int, part: Json) -> Optional[processes.Identity]:
        """Return the Identity of the process of the child, which is the child itself.

        Args: `child` the pid of the child; `part` the process's entry in the status.
        """
        return processes.identity(child)

    @staticmethod
    def roots() -> List[processes.Identity]:
        """Return the ancestors of the job's processes that are no children of the agent."""
        return []

    @staticmethod
    def exit_code(code: int) -> int:
        """Return the exit code of a process from the exit code `code` of the agent's child."""
        return code

    @staticmethod
    def why_not_started(code: int, last: List[str]) -> Optional[str]:
        """Return None: Popen has raised the error of a process that does not start."""
        return None

    @staticmethod
    def clean() -> List[str]:
        """Remove what is left of the job besides processes, and return its names."""
        return []


class Containers:
    """Runs the processes of the job in the folder `path` in containers.

    `plan` is this node's part of the plan. `agent` is the Identity of the agent: all processes of
    the job are younger.
    """

    contained = True

    def __init__(self, path: str, plan: Json, agent: processes.Identity):
        self.path, self.agent = path, agent
        self.container = plan["container"]
        self.engine = self.container["engine"]
        node = plan["nodes"][plan["host"]]
        self.mounts = [(path, True)] + [
            (one, False) for one in node["mounts"] if os.path.exists(one)
        ]
        self.gpus = None  # type: Optional[List[str]]  # asked of the engine by the first process
        self.firsts = set()  # type: set  # Identities
        self.cut_off = False  # whether a client was killed before its process was known

    @staticmethod
    def kept() -> Dict[str, str]:
        """Return {}: a process in a container inherits the variables of the image."""
        return {}

    def client(self, process: Json) -> List[str]:
        """Return the command line of the client that runs `process`, an entry of the plan."""
        if self.gpus is None:
            info = containers.info_of(self.engine) if gpus.count() else {}
            self.gpus = (containers.gpu_options(self.engine, info) or []) if info else []
        words = containers.run_options(self.container, self.mounts, self.gpus)
        words += ["--interactive", "--label", "%s=%s" % (containers.LABEL, self.path)]
        words += ["--label", "mxcluster.process=%s" % process["name"], "--workdir", self.path]
        return words + containers.first_process(self.container)

    def popen(self, process: Json, environment: Dict[str, str], **options: Any) -> subprocess.Popen:
        """Start the client that runs `process`, an entry of the plan. `options`: those of Popen.

        Command and environment of the process go to `contained` in a file without a name that lies
        in memory, so that no secret gets to the disk.
        """
        asked = {
            "command": process["command"],
            "env": dict(environment, **{NAME: process["name"]}),
            "lock": os.path.join(self.path, AGENT_LOCK),
        }
        with tempfile.TemporaryFile(dir=containers.SHARED_MEMORY) as told:
            told.write(json.dumps(asked).encode("utf-8"))
            told.seek(0)
            return subprocess.Popen(
                self.client(process), env=containers.client_environment(), stdin=told, **options
            )

    def identity(self, child: int, part: Json) -> Optional[processes.Identity]:
        """Return the Identity of a process, None as long as the engine has not started it.

        Args: `child` the pid of its client; `part` the process's entry in the status.
        """
        there = self.find().get(part["name"])
        return there.process if there else None

    def find(self) -> Dict[str, Found]:
        """Return the running processes of the job in containers, by their names in the plan."""
        lines = {line.pid: line for line in processes.table()}
        own = {}  # type: Dict[int, str]
        for pid, line in lines.items():
            if line.start_time < self.agent.start_time or line.state in processes.DEAD:
                continue
            if processes.variable(pid, VARIABLE) == self.path:
                name = processes.variable(pid, NAME)
                if name:
                    own[pid] = name
        found = {}  # type: Dict[str, Found]
        # An orphan in the container has the same parent and environment, and is younger.
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
        """Return the exit code of a process: minus its signal for status 128 + signal.

        Args: `code` that of the client, negative if a signal killed the client itself.
        """
        return OF_SIGNAL - code if OF_SIGNAL < code <= OF_SIGNAL + SIGNALS else code

    def why_not_started(self, code: int, last: List[str]) -> Optional[str]:
        """Return why a process without a known pid was not started, None if it may have run.

        Args: `code` the exit code of the client; `last` the last lines of its log.
        """
        if code not in OF_ENGINE:
            self.cut_off = self.cut_off or code != 0
            return None
        told = " ".join(last) or "status %d" % code
        return "could not be started in a container by %s: %s" % (self.engine, told)

    def clean(self) -> List[str]:
        """Remove the containers of the job that the engine still has. Return their ids."""
        removed = containers.remove(self.engine, self.path)
        deadline = time.monotonic() + (LATE if self.cut_off else 0)
        while time.monotonic() < deadline:
            time.sleep(0.5)
            removed += containers.remove(self.engine, self.path)
        return removed


Runtime = Union[Host, Containers]


def of_plan(path: str, plan: Optional[Json], agent: processes.Identity) -> Runtime:
    """Return the runtime of the job in the folder `path`. `plan`: this node's part of its plan."""
    return Containers(path, plan, agent) if plan and plan.get("container") else Host()
