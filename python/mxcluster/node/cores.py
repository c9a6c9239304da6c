"""Find the cores that the processes of this node may use, and bind a process to some of them.

A cpuset, systemd, taskset or a batch system may give a process a part of the machine. The kernel
tells this part as the affinity of each process, and children inherit it.
"""

import contextlib
import glob
import os
import re
import sys
from typing import Iterable, List, Mapping, Optional, Tuple

from mxcluster.environment import CPUS
from mxcluster.lists import grouped, spans
from mxcluster.model.node_record import Core
from mxcluster.numbers import to_span

SYSTEM = "/sys/devices/system/cpu"


def usable(folder: str = SYSTEM) -> List[Core]:
    """Return the cores with the CPUs that this process may use, by NUMA node and number.

    A CPU without facts about its siblings counts as a core. Args: `folder` of the kernel's files.
    """
    allowed = os.sched_getaffinity(0)
    places = grouped((_place(cpu, folder), cpu) for cpu in sorted(allowed))
    return [Core(cpus=cpus, memory=memory) for (memory, _), cpus in sorted(places.items())]


def granted(environment: Mapping[str, str]) -> Optional[float]:
    """Return the CPUs that Slurm gives to the job on this node without binding it, else None.

    With ConstrainCores of task/cgroup, Slurm binds the job. Then the affinity has these CPUs.
    """
    text = environment.get("SLURM_CPUS_ON_NODE", "")
    number = float(text) if re.fullmatch("[0-9]{1,5}", text) else None
    return number if number is not None and number < len(os.sched_getaffinity(0)) else None


def problems(planned: Iterable[int]) -> List[str]:
    """Return [message] if a process of this node may not use a CPU of `planned`, else []."""
    missing = set(planned) - os.sched_getaffinity(0)
    return ["%s: run provision.yml, or correct cpus" % _lacking(missing)] if missing else []


def bind(environment: Mapping[str, str]) -> None:
    """Bind this process to the CPUs that the plan gives to it, if the plan gives some.

    Each later thread and child inherits the binding. If this process may not use one of the CPUs,
    the function ends the process with a message.
    """
    wanted = {int(number) for number in environment.get(CPUS, "").split(",") if number}
    if wanted:
        missing = wanted - os.sched_getaffinity(0)
        if missing:
            sys.exit("mxcluster: %s: correct cpus, or the limit of the job" % _lacking(missing))
        os.sched_setaffinity(0, wanted)


def _lacking(missing: Iterable[int]) -> str:
    return "the job may not use the CPUs %s of this node, but the CPUs %s" % (
        ",".join(spans(missing)),
        ",".join(spans(os.sched_getaffinity(0))),
    )


def _place(cpu: int, folder: str) -> Tuple[int, int]:
    """Return (the number of the NUMA node, the first sibling) of the CPU `cpu`."""
    own = os.path.join(folder, "cpu%d" % cpu)
    memory = [re.sub(r".*/node", "", path) for path in glob.glob(os.path.join(own, "node[0-9]*"))]
    first = cpu
    with contextlib.suppress(OSError, ValueError):
        with open(os.path.join(own, "topology", "thread_siblings_list"), encoding="ascii") as file:
            first = min(number for part in file.read().split(",") for number in to_span(part))
    return int(memory[0]) if memory else 0, first
