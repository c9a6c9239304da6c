"""The firewall of a node is open for a job: for its ports, to its nodes, for as long as it runs.

`python -m mxcluster.firewall hold FILE`, as root, by a unit that the unit of the job's agent needs: opens before the agent
starts, waits, and closes when it is told to end, since the agent has, in whatever way. `close FILE` makes sure, and
prints what is open all the same, a line each. FILE is {"job", "address", "interface", "ports": [...], "peers": [address, ...]}.

nftables: an `accept` ends the way of a packet through its own base chain only, so the rule goes to the head of every base
chain that filters input (but firewalld's). firewalld: rich rules of the runtime configuration, in the zone that a peer's
packets come to. Where neither is active there is nothing to do. What is added carries the job's name or is exactly known,
so closing finds it again, and closing twice is no error.
"""
import ipaddress
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from . import processes
from .errors import MxclusterError

Json = Dict[str, Any]
Chain = NamedTuple("Chain", [("family", str), ("table", str), ("name", str)])
Zones = Dict[str, Dict[str, List[str]]]  # {zone: {"interfaces": [...], "sources": [...]}}

FOLDER = "/run/mxcluster"
_TABLE = re.compile(r"^table (\S+) (\S+) \{")
_CHAIN = re.compile(r"^\tchain (\S+) \{")
_HANDLE = re.compile(r"# handle (\d+)$")


def wish(plan: Json) -> Json:
    """What the firewall of a node has to let in, from the node's part of a plan (`plan.for_node`)."""
    node = plan["nodes"][plan["host"]]
    return {"job": plan["job"], "address": node["address"], "interface": node["interface"],
            "ports": sorted(process["port"] for process in plan["processes"] if process["port"] is not None),
            "peers": sorted({peer["address"] for peer in plan["peers"]}, key=ipaddress.IPv4Address)}


# nftables

def parse_ruleset(text: str) -> Tuple[List[Chain], List[Tuple[Chain, int, str]]]:
    """(base chains that filter input, [(chain, handle, rule), ...]) of what `nft -a list ruleset` prints.

    The text, since the nft of CentOS 7 knows no JSON. Only families that carry IPv4; firewalld's own table is left to it.
    """
    chains, rules = [], []  # type: Tuple[List[Chain], List[Tuple[Chain, int, str]]]
    table = chain = None
    for line in text.splitlines():
        begins, inside = _TABLE.match(line), _CHAIN.match(line)
        if begins:
            table, chain = begins.groups(), None
        elif inside and table:
            chain = Chain(table[0], table[1], inside.group(1))
        elif line == "\t}":
            chain = None
        elif chain and chain.family in ("ip", "inet") and chain.table != "firewalld":
            handle = _HANDLE.search(line)
            if "type filter hook input " in line:
                chains.append(chain)
            elif handle:
                rules.append((chain, int(handle.group(1)), line.strip()))
    return chains, rules


def comment(job: str) -> str:
    """How a rule says whose it is."""
    return "mxcluster %s" % job


def nft_open(wanted: Json, chains: Sequence[Chain]) -> List[str]:
    """The commands for nft that let the job in: a rule for each peer and run of ports.

    No sets: iptables-nft, whose chains may be among these, shows and saves a rule without the sets that it cannot read, so
    `iptables-save` during a job would keep one that lets everybody in.
    """
    rules = ["ip saddr %s ip daddr %s tcp dport %s accept comment \"%s\""
             % (peer, wanted["address"], first if first == last else "%d-%d" % (first, last), comment(wanted["job"]))
             for peer in wanted["peers"] for first, last in ranges(wanted["ports"])]
    return ["insert rule %s %s %s %s" % (chain + (rule,)) for chain in chains for rule in rules]


def nft_close(job: str, rules: Sequence[Tuple[Chain, int, str]]) -> List[str]:
    """The commands for nft that take away what `nft_open` has put there."""
    mark = 'comment "%s"' % comment(job)
    return ["delete rule %s %s %s handle %d" % (chain + (handle,)) for chain, handle, text in rules if mark in text]


def nft_left(job: str, rules: Sequence[Tuple[Chain, int, str]]) -> List[str]:
    """What is open for a job that has ended, for people."""
    mark = 'comment "%s"' % comment(job)
    return ["the firewall is still open: %s %s %s: %s" % (chain + (text.split(" accept")[0],))
            for chain, handle, text in rules if mark in text]


# firewalld

def parse_zones(text: str) -> Zones:
    """What `firewall-cmd --get-active-zones` prints."""
    zones, zone = {}, None  # type: Zones, Optional[str]
    for line in text.splitlines():
        if line and not line[0].isspace():
            zone = line.split()[0]
            zones[zone] = {"interfaces": [], "sources": []}
        elif zone and ":" in line:
            key, _, values = line.strip().partition(":")
            zones[zone][key] = values.split()
    return zones


