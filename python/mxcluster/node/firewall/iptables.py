"""Open a job's ports to the job's peers with iptables, on nodes where nft alone is not enough.

The first rules of INPUT send the packets for the job's ports to a chain of the job. The chain
accepts the packets of peers, and drops all others. The chain also works beside a firewalld that
uses iptables (CentOS 7). The first rule of OUTPUT sends the packets of other users than the
training user and root to a second chain. This chain drops packets to the job's ports on all nodes.
Each rule carries the job's comment, which `iptables -S` prints.
"""

import shlex
import shutil
from typing import List, Optional, Tuple

from mxcluster.errors import MxclusterError
from mxcluster.lists import spans
from mxcluster.model.firewall import FirewallRequest
from mxcluster.node.firewall import nft
from mxcluster.node.firewall.run import comment, run

LEGACY_TABLES = "/proc/net/ip_tables_names"


def program(nft_works: bool) -> Optional[str]:
    """Return the path of the iptables to use, or None if nft is enough or no iptables works.

    If nft works, nft is enough on a node without the legacy filter table. Only the legacy iptables
    can change that table.
    """
    if nft_works:
        try:
            with open(LEGACY_TABLES) as stream:
                if "filter" not in stream.read().split():
                    return None
        except OSError:
            return None
    for candidate in ("iptables-legacy", "iptables"):
        path = shutil.which(candidate)
        try:
            if path and not (nft_works and "nf_tables" in run([path, "--version"])):
                run([path, "-w", "-S", "INPUT"])
                return path
        except MxclusterError:  # no such table in this kernel
            continue
    return None


def listed(path: str) -> List[str]:
    """Run `iptables -S` and return the lines, such as "-A INPUT -j DROP".

    `path`: the path of iptables.
    """
    return run([path, "-w", "-S"]).splitlines()


def opening(request: FirewallRequest) -> List[List[str]]:
    """Return the iptables calls (lists of arguments) that open a job's ports to the peers only.

    The first calls build the job's chains. The later calls send packets to these chains.
    """
    own, others = chains(request.job)
    mark = ["-m", "comment", "--comment", comment(request.job)]
    calls = [["-N", own]] + [
        ["-A", own, "-s", peer] + mark + ["-j", "ACCEPT"] for peer in request.peers
    ]
    calls.append(["-A", own] + mark + ["-j", "DROP"])
    for ports in spans(request.ports, ":"):
        to = ["-d", request.address, "-p", "tcp", "--dport", ports]
        calls.append(["-I", "INPUT", "1"] + to + mark + ["-j", own])
    if request.uid is None:
        return calls
    calls.append(["-N", others])
    calls += [
        ["-A", others, "-d", peer, "-p", "tcp", "--dport", ports] + mark + ["-j", "DROP"]
        for peer, numbers in request.peers.items()
        for ports in spans(numbers, ":")
    ]
    by = ["-m", "owner", "--socket-exists", "!", "--uid-owner", str(request.uid)]
    by += ["-m", "owner", "!", "--uid-owner", "0"]
    return calls + [["-I", "OUTPUT", "1", "-p", "tcp"] + by + mark + ["-j", others]]


def chains(job: str) -> Tuple[str, str]:
    """Return the names of the job's two chains: for packets from peers, and of other users.

    A name has at most 28 characters, the limit of iptables.
    """
    return nft.name(job), nft.name(job) + "_o"


def closing(job: str, lines: List[str]) -> List[List[str]]:
    """Return the iptables calls (lists of arguments) that remove the rules of `opening`.

    `lines`: the result of `listed`.
    """
    rules = [shlex.split(line) for line in lines]
    calls = [
        ["-D"] + rule[1:]
        for rule in rules
        if rule[:1] == ["-A"] and rule[1] not in chains(job) and comment(job) in rule
    ]
    there = [chain for chain in chains(job) if ["-N", chain] in rules]
    return calls + [[action, chain] for chain in there for action in ("-F", "-X")]


def is_missing(request: FirewallRequest, lines: List[str]) -> bool:
    """Return True if a rule of the job is missing in `lines`, the result of `listed`."""
    there = sum(comment(request.job) in shlex.split(line) for line in lines)
    return there < sum("--comment" in call for call in opening(request))


def left(job: str, lines: List[str]) -> List[str]:
    """Return a message for each leftover rule and chain of the ended `job`.

    `lines`: the result of `listed`.
    """
    return [
        "the firewall still has the rule `iptables %s`: delete this rule with iptables"
        % " ".join(call).replace("-D", "-A", 1)
        for call in closing(job, lines)
        if call[0] == "-D"
    ] + [
        "the firewall still has the chain %s: delete this chain with iptables" % call[1]
        for call in closing(job, lines)
        if call[0] == "-X"
    ]


def carry_out(path: str, calls: List[List[str]]) -> None:
    """Run the iptables at `path` once for each list of arguments in `calls`.

    The option `-w` makes iptables wait for other programs that change rules.
    """
    for call in calls:
        run([path, "-w"] + call)
