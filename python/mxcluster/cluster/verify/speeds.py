"""Compare the measured speeds of a cluster's nodes with their medians."""

import statistics
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Union

from mxcluster.lists import grouped
from mxcluster.model.check_answer import Checked, CheckError, NodeSpeed, RendezvousReport
from mxcluster.model.cluster_speeds import ClusterSpeeds, Figures, Transfer
from mxcluster.model.cluster_verdict import Line, line, skipped, warned
from mxcluster.numbers import figure
from mxcluster.rendezvous_problems import Reports

SLOW = 0.7  # a node below this part of the median is slow

Answers = Mapping[str, Optional[Checked]]


class Check(NamedTuple):
    """A figure of `Figures`: its words, its unit, and what to do about a slow node."""

    name: str
    words: str
    unit: str
    cure: str


CHECKS = (
    Check(
        "matmul",
        "speed of matrix products",
        "GFLOP/s",
        "end other programs there, and compare its CPU, cooling and power limits with other nodes",
    ),
    Check("write", "speed of disk writes", "MB/s", "look at the disk of the job folders there"),
    Check("read", "speed of disk reads", "MB/s", "look at the disk of the job folders there"),
    Check(
        "bandwidth",
        "bandwidth between nodes",
        "MB/s",
        "look at its cable, its switch port and `ethtool` of the training interface",
    ),
)


def of(answers: Answers, reports: Reports, now: float) -> ClusterSpeeds:
    """Return the measured speeds of the cluster.

    Args: `answers` {host: check results of the node, None without an answer}; `reports` of the
    rendezvous; `now` the time in unix seconds.
    """
    transfers = [
        Transfer(sender=one.host, receiver=host, bandwidth=one.received)
        for host, report in sorted(reports.items())
        if isinstance(report, RendezvousReport)
        for one in report.links
        if one.received is not None and one.host in answers
    ]
    sent = grouped((one.sender, one.bandwidth) for one in transfers)
    received = grouped((one.receiver, one.bandwidth) for one in transfers)
    nodes = {
        host: _figures(answer.speed, [sent.get(host, []), received.get(host, [])])
        for host, answer in sorted(answers.items())
        if answer and answer.speed
    }
    medians: Dict[str, Optional[float]] = {
        check.name: _median([vars(one)[check.name] for one in nodes.values()]) for check in CHECKS
    }
    return ClusterSpeeds(time=now, medians=Figures(**medians), nodes=nodes, transfers=transfers)


def lines(found: ClusterSpeeds, answers: Answers, reports: Reports) -> List[Line]:
    """Return a line for each figure. A slow node is a warning, a failed measurement a failure.

    Args: `found` and the others as for `of`.
    """
    errors = _errors(answers, reports)
    result = []
    for check in CHECKS:
        median: Optional[float] = vars(found.medians)[check.name]
        failed = errors.get(check.name, [])
        if median is None and not failed:
            why = "no node has a figure: a dry run, a single node or a failed rendezvous has none"
            result.append(skipped(check.words, why))
            continue
        title = check.words
        slow: List[str] = []
        if median is not None:
            title = "%s, median %s %s" % (check.words, figure(median), check.unit)
            slow = _slow(found, check, median)
        result.append(line(title, failed + slow) if failed else warned(title, slow))
    return result


def _figures(speed: NodeSpeed, bandwidths: Sequence[Sequence[float]]) -> Figures:
    """Return the figures of a node. Args: `bandwidths` of its transfers in each direction."""
    medians = [statistics.median(of_direction) for of_direction in bandwidths if of_direction]
    disk = None if isinstance(speed.disk, CheckError) else speed.disk
    return Figures(
        matmul=None if isinstance(speed.matmul, CheckError) else speed.matmul,
        write=disk.write if disk else None,
        read=disk.read if disk else None,
        bandwidth=min(medians, default=None),
    )


def _median(numbers: Sequence[Optional[float]]) -> Optional[float]:
    known = [number for number in numbers if number is not None]
    return statistics.median(known) if known else None


def _slow(found: ClusterSpeeds, check: Check, median: float) -> List[str]:
    """Return a line for each slow node, and for each slow pair of nodes that are not slow."""
    limit = SLOW * median
    slow = {
        host: own
        for host, own in (
            (host, vars(figures)[check.name]) for host, figures in found.nodes.items()
        )
        if own is not None and own < limit
    }
    told = "%s %s, and the median of the nodes is %s %s: %s"
    texts = {
        host: told % (figure(own), check.unit, figure(median), check.unit, check.cure)
        for host, own in slow.items()
    }
    found_lines = ["%s: %s" % (host, text) for host, text in texts.items()]
    if check.name == "bandwidth":
        found_lines += [
            "%s to %s: %s MB/s, and the median of the nodes is %s MB/s: look at the switches "
            "between them" % (one.sender, one.receiver, figure(one.bandwidth), figure(median))
            for one in found.transfers
            if one.bandwidth < limit and not {one.sender, one.receiver} & set(slow)
        ]
    return found_lines


def _errors(answers: Answers, reports: Reports) -> Dict[str, List[str]]:
    """Return {name of a figure: the problems of failed measurements}."""
    problem = "%s: the measurement failed (%s): correct the error, and run verify.yml again"
    pairs = []
    for host, answer in sorted(answers.items()):
        speed = answer.speed if answer else None
        for name in ("matmul", "disk") if speed else ():
            one: Union[CheckError, object] = vars(speed)[name]
            if isinstance(one, CheckError):
                pairs.append(("write" if name == "disk" else name, problem % (host, one.error)))
    for host, report in sorted(reports.items()):
        if isinstance(report, RendezvousReport):
            pairs += [
                ("bandwidth", problem % ("%s from %s" % (host, one.host), one.error))
                for one in report.links
                if one.received is None
            ]
    return grouped(pairs)
