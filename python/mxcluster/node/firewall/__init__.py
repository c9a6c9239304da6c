"""Open a job's ports to the job's nodes, and close them to all others, while the job runs.

`python -m mxcluster.firewall hold FILE`, as root, by a unit that the unit of the job's agent needs:
sets the rules before the agent starts, puts them back when somebody's reload has swept them away,
and removes them when it is told to end, since the agent has, in whatever way. `close FILE` makes
sure, and prints what is there all the same, a line each. `can` prints why nothing can close ports
here, if so. FILE is {"job", "address", "interface", "ports": [...], "peers": [address, ...],
"uid"}, where "uid" is the training user: no other user of the node but root gets to the ports over
the node's own address.

`nft` and `iptables` close and open, `firewalld` opens. All that is added carries the job's name or
is exactly known, so closing finds it again, and closing twice is no error. Where no program of
these works, the job runs with open ports, and says so.
"""
import json
import os
import signal
import socket
import sys
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from .. import processes
from ..errors import MxclusterError
from . import firewalld, iptables, nft

Json = Dict[str, Any]
# What was there or was added when the ports were opened: firewalld's rich rules by zone (an
# interface may change its zone before they are removed), the line that begins firewalld's own
# table, and whether nft works.
Opened = NamedTuple("Opened", [("rich", firewalld.Rich), ("firewalld", Optional[str]), ("nft", bool)])

FOLDER = "/run/mxcluster"
LOOK = 2.0  # seconds between two looks whether the rules are still there; one takes some ms
CANNOT = "neither nft nor iptables works on this node, so nothing keeps strangers from the ports of jobs: install nftables"


def wish(plan: Json) -> Json:
    """What the firewall of a node has to let in, from the node's part of a plan (`plan.for_node`)."""
    node = plan["nodes"][plan["host"]]
    return {"job": plan["job"], "address": node["address"], "interface": node["interface"],
            "ports": sorted(process["port"] for process in plan["processes"] if process["port"] is not None),
            "peers": sorted({peer["address"] for peer in plan["peers"]}, key=socket.inet_aton)}


def open_for(wanted: Json) -> Opened:
    """Close the job's ports to strangers, open them to its peers.

    Rules of the same job that are there are replaced. MxclusterError with what a firewall said if
    it refuses.
    """
    if not wanted["ports"]:
        return Opened({}, None, False)
    found = nft.ruleset()
    if found is not None:
        nft.carry_out(nft.opening(wanted, found))
    program = iptables.program(found is not None)
    if program:
        iptables.carry_out(program, iptables.closing(wanted["job"], iptables.listed(program)) + iptables.opening(wanted))
    rich = firewalld.wanted_rules(wanted) if firewalld.runs() else {}
    firewalld.change("open", rich)
    return Opened(rich, found.firewalld if found is not None else None, found is not None)


def close_for(wanted: Json, opened: Optional[Opened] = None) -> None:
    """Remove all that `open_for` has added. MxclusterError with what a firewall said if it refuses."""
    if not wanted["ports"]:
        return
    found = nft.ruleset()
    if found is not None:
        nft.carry_out(nft.closing(wanted["job"], found))
    program = iptables.program(found is not None)
    if program:
        iptables.carry_out(program, iptables.closing(wanted["job"], iptables.listed(program)))
    if firewalld.runs():
        firewalld.change("close", opened.rich if opened else firewalld.wanted_rules(wanted))


def missing(wanted: Json, opened: Opened) -> List[str]:
    """Where rules of the job are not there any more: somebody has reloaded a firewall."""
    if not wanted["ports"]:
        return []
    found = nft.ruleset()
    if found is None and opened.nft:
        raise MxclusterError("nft does not answer any more")
    places = nft.missing(wanted, found) if found is not None else []
    program = iptables.program(found is not None)
    if program and iptables.is_missing(wanted, iptables.listed(program)):
        places.append(os.path.basename(program))
    if found is not None and found.firewalld != opened.firewalld:  # a reload makes firewalld's table anew
        places.append("firewalld")
    return places


def can() -> str:
    """Why nothing here can close ports, "" if something can."""
    found = nft.ruleset()
    return "" if found is not None or iptables.program(False) else CANNOT


def left(path: str) -> List[str]:
    """What is still there for the job of the FILE `path`, which is gone when closing has succeeded."""
    job = os.path.basename(path)[:-len(".json")]
    found = nft.ruleset()
    lines = nft.left(job, found) if found is not None else []
    program = iptables.program(found is not None)
    lines += iptables.left(job, iptables.listed(program)) if program else []
    if os.path.exists(path):
        lines.append("the firewall may still be open: %s is there, which says for whom" % path)
    return lines


def hold(wanted: Json, note: Callable[[str], None]) -> None:
    """Open, keep the rules there, and close again when a signal says so. `note` gets each thing that went wrong meanwhile."""
    ends = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)  # none gets lost while the rules are changed
    if can():
        note(can())
    opened = open_for(wanted)
    processes.tell_systemd()
    failed = 0
    while signal.sigtimedwait(ends, LOOK) is None:
        try:
            places = missing(wanted, opened)
            if places:
                opened = open_for(wanted)
                note("the firewall was reloaded during the job: its rules were gone (%s), for %g s at most, and are there again"
                     % (", ".join(places), LOOK))
            failed = 0
        except MxclusterError as error:  # somebody changes rules at this moment: the next look tries again
            failed += 1
            if failed == 2:
                note("the firewall's rules could not be looked after: %s" % error)
    close_for(wanted, opened)


def notes(job: str) -> List[str]:
    """What `hold` has noted of a job until now. Anybody may read it, and only root writes it."""
    try:
        with open(_notes(os.path.join(FOLDER, job + ".json")), encoding="utf-8") as stream:
            return stream.read().splitlines()
    except OSError:  # there is none, or jobs here are not root's units
        return []


def _note(path: str, text: str) -> None:
    print("mxcluster: %s" % text, file=sys.stderr, flush=True)
    with open(_notes(path), "a", encoding="utf-8") as stream:
        stream.write(text.replace("\n", "; ") + "\n")


def _notes(path: str) -> str:
    return path[:-len(".json")] + ".notes"


def close(path: str) -> List[str]:
    """Make sure that the job of the FILE `path` has the ports open no longer: what is there all the same."""
    wanted = _wanted(path)
    if wanted:
        close_for(wanted)
        os.unlink(path)
    lines = left(path)
    if not os.path.exists(path) and os.path.exists(_notes(path)):
        os.unlink(_notes(path))
    return lines


def _wanted(path: str) -> Optional[Json]:
    try:
        with open(path, encoding="utf-8") as stream:
            return json.load(stream)
    except FileNotFoundError:  # nothing was asked for, or it is closed already
        return None


def main(argv: List[str]) -> int:
    """Carry out one command line: 0, or 1 with the reason on stderr."""
    if argv == ["can"]:
        print(can())
        return 0
    action, path = argv
    try:
        if action == "close":
            for line in close(path):
                print(line)
            return 0
        wanted = _wanted(path)
        if wanted:
            hold(wanted, lambda text: _note(path, text))
            os.unlink(path)
    except (MxclusterError, OSError) as error:
        print("mxcluster: the firewall of job %s could not be changed: %s" % (os.path.basename(path), error), file=sys.stderr)
        return 1
    return 0
