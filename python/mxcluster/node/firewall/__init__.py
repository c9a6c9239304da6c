"""Open a job's ports to the job's nodes while the job runs, and close the ports to other hosts.

- `python -m mxcluster.node.firewall hold FILE` runs as root in a separate systemd unit. The program
  sets the rules before the job's agent starts, and again after a firewall reload. When the agent
  has ended in any way, systemd stops this unit, and the program removes the rules.
- `close FILE` removes the rules and prints a line for each rule that is still there.

FILE holds the job's firewall request. From this node, only the training user and root can reach the
ports of the job on all of its nodes. The other nodes see only the address of this node, so they
cannot separate its users.

The modules `nft` and `iptables` close and open ports. The module `firewalld` only opens ports. If
neither nft nor iptables works, the job runs with open ports, and the job's notes report this fact.
`close` finds each rule of the job by the job's name or by the text of the rule. A second `close`
has no effect.

Rules that `provision.yml` sets once would be less code. docs/networks.md compares both ways in each
case. Permanent rules would cut off other services in the range of ports, jobs of other accounts and
nodes of a second cluster, and would be lost at a reload of the site's firewall.
"""

import os
import signal
import sys
from typing import Callable, List, NamedTuple, Optional, Tuple

from mxcluster.errors import MxclusterError
from mxcluster.file_io import read_json
from mxcluster.model.firewall import FirewallRequest
from mxcluster.node import processes
from mxcluster.node.firewall import firewalld, iptables, nft

# The state of the firewalls after `open_for`: the job's rich rules of firewalld by zone (an
# interface may change its zone before the removal), the first line of firewalld's own table, and
# True if nft works.
Opened = NamedTuple(
    "Opened", [("rich", firewalld.Rich), ("firewalld", Optional[str]), ("nft", bool)]
)

FOLDER = "/run/mxcluster"
LOOK = 2.0  # seconds between two checks of the rules; a check takes some ms
CURE = "stop the job with stop.yml"  # of a damaged request
CANNOT = (
    "neither nft nor iptables works on this node, so no firewall protects job ports: install "
    "nftables"
)


def open_for(request: FirewallRequest) -> Opened:
    """Open the job's ports to the job's peers only, and return the firewalls' state (Opened).

    The new rules replace earlier rules of the same job. Raises MxclusterError if a firewall program
    fails.
    """
    if not request.ports:
        return Opened({}, None, False)
    found, program = _firewalls()
    if found is not None:
        nft.carry_out(nft.opening(request, found))
    if program:
        iptables.carry_out(
            program,
            iptables.closing(request.job, iptables.listed(program)) + iptables.opening(request),
        )
    rich = firewalld.rules_for(request) if firewalld.runs() else {}
    firewalld.change("open", rich)
    return Opened(rich, found.firewalld if found is not None else None, found is not None)


def close_for(request: FirewallRequest, opened: Optional[Opened] = None) -> None:
    """Remove all rules of `open_for`. Raises MxclusterError if a firewall program fails.

    `opened`: the result of `open_for`, or None if the result is unknown.
    """
    if not request.ports:
        return
    found, program = _firewalls()
    if found is not None:
        nft.carry_out(nft.closing(request.job, found))
    if program:
        iptables.carry_out(program, iptables.closing(request.job, iptables.listed(program)))
    if firewalld.runs():
        firewalld.change("close", opened.rich if opened else firewalld.rules_for(request))


def missing(request: FirewallRequest, opened: Opened) -> List[str]:
    """Return the names of the nft tables and firewall programs that have lost rules of the job.

    A firewall reload, for example, removes rules. `opened`: the result of `open_for`. Raises
    MxclusterError if nft worked before and fails now.
    """
    if not request.ports:
        return []
    found, program = _firewalls()
    if found is None and opened.nft:
        raise MxclusterError(
            "nft worked on this node at the job's start, and fails now: repair nftables"
        )
    places = nft.missing(request, found) if found is not None else []
    if program and iptables.is_missing(request, iptables.listed(program)):
        places.append(os.path.basename(program))
    if found is not None and found.firewalld != opened.firewalld:
        places.append("firewalld")  # a reload makes a new table
    return places