def zone_of(peer: str, interface: str, zones: Zones, default: str) -> str:
    """The zone that packets from `peer` over `interface` come to: a source counts before an interface."""
    address = ipaddress.IPv4Address(peer)
    for zone, has in zones.items():
        for source in has["sources"]:
            try:
                if address in ipaddress.IPv4Network(source, strict=False):
                    return zone
            except ValueError:  # an IPv6 network, a MAC address, an ipset
                continue
    return next((zone for zone, has in zones.items() if interface in has["interfaces"]), default)


def rich_rules(wanted: Json, zones: Zones, default: str) -> Dict[str, List[str]]:
    """{zone: rich rules} that let the job in."""
    rules = {}  # type: Dict[str, List[str]]
    for peer in wanted["peers"]:
        zone = zone_of(peer, wanted["interface"], zones, default)
        for first, last in ranges(wanted["ports"]):
            rules.setdefault(zone, []).append(
                'rule family="ipv4" source address="%s" destination address="%s" port port="%s" protocol="tcp" accept'
                % (peer, wanted["address"], first if first == last else "%d-%d" % (first, last)))
    return rules


def ranges(ports: Sequence[int]) -> List[Tuple[int, int]]:
    """[(first, last), ...] of runs of ports."""
    runs = []  # type: List[Tuple[int, int]]
    for port in sorted(ports):
        if runs and runs[-1][1] == port - 1:
            runs[-1] = (runs[-1][0], port)
        else:
            runs.append((port, port))
    return runs


# what touches the node

def change(action: str, wanted: Json, opened: Optional[Dict[str, List[str]]] = None) -> Dict[str, List[str]]:
    """Open or close. MxclusterError with what the firewall said if it refuses.

    Returns the rich rules by zone. `opened` is what an opening has returned: an interface may have changed its zone since.
    """
    if not wanted["ports"]:
        return {}
    if shutil.which("nft"):
        chains, rules = parse_ruleset(_ruleset())
        commands = nft_close(wanted["job"], rules) + (nft_open(wanted, chains) if action == "open" else [])
        if commands:
            # All of them or none. (`-f -` is not known to the nft of CentOS 7.)
            _run(["nft", "-f", "/dev/stdin"], "".join(command + "\n" for command in commands))
    if shutil.which("firewall-cmd") and subprocess.call(["firewall-cmd", "--quiet", "--state"]) == 0:
        if opened is None:
            zones = parse_zones(_run(["firewall-cmd", "--get-active-zones"]))
            opened = rich_rules(wanted, zones, _run(["firewall-cmd", "--get-default-zone"]).strip())
        option = {"open": "--add-rich-rule=", "close": "--remove-rich-rule="}[action]
        for zone, rich in opened.items():
            _run(["firewall-cmd", "--quiet", "--zone=" + zone] + [option + rule for rule in rich])
    return opened or {}


def _ruleset() -> str:
    """What nft lists; nothing if it cannot, as on a kernel without nf_tables: then there are no rules that keep a job out."""
    try:
        return _run(["nft", "-a", "list", "ruleset"])
    except MxclusterError as error:
        print("mxcluster: nftables counts as not active here: %s" % error, file=sys.stderr)
        return ""


def _run(argv: List[str], stdin: Optional[str] = None) -> str:
    done = subprocess.run(argv, input=(stdin or "").encode(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode != 0:
        raise MxclusterError("`%s` ended with status %d: %s"
                             % (" ".join(argv[:4]), done.returncode, done.stderr.decode(errors="replace").strip()))
    return done.stdout.decode(errors="replace")


def left(path: str) -> List[str]:
    """What is still open for the job of the FILE `path`, which is gone when closing has succeeded."""
    job = os.path.basename(path)[:-len(".json")]
    lines = nft_left(job, parse_ruleset(_ruleset())[1]) if shutil.which("nft") else []
    if os.path.exists(path):
        lines.append("the firewall may still be open: %s is there, which says for whom" % path)
    return lines


def hold(wanted: Json) -> None:
    """Open, and close again when a signal says so."""
    ends = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)  # none gets lost while the rules are changed
    opened = change("open", wanted)
    processes.tell_systemd()
    signal.sigwait(ends)
    change("close", wanted, opened)


def main(argv: List[str]) -> int:
    """Carry out one command line: 0, or 1 with the reason on stderr."""
    action, path = argv
    try:
        try:
            with open(path, encoding="utf-8") as stream:
                wanted = json.load(stream)
        except FileNotFoundError:  # nothing was asked for, or it is closed already
            wanted = None
        if wanted:
            hold(wanted) if action == "hold" else change("close", wanted)
            os.unlink(path)
        for line in left(path) if action == "close" else ():
            print(line)
    except (MxclusterError, OSError) as error:
        print("mxcluster: the firewall of job %s could not be changed: %s" % (os.path.basename(path), error), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
