"""Make the verdict on a cluster from the check results of its nodes."""

import hashlib
from collections import Counter
from typing import Dict, List, Mapping, Optional, Sequence, Tuple, TypeVar, Union

from mxcluster.cluster.verify import gpus
from mxcluster.errors import some
from mxcluster.lists import grouped, several
from mxcluster.model import shapes
from mxcluster.model.check_answer import Checked, CheckError, FileFact, ImportFailure, MxnetFacts
from mxcluster.model.cluster_verdict import (
    FAILED,
    NOT_RUN,
    OK,
    WARNING,
    ClusterVerdict,
    Line,
    line,
    skipped,
)
from mxcluster.model.plan import Node
from mxcluster.model.record import Record, field
from mxcluster.model.shapes import table
from mxcluster.model.written import Written, real_number, to_bool
from mxcluster.rendezvous_problems import Reports, clocks, not_met, open_files

T = TypeVar("T")
Known = Mapping[str, Checked]  # {host: check results of the node}

MIB = 1 << 20
NO_ANSWER = "%s does not answer: correct the error shown above, and run verify.yml again"
_flag = Written(to_bool, lambda value: True, "true or false")
_least = real_number(0, 1e12)


class Wanted(Record, strict=True):
    """The requirements for the cluster."""

    files: Mapping[str, str] = field(table(shapes.text, shapes.text))
    """{name of a cluster file: planned content}."""
    ssh: bool = field(_flag)
    """True if each node must reach the other nodes by ssh."""
    met: bool = field(_flag)
    """True if the nodes have run the rendezvous."""
    max_clock_offset: float = field(_least)
    """Seconds."""
    min_disk_mb: float = field(_least)
    """MiB of free space."""
    min_shm_mb: float = field(_least)
    """MiB of free space."""
    speed: bool = field(_flag, default=False)
    """True if the nodes measure their speed."""
    min_open_files: float = field(_least)
    """Files that a process may open."""


def judge(
    nodes: Mapping[str, Node],
    answers: Mapping[str, Optional[Checked]],
    reports: Reports,
    wanted: Wanted,
    more: Sequence[Line] = (),
) -> ClusterVerdict:
    """Return the verdict on the cluster.

    Args: `nodes` of the plan; `answers` {host: check results of the node, or None if the node did
    not answer}; `reports` of the rendezvous; `more` lines of other checks.
    """
    without_answer = sorted(host for host, answer in answers.items() if answer is None)
    known = {host: answer for host, answer in answers.items() if answer is not None}
    lines = [
        line("every node answers", [NO_ANSWER % host for host in without_answer]),
        *mxnet_lines(known, nodes),
        line("hosts, groups and data_sharding as planned", planned_files(known, wanted.files)),
        line("ssh from every node to every other node", unreachable_by_ssh(known))
        if wanted.ssh
        else skipped("ssh from every node to every other node", "ssh_mesh_mode is none"),
        line("room on disks and in shared memory", no_room(known, wanted)),
        *gpu_lines(known, nodes),
        *rendezvous_lines(reports, wanted, bool(without_answer)),
        closed_ports(known),
        *more,
    ]
    failed = [one for one in lines if one.result == FAILED]
    return ClusterVerdict(
        ok=not failed,
        status=2 if without_answer else 1 if failed else 0,
        nodes=sorted(answers),
        checks=lines,
    )


def mxnet_lines(known: Known, nodes: Mapping[str, Node]) -> List[Line]:
    """Return the lines about MXNet. A line is "not run" if no node fails and one has no value."""
    # MXNet's library for GPUs differs from its library for CPUs.
    builds = {host: node.build for host, node in nodes.items()}
    found = (
        ("the same MXNet", not_imported(known) + different(versions(known), {}), versions(known)),
        ("the same libmxnet.so", different(digests(known), builds), digests(known)),
        ("MXNet has the distributed kv-store", not_distributed(known), versions(known)),
    )
    lines = []
    for check, why, values in found:
        without_value = sorted(host for host in known if not values.get(host))
        no_value = "no value from %s" % ", ".join(without_value)
        lines.append(skipped(check, no_value) if without_value and not why else line(check, why))
    return lines


