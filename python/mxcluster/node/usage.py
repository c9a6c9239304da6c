"""Read what processes and interfaces of this node use, from files of the kernel.

A figure that the kernel does not tell is None.
"""

import os
from typing import Dict, List, NamedTuple, Optional, Tuple

from mxcluster.node import processes

INTERFACES = "/sys/class/net"
LOOPBACK = 0x8  # IFF_LOOPBACK of the flags of an interface
_TICKS, _PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")


class Used(NamedTuple):
    """What a process has used so far."""

    cpu: float  # seconds of all threads, and of ended children
    memory: Optional[int]  # bytes in memory; shared pages count for each process
    threads: Dict[int, float]  # {thread: seconds on a core or waiting for one}, {} if unknown


def of_process(pid: int) -> Optional[Used]:
    """Return what the process with the pid `pid` has used, None after its end."""
    cpu = cpu_seconds(pid)
    return None if cpu is None else Used(cpu, memory(pid), threads(pid))


def cpu_seconds(pid: int) -> Optional[float]:
    """Return the CPU time of a process and its ended children in seconds (stat, fields 14 to 17).

    Returns None after the end of the process.
    """
    text = processes.read(pid, "stat")
    fields = text[text.rfind(b")") + 2 :].split()
    return sum(map(int, fields[11:15])) / _TICKS if len(fields) > 15 else None


def memory(pid: int) -> Optional[int]:
    """Return the memory of a process in bytes (statm, field 2), None if it is not known.

    The kernel tells 0 for a process that has ended and has not been reaped.
    """
    fields = processes.read(pid, "statm").split()
    return int(fields[1]) * _PAGE or None if len(fields) > 1 else None


def threads(pid: int) -> Dict[int, float]:
    """Return {thread: seconds on a core or waiting for one} of a process (schedstat).

    A thread that waits for a core wants to compute: its core is too slow, or shared. Returns {} if
    the kernel counts no such times.
    """
    try:
        names = os.listdir("/proc/%d/task" % pid)
    except OSError:
        return {}
    found = {}
    for name in names:
        fields = processes.read(pid, "task/%s/schedstat" % name).split()
        if len(fields) > 1:
            found[int(name)] = (int(fields[0]) + int(fields[1])) / 1e9
    return found


def traffic(interface: str, folder: str = INTERFACES) -> Optional[Tuple[int, int]]:
    """Return the (received, sent) bytes of an interface since it came up.

    Returns None for a loopback interface, which all nodes of this machine share, and if the kernel
    does not tell.
    """
    flags = _number(folder, interface, "flags")
    if flags is None or flags & LOOPBACK:
        return None
    received = _number(folder, interface, "statistics/rx_bytes")
    sent = _number(folder, interface, "statistics/tx_bytes")
    return None if received is None or sent is None else (received, sent)


def link(interface: str, folder: str = INTERFACES) -> Optional[float]:
    """Return the speed of an interface in bytes per second, None if the kernel does not tell.

    Most virtual machines do not tell.
    """
    megabits = _number(folder, interface, "speed")
    return megabits * 1e6 / 8 if megabits and megabits > 0 else None


def _number(folder: str, interface: str, name: str) -> Optional[int]:
    try:
        with open(os.path.join(folder, interface, name), encoding="ascii") as stream:
            return int(stream.read(), 0)
    except (OSError, ValueError):
        return None


def family_of(
    roots: Dict[str, processes.Identity], agent: int, lines: List[processes.Entry]
) -> Tuple[Dict[str, List[int]], List[int]]:
    """Return ({name: pids of the process and its descendants}, pids of the agent and its helpers).

    Args: `roots` {name: a process of the job}; `agent` the pid of the agent; `lines` the process
    table.
    """
    families = {
        name: [one.pid for one in processes.family([root], lines)] for name, root in roots.items()
    }
    of_job = {pid for pids in families.values() for pid in pids}
    helpers = [line.pid for line in lines if line.parent == agent and line.pid not in of_job]
    return families, [agent, *helpers]
