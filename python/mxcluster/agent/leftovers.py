"""List the leftover processes and ports of a job on this node. The module ends no process.

`mxcluster.entry` and `mxcluster.node.firewall` check systemd units and firewall rules, because only
root can do these checks.
"""

import time
from typing import List

from mxcluster.agent import runtimes
from mxcluster.agent.folder import JobFolder
from mxcluster.node import addresses, containers, processes

PATIENCE = 10.0  # seconds: an agent ends shortly after its last status, on a busy node later


def look(folder: JobFolder, patience: float = PATIENCE) -> List[str]:
    """Return a line for each leftover process and listening port of the job in `folder`.

    A living agent counts as a leftover process, because the agent holds ports and GPUs. The
    function repeats the check for at most `patience` seconds, until the list is empty.
    """
    deadline = time.monotonic() + patience
    while True:
        found = _look(folder)
        if not found or time.monotonic() >= deadline:
            return found
        time.sleep(0.02)


def _look(folder: JobFolder) -> List[str]:
    status = folder.status()
    if status is None:
        return []
    agent = processes.recorded(status.agent)
    known = [processes.recorded(who) for who in status.left]
    known += [processes.recorded(part) for part in status.processes if part.pid]
    there = {who for who in known if processes.alive(who)}
    there.update(runtimes.of_folder(folder.path, agent))
    lines = []
    if processes.alive(agent):
        lines.append(
            "the agent (pid %d) still runs, and holds the job's ports and GPUs: run stop.yml"
            % agent.pid
        )
    lines += [
        "pid %d (%s), a process of the ended job, still runs: kill this process"
        % (who.pid, processes.command_name(who.pid))
        for who in sorted(there)
    ]
    plan = folder.known_plan()
    for part in plan.processes if plan else []:
        port = part.port or 0
        pid = addresses.listener(part.address, port) if port else None
        if pid is not None and is_of(pid, agent, folder.path):
            lines.append(
                "port %d is still held by the leftover process pid %d (%s): kill this process"
                % (port, pid, processes.command_name(pid))
            )
    return lines


def remove_containers(folder: JobFolder) -> List[str]:
    """Remove the containers that a killed agent has left, and return their ids.

    The containers end with the agent. But an engine keeps a container that it was just making.
    """
    plan = folder.known_plan()
    container = plan.container if plan else None
    if container is None or container.engine not in containers.ENGINES:
        return []
    return containers.remove(container.engine, folder.path)


def is_of(pid: int, agent: processes.Identity, path: str) -> bool:
    """Return True if the process `pid`, which listens on a port of the job, may belong to the job.

    `path` is the job folder, and `agent` the job's agent. A process older than the agent belongs to
    another program. A process with another MXCLUSTER_JOB_DIR belongs to another job, which may have
    taken the port as soon as the port was free.
    """
    who = processes.identity(pid)
    return (
        who is not None
        and who.start_time >= agent.start_time
        and processes.variable(pid, runtimes.VARIABLE) in (None, path)
    )