def gpu_lines(known: Known, nodes: Mapping[str, Node]) -> List[Line]:
    """Return the lines about GPUs, for the nodes that train on GPUs."""
    cuda = {host: node.cuda for host, node in nodes.items() if node.cuda}
    found, failed = facts({host: known[host].gpus for host in cuda if host in known})
    lines = gpus.judge({host: gpus.Node(one, cuda[host]) for host, one in found.items()})
    lines += [line("GPUs", failed) for _ in failed[:1]]
    without = sorted(host for host in cuda if host in known and known[host].gpus is None)
    if without:
        lines.append(
            skipped(
                "GPUs",
                "%s: the plan has CUDA, but the answer has no facts about GPUs: run provision.yml, "
                "then verify.yml" % ", ".join(without),
            )
        )
    return lines


def rendezvous_lines(reports: Reports, wanted: Wanted, is_partial: bool) -> List[Line]:
    """Return the lines about ports, clocks and limits. `is_partial`: a node does not answer."""
    if is_partial or not wanted.met:
        why = "not all nodes answer" if is_partial else "a dry run starts no rendezvous"
        labels = ("TCP between all roles on the planned ports", "clocks", "open files")
        return [skipped(label, why) for label in labels]
    apart, lost = clocks(reports, wanted.max_clock_offset), not_met(reports)
    return [
        line("TCP between all roles on the planned ports", lost),
        line("clocks within %g s" % wanted.max_clock_offset, apart)
        if apart or not lost
        else skipped("clocks", "the rendezvous is not complete"),
        line("open files", open_files(reports, wanted.min_open_files)),
    ]


def text(verdict: ClusterVerdict, path: str) -> List[str]:
    """Return the verdict as a list of text lines for the terminal.

    Args: `path` the path of the verdict's JSON file.
    """
    results = Counter(one.result for one in verdict.checks)
    counts = ", ".join(
        "%d %s" % (results[result], result)
        for result in (OK, FAILED, WARNING, NOT_RUN)
        if results[result]
    )
    lines = [
        "%-9s %s: %s"
        % ("OK" if verdict.ok else "FAILED", several(len(verdict.nodes), "node"), counts)
    ]
    for one in verdict.checks:
        why = ": " + one.why[0] if one.result == NOT_RUN else ""
        lines.append("%-9s %s%s" % (one.result, one.check, why))
        if one.result in (FAILED, WARNING):
            lines += ["            " + reason for reason in one.why]
    return lines + ["verdict   %s" % path]


def facts(results: Mapping[str, Union[CheckError, T, None]]) -> Tuple[Dict[str, T], List[str]]:
    """Return the facts of a check by host, and a problem for each node where the check failed.

    Args: `results` {host: result of the check}. A host without a result has no facts.
    """
    found, problems = {}, []
    for host, one in sorted(results.items()):
        if isinstance(one, CheckError):
            problems.append(
                "%s: the check could not run (%s): correct the error on the node, and run "
                "verify.yml again" % (host, one.error)
            )
        elif one is not None:
            found[host] = one
    return found, problems


def versions(known: Known) -> Dict[str, str]:
    """Return {host: version of MXNet} of the nodes that import MXNet."""
    return {
        host: answer.mxnet.mxnet
        for host, answer in known.items()
        if isinstance(answer.mxnet, MxnetFacts)
    }


def digests(known: Known) -> Dict[str, Optional[str]]:
    """Return {host: digest of libmxnet.so, None without MXNet}."""
    return {host: answer.mxnet.libmxnet for host, answer in known.items()}


