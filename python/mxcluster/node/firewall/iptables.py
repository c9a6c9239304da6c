"""Open a job's ports to the job's peers with iptables, on nodes where nft alone is not enough.

The first rules of INPUT send the packets for the job's ports to a chain of the job. The chain
accepts the packets of peers, and drops all others. The chain also works beside a firewalld that
uses iptables (CentOS 7). Each rule carries the job's comment, which `iptables -S` prints.
"""

import shlex
import shutil
from typing import Any, Dict, List, Optional

from mxcluster.errors import MxclusterError
from mxcluster.lists import spans
from mxcluster.node.firewall import nft
from mxcluster.node.firewall.run import comment, run

Json = Dict[str, Any]

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


def opening(wanted: Json) -> List[List[str]]:
    """Return the iptables calls (lists of arguments) that open a job's ports to the peers only.

    `wanted`: the job's firewall request. The first calls build the job's chain. The later calls
    send packets to this chain.
    """
    own, mark = nft.name(wanted["job"]), ["-m", "comment", "--comment", comment(wanted["job"])]
    calls = [["-N", own]] + [
        ["-A", own, "-s", peer] + mark + ["-j", "ACCEPT"] for peer in wanted["peers"]
    ]
    calls.append(["-A", own] + mark + ["-j", "DROP"])
    for ports in spans(wanted["ports"], ":"):
        to = ["-d", wanted["address"], "-p", "tcp", "--dport", ports]
        calls.append(["-I", "INPUT", "1"] + to + mark + ["-j", own])
        if wanted.get("uid") is not None:
            others = [
                "-m",
                "owner",
                "--socket-exists",
                "!",
                "--uid-owner",
                str(wanted["uid"]),
                "-m",
                "owner",
                "!",
                "--uid-owner",
                "0",
            ]
            calls.append(["-I", "OUTPUT", "1"] + to + others + mark + ["-j", "DROP"])
    return calls


def closing(job: str, lines: List[str]) -> List[List[str]]:
    """Return the iptables calls (lists of arguments) that remove the rules of `opening`.

    `lines`: the result of `listed`.
    """
    own, rules = nft.name(job), [shlex.split(line) for line in lines]
    calls = [
        ["-D"] + rule[1:]
        for rule in rules
        if rule[:1] == ["-A"] and rule[1] != own and comment(job) in rule
    ]
    return calls + ([["-F", own], ["-X", own]] if ["-N", own] in rules else [])


def is_missing(wanted: Json, lines: List[str]) -> bool:
    """Return True if a rule of the job is missing in `lines`, the result of `listed`.

    `wanted`: the job's firewall request.
    """
    there = sum(comment(wanted["job"]) in shlex.split(line) for line in lines)
    return there < sum("--comment" in call for call in opening(wanted))


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
        "the firewall still has the chain %s: delete this chain with iptables" % nft.name(job)
        for line in lines
        if line == "-N " + nft.name(job)
    ]


def carry_out(path: str, calls: List[List[str]]) -> None:
    """Run the iptables at `path` once for each list of arguments in `calls`.

    The option `-w` makes iptables wait for other programs that change rules.
    """
    for call in calls:
        run([path, "-w"] + call)
