"""Open a job's ports to the job's peers with nftables, and drop the packets of other hosts.

A `drop` is final, but after an `accept` the packet still passes the other base chains. So one table
of the job can close the ports under any policy of the node. To open the ports, `opening` inserts an
`accept` at the head of every other base chain that filters input. The module `firewalld` opens
firewalld's chains.
"""

import hashlib
import re
import shutil
from typing import List, NamedTuple, Optional, Sequence, Tuple

from mxcluster.errors import MxclusterError
from mxcluster.lists import spans
from mxcluster.model.firewall import FirewallRequest
from mxcluster.node.firewall.run import comment, run

Chain = NamedTuple("Chain", [("family", str), ("table", str), ("name", str)])
Rule = Tuple[Chain, int, str]  # chain, handle, text
Ruleset = NamedTuple(
    "Ruleset",
    [
        ("tables", List[str]),
        ("chains", List[Chain]),
        ("rules", List[Rule]),
        ("firewalld", Optional[str]),
    ],
)

_TABLE = re.compile(r"^table (\S+) (\S+) \{")
_CHAIN = re.compile(r"^\tchain (\S+) \{")
_HANDLE = re.compile(r"# handle (\d+)$")
_JOB_TABLE = re.compile(r"mxcluster_[0-9a-f]{16}$")


def name(job: str) -> str:
    """Return the name of the table or chain of `job`: short and without special characters."""
    return "mxcluster_%s" % hashlib.sha256(job.encode()).hexdigest()[:16]


def parse(text: str) -> Ruleset:
    """Parse `text`, the output of `nft -a list ruleset`, and return the Ruleset.

    - `tables`: the names of mxcluster's tables, which may belong to several jobs.
    - `chains`: the other base chains that filter input, without firewalld's chains.
    - `rules`: the rules of all chains, without firewalld's chains.
    - `firewalld`: the first line of firewalld's table, or None without this table.

    `chains` and `rules` cover the families ip and inet. The nft of CentOS 7 cannot print JSON.
    """
    found = Ruleset([], [], [], None)
    table = chain = None
    for line in text.splitlines():
        begins, inside = _TABLE.match(line), _CHAIN.match(line)
        if begins:
            table, chain = begins.groups(), None
            if _JOB_TABLE.match(table[1]):
                found.tables.append(table[1])
            elif table[1] == "firewalld":
                found = found._replace(firewalld=line)
        elif inside and table:
            chain = Chain(table[0], table[1], inside.group(1))
        elif line == "\t}":
            chain = None
        elif chain and chain.family in ("ip", "inet") and chain.table != "firewalld":
            handle = _HANDLE.search(line)
            if "type filter hook input " in line and not _JOB_TABLE.match(chain.table):
                found.chains.append(chain)
            elif handle and "type " not in line.split("hook")[0]:
                found.rules.append((chain, int(handle.group(1)), line.strip()))
    return found


def ruleset() -> Optional[Ruleset]:
    """Return the node's Ruleset, or None if nft or the kernel's nf_tables is missing."""
    if not shutil.which("nft"):
        return None
    try:
        return parse(run(["nft", "-a", "list", "ruleset"]))
    except MxclusterError:
        return None


def opening(request: FirewallRequest, found: Ruleset) -> List[str]:
    """Return the nft commands that open a job's ports to the job's peers only.

    `found`: the node's Ruleset. The commands also remove earlier rules of the job.
    """
    address, job = request.address, request.job
    own = "ip %s" % name(job)
    mark = 'comment "%s"' % comment(job)
    lines = closing(job, found) + ["add table %s" % own]
    lines += ["add chain %s %s" % (own, chain) for chain in ("peers", "others")]
    lines += [
        "add chain %s %s { type filter hook %s priority -1 ; policy accept ; }" % (own, hook, hook)
        for hook in ("input", "output")
    ]
    lines += [
        "add rule %s peers ip saddr %s accept %s" % (own, peer, mark) for peer in request.peers
    ]
    lines += ["add rule %s peers drop %s" % (own, mark)]
    if request.uid is not None:  # other users of this node share the node's address
        lines += [
            "add rule %s output meta skuid != 0 meta skuid != %d jump others %s"
            % (own, request.uid, mark)
        ]
        lines += [
            "add rule %s others ip daddr %s tcp dport %s drop %s" % (own, peer, ports, mark)
            for peer, numbers in request.peers.items()
            for ports in spans(numbers)
        ]
    for ports in spans(request.ports):
        lines.append(
            "add rule %s input ip daddr %s tcp dport %s jump peers %s" % (own, address, ports, mark)
        )
        # No sets in foreign chains: iptables-nft cannot read a set, and so saves a rule without the
        # set. `iptables-save` during a job would then keep a rule that admits all hosts.
        lines += [
            "insert rule %s %s %s ip saddr %s ip daddr %s tcp dport %s accept %s"
            % (chain + (peer, address, ports, mark))
            for chain in found.chains
            for peer in request.peers
        ]
    return lines


def closing(job: str, found: Ruleset) -> List[str]:
    """Return the nft commands that remove the table and the rules of `job`.

    `found`: the node's Ruleset.
    """
    mark = 'comment "%s"' % comment(job)
    lines = ["delete table ip %s" % name(job)] if name(job) in found.tables else []
    return lines + [
        "delete rule %s %s %s handle %d" % (chain + (handle,))
        for chain, handle, text in found.rules
        if mark in text and not _JOB_TABLE.match(chain.table)
    ]


def missing(request: FirewallRequest, found: Ruleset) -> List[str]:
    """Return the names of the tables that lack rules of the job, sorted.

    `found`: the node's Ruleset. The function compares numbers of rules, not texts, because the nft
    of CentOS 7 prints service names instead of ports.
    """
    mark = 'comment "%s"' % comment(request.job)
    runs, peers = len(spans(request.ports)), len(request.peers)
    own = name(request.job)
    due = {Chain("ip", own, "input"): runs, Chain("ip", own, "peers"): peers + 1}
    if request.uid is not None:
        due[Chain("ip", own, "output")] = 1
        due[Chain("ip", own, "others")] = sum(map(len, map(spans, request.peers.values())))
    due.update(dict.fromkeys(found.chains, runs * peers))
    there = [chain for chain, _, text in found.rules if mark in text]
    return sorted(
        {"table %s %s" % chain[:2] for chain, count in due.items() if there.count(chain) < count}
    )


def left(job: str, found: Ruleset) -> List[str]:
    """Return a message for each leftover table and rule of the ended `job`.

    `found`: the node's Ruleset.
    """
    mark = 'comment "%s"' % comment(job)
    lines = (
        ["the firewall still has the table ip %s: delete this table with nft" % name(job)]
        if name(job) in found.tables
        else []
    )
    return lines + [
        "the firewall still has the rule `%s %s %s %s`: delete this rule with nft"
        % (chain + (text.split(" accept")[0],))
        for chain, handle, text in found.rules
        if mark in text and not _JOB_TABLE.match(chain.table)
    ]


def carry_out(commands: Sequence[str]) -> None:
    """Run all `commands` in one transaction of nft: all or none.

    nft reads the commands from /dev/stdin, because the nft of CentOS 7 lacks `-f -`.
    """
    if commands:
        run(["nft", "-f", "/dev/stdin"], "".join(command + "\n" for command in commands))
