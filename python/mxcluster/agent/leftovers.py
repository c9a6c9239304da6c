"""What is left of a job on this node: somebody looks, and does not assume. Nothing is changed.

The units and the firewall are root's to look at: `mxcluster.entry` and `mxcluster.firewall` do.
"""
import os
import time
from typing import Any, Dict, List

from mxcluster import network, processes
from mxcluster.agent import claims
from mxcluster.agent.folder import JobFolder

Json = Dict[str, Any]

VARIABLE = "MXCLUSTER_JOB_DIR"  # the plan gives it to every process
PATIENCE = 2.0  # seconds: an agent that has written its last word is about to end


def look(folder: JobFolder, patience: float = PATIENCE) -> List[str]:
    """What is left, a line each: living processes, among them an agent that still holds ports and GPUs, and listening ports.

    Looks again for `patience` seconds, as long as there is something.
    """
    deadline = time.monotonic() + patience
    while True:
        found = _look(folder)
        if not found or time.monotonic() >= deadline:
            return found
        time.sleep(0.1)


def _look(folder: JobFolder) -> List[str]:
    status = folder.status()
    if status is None:
        return []
    agent = processes.Identity(**status["agent"])
    known = [processes.Identity(**who) for who in status.get("left") or []]
    known += [processes.Identity(part["pid"], part["start_time"]) for part in status["processes"] if part["pid"]]
    there = {who for who in known if processes.alive(who)}
    there |= {who for who in processes.with_variable(VARIABLE, folder.path)
              if who.start_time >= agent.start_time and who.pid != os.getpid()}
    lines = ["the agent still runs, pid %d, and holds the job's ports and GPUs" % agent.pid] if processes.alive(agent) else []
    lines += ["pid %d (%s) still runs" % (who.pid, processes.command_name(who.pid)) for who in sorted(there)]
    for part in (claims.read_plan(folder) or {}).get("processes") or []:
        pid = network.listener(part["address"], part["port"]) if part.get("port") and part.get("address") else None
        if pid is not None and is_of(pid, agent, folder.path):
            lines.append("port %d is still listened on by pid %d (%s)" % (part["port"], pid, processes.command_name(pid)))
    return lines


def is_of(pid: int, agent: processes.Identity, path: str) -> bool:
    """Whether who listens on a port of the job's may be of the job in the folder `path`.

    Not if it is older than the job's agent, or of another job, which may have taken the port as soon as it was free.
    """
    who = processes.identity(pid)
    return who is not None and who.start_time >= agent.start_time and processes.variable(pid, VARIABLE) in (None, path)
