"""Choose the first port of a job: the requested port, or the start of the first free range."""

from typing import Dict, List, Sequence, Tuple, Union

from mxcluster.errors import BadInput, refuse
from mxcluster.model.plan import Process

FIRST, LAST = 9091, 65000

# {host: {"ports": {"9091": name of the holder}, "gpus": {"0": name of the holder}}}
Held = Dict[str, Dict[str, Dict[str, str]]]


def root_port(
    knob: Union[str, int], laid_out: Sequence[Process], held: Held, first: int = FIRST
) -> int:
    """Return the first port of the job. The processes use this port and the next numbers.

    Raises BadInput with the holder of each requested port that is in use, or, with "auto", if the
    nodes have no range of free ports.

    Args: `knob` a port or "auto"; `laid_out` the processes from `processes.lay_out`, with ports
    from FIRST on; `held` the ports in use; `first` the port at which the search of "auto" begins.
    """
    offsets = [
        (process.host, process.address, process.port - FIRST)
        for process in laid_out
        if process.port is not None
    ]
    if knob != "auto":
        refuse(_taken(int(knob), offsets, held))
        return int(knob)
    taken = {
        host: {int(port) for port in of_host.get("ports") or {}} for host, of_host in held.items()
    }
    for base in range(first, LAST + 1):
        if not any(base + offset in taken.get(host, ()) for host, _, offset in offsets):
            return base
    raise BadInput(
        "root_port=auto: between %d and %d the nodes have no range of free ports for the job. End "
        "programs that listen on these ports of the nodes" % (FIRST, LAST)
    )


def moved(laid_out: Sequence[Process], first: int) -> List[Process]:
    """Return the processes of `root_port` with ports from `first` on."""
    return [
        process if process.port is None else process.replaced(port=process.port - FIRST + first)
        for process in laid_out
    ]


def busy(processes: Sequence[Process], held: Held) -> List[str]:
    """Return a line for each port and GPU of the planned `processes` that is in use."""
    none: Dict[str, str] = {}
    lines = []
    for process in processes:
        of_host = held.get(process.host) or {}
        used, gpus = of_host.get("ports", none), of_host.get("gpus", none)
        if process.port is not None and str(process.port) in used:
            holder = used[str(process.port)]
            lines.append("port %d on %s is in use by %s" % (process.port, process.host, holder))
        lines += [
            "GPU %d on %s is in use by %s" % (gpu, process.host, gpus[str(gpu)])
            for gpu in process.gpus
            if str(gpu) in gpus
        ]
    return ["planned again: " + line for line in dict.fromkeys(lines)]


def _taken(base: int, offsets: List[Tuple[str, str, int]], held: Held) -> List[str]:
    """Return a line for each port in use, then a line with the cure; [] if all ports are free."""
    lines = [
        "%s: port %d on %s is in use by %s"
        % (host, base + offset, address, held[host]["ports"][str(base + offset)])
        for host, address, offset in offsets
        if str(base + offset) in (held.get(host) or {}).get("ports", {})
    ]
    cure = (
        "root_port=%d is refused: leave root_port out to take free ports, choose another number, "
        "or end the programs on these ports" % base
    )
    return lines + [cure] if lines else []
