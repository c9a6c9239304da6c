"""The port that a job's ports begin at: the one that is asked for, or the first from which all that it needs are free."""
from typing import Any, Dict, List, Sequence, Union

from ..errors import BadInput, refuse

FIRST, LAST = 9091, 65000

Held = Dict[str, Dict[str, Dict[str, str]]]  # {host: {"ports": {"9091": who has it}, "gpus": {"0": who has it}}}


def root_port(asked: Union[str, int], laid_out: Sequence[Dict[str, Any]], held: Held) -> int:
    """The number from which the ports of the processes count.

    `laid_out` are the processes as `processes.lay_out` gives them from FIRST on. BadInput if a number is asked for and one of
    the ports is held, with who has it; or if no number is left.
    """
    offsets = [(process["host"], process["address"], process["port"] - FIRST) for process in laid_out
               if process["port"] is not None]
    if asked != "auto":
        refuse(_taken(int(asked), offsets, held))
        return int(asked)
    taken = {host: {int(port) for port in of_host.get("ports") or {}} for host, of_host in held.items()}
    for base in range(FIRST, LAST + 1):
        if not any(base + offset in taken.get(host, ()) for host, _, offset in offsets):
            return base
    raise BadInput("root_port=auto: from %d to %d no run of ports is free on all nodes; end what listens there" % (FIRST, LAST))


def _taken(base: int, offsets: List[tuple], held: Held) -> List[str]:
    """A line for each port that another has, and one with what to do."""
    lines = ["%s: port %d on %s is in use by %s" % (host, base + offset, address, held[host]["ports"][str(base + offset)])
             for host, address, offset in offsets if str(base + offset) in (held.get(host) or {}).get("ports", {})]
    cure = "root_port=%d is refused: leave it out, and free ports are taken; or choose another one, or end what has these" % base
    return lines + [cure] if lines else []