def can() -> str:
    """Return "" if a firewall on this node can close ports, else the reason and the cure."""
    found, program = _firewalls()
    return "" if found is not None or program else CANNOT


def _firewalls() -> Tuple[Optional[nft.Ruleset], Optional[str]]:
    """Return (the rules of nft, path of the iptables to use); None for what the node lacks."""
    found = nft.ruleset()
    return found, iptables.program(found is not None)


def left(path: str) -> List[str]:
    """Return a message for each leftover rule of the job with the request file `path`.

    A request file that still exists also gives a message, because a successful `close` deletes the
    file.
    """
    job = os.path.basename(path)[: -len(".json")]
    found, program = _firewalls()
    lines = nft.left(job, found) if found is not None else []
    lines += iptables.left(job, iptables.listed(program)) if program else []
    if os.path.exists(path):
        lines.append(
            "the job's ports may still be open, because the request file %s still exists: "
            "run stop.yml again for this job" % path
        )
    return lines


def hold(request: FirewallRequest, note: Callable[[str], None]) -> None:
    """Open the ports, keep the rules in place, and close the ports after SIGTERM or SIGINT.

    The function calls `note` with a message for each problem.
    """
    ends = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)  # signals wait while rules change
    if can():
        note(can())
    opened = open_for(request)
    processes.tell_systemd()
    failed = 0
    while signal.sigtimedwait(ends, LOOK) is None:
        try:
            places = missing(request, opened)
            if places:
                opened = open_for(request)
                note(
                    "the firewall was reloaded during the job: the job's rules were missing (%s) "
                    "for at most %g s. mxcluster has set the rules again, so no action is needed"
                    % (", ".join(places), LOOK)
                )
            failed = 0
        except MxclusterError as error:
            failed += 1  # once, because another program may be changing rules
            if failed == 2:
                note(
                    "two checks of the job's firewall rules failed (%s): repair the firewall "
                    "program" % error
                )
    close_for(request, opened)


def notes(job: str) -> List[str]:
    """Return the lines that `hold` has noted for `job` so far, [] without a note.

    Every user can read the notes, and only root can write notes.
    """
    try:
        with open(_notes(os.path.join(FOLDER, job + ".json")), encoding="utf-8") as stream:
            return stream.read().splitlines()
    except OSError:  # the job has no notes, or jobs here are not units of root
        return []


def _note(path: str, text: str) -> None:
    print("mxcluster: %s" % text, file=sys.stderr, flush=True)
    with open(_notes(path), "a", encoding="utf-8") as stream:
        stream.write(text.replace("\n", "; ") + "\n")


def _notes(path: str) -> str:
    return path[: -len(".json")] + ".notes"


def close(path: str) -> List[str]:
    """Close the ports of the job with the request file `path`.

    Returns a message for each leftover rule.
    """
    request = read_json(path, FirewallRequest.decode, CURE)
    if request:
        close_for(request)
        os.unlink(path)
    lines = left(path)
    if not os.path.exists(path) and os.path.exists(_notes(path)):
        os.unlink(_notes(path))
    return lines


def main(argv: List[str]) -> int:
    """Carry out the command line `argv`. Return 0, or 1 with the reason on stderr."""
    action, path = argv
    try:
        if action == "close":
            for line in close(path):
                print(line)
            return 0
        request = read_json(path, FirewallRequest.decode, CURE)
        if request:
            hold(request, lambda text: _note(path, text))
            os.unlink(path)
    except (MxclusterError, OSError) as error:
        print(
            "mxcluster: cannot change the firewall rules of job %s on this node (%s): "
            "repair the firewall program" % (os.path.basename(path), error),
            file=sys.stderr,
        )
        return 1
    return 0