def not_imported(known: Known) -> List[str]:
    """Return a problem (text) for each node where the import of MXNet fails."""
    return [
        "%s: %s: run provision.yml" % (host, answer.mxnet.error)
        for host, answer in sorted(known.items())
        if isinstance(answer.mxnet, ImportFailure)
    ]


def different(values: Mapping[str, Optional[str]], kinds: Mapping[str, str]) -> List[str]:
    """Return a problem (text) for each kind of node with several values.

    A problem lists the hosts of each value, the most frequent value first.

    Args: `values` {host: value}; `kinds` {host: kind}. The kind of a host outside this dict is "".
    """
    by_kind = grouped(
        (kinds.get(host, ""), (value, host)) for host, value in sorted(values.items()) if value
    )
    parties = [grouped(pairs) for _, pairs in sorted(by_kind.items())]
    return [
        "the nodes differ (%s): run provision.yml without --limit"
        % "; ".join(
            "%s: %s" % (", ".join(hosts), value[:12])
            for value, hosts in sorted(of_kind.items(), key=lambda party: -len(party[1]))
        )
        for of_kind in parties
        if len(of_kind) > 1
    ]


def not_distributed(known: Known) -> List[str]:
    """Return a problem (text) for each node with an MXNet that lacks the distributed kv-store.

    The function skips nodes where the import of MXNet fails.
    """
    return [
        "%s: %s: run provision.yml, which installs the official wheel" % (host, answer.mxnet.says)
        for host, answer in sorted(known.items())
        if isinstance(answer.mxnet, MxnetFacts) and not answer.mxnet.compiled_in
    ]


def closed_ports(known: Known) -> Line:
    """Return the line of the check that job ports are closed to other machines.

    The line is "ok" if no node reports a reason for open ports. Otherwise the line is "not run",
    with these reasons.
    """
    check = "job ports are closed to other machines"
    by_reason = grouped(
        (answer.ports_open, host) for host, answer in sorted(known.items()) if answer.ports_open
    )
    if not by_reason:
        return line(check, [])
    return skipped(
        check, "; ".join("%s: %s" % (some(hosts), why) for why, hosts in by_reason.items())
    )


def planned_files(known: Known, planned: Mapping[str, str]) -> List[str]:
    """Return a problem for each cluster file of a node that differs from the plan.

    Args: `planned` {name: planned content}.
    """
    digests = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in planned.items()}
    found, problems = facts({host: answer.files for host, answer in known.items()})
    for host, facts_of_files in found.items():
        for name, digest in digests.items():
            fact: FileFact = getattr(facts_of_files, name)
            if isinstance(fact, CheckError):
                problems.append(
                    "%s: %s: run provision.yml" % (host, fact.error.replace("\n", "; "))
                )
            elif fact.sha256 != digest:
                problems.append(
                    "%s: %s differs from the inventory: run provision.yml to write this file again"
                    % (host, name)
                )
    return problems


def unreachable_by_ssh(known: Known) -> List[str]:
    """Return a problem (text) for each failed ssh connection from a node to another node."""
    found, problems = facts({host: answer.ssh for host, answer in known.items()})
    return problems + [
        "%s to %s: ssh failed (%s): run provision.yml without --limit. If the "
        "connection comes from another address than the planned one, list it in ssh_mesh_from"
        % (host, peer, why.rstrip("."))
        for host, mesh in found.items()
        for peer, why in sorted(mesh.peers.items())
        if why
    ]


def no_room(known: Known, wanted: Wanted) -> List[str]:
    """Return a problem (text) for each folder of a node with too little free space."""
    found, problems = facts({host: answer.room for host, answer in known.items()})
    for host, room in found.items():
        for path, free in sorted(room.items()):
            name = "min_shm_mb" if path == "/dev/shm" else "min_disk_mb"
            least: float = getattr(wanted, name)
            if free < least * MIB:
                problems.append(
                    "%s: %s has %d MiB free, less than verify_%s=%d: remove unneeded files there"
                    % (host, path, free // MIB, name, least)
                )
    return problems
