"""Judge ports, clocks and limits from the rendezvous results of a cluster's nodes."""

from collections import Counter
from typing import Dict, List, Mapping, Optional, Sequence, Tuple, Union

from mxcluster.errors import some
from mxcluster.lists import grouped
from mxcluster.model.check_answer import CheckError, RendezvousReport, Unreachable

NAMED = 3  # the most processes of a node that a message names

# {host: the node's report, the reason why it has no report, or None if the node has neither}
Reports = Mapping[str, Union[RendezvousReport, CheckError, None]]


def complaints(
    host: str, report: RendezvousReport, unreachable: Optional[Sequence[Unreachable]] = None
) -> List[str]:
    """Return the problems in the rendezvous report of `host`, as a list of strings.

    Each taken port and each unreachable node is a problem. The text about an unreachable node names
    the node's processes, the error and the cure.

    Args: `unreachable` replaces the failed calls of the report.
    """
    calls = report.unreachable if unreachable is None else unreachable
    lines = ["%s: %s" % (host, why) for why in report.taken]
    for other, lost in grouped((one.host, one) for one in calls).items():
        reason = lost[0].reason
        named = ["%s at %s:%d" % (one.name, one.address, one.port) for one in lost]
        lines.append(
            "%s cannot reach %s (%s): %s. %s"
            % (
                host,
                other,
                some(named, NAMED),
                reason,
                "Check that the agent of %s runs and that no firewall blocks these ports." % other
                if "answers there" not in reason
                else "Choose another root_port, or end the program that uses the port.",
            )
        )
    return lines


def _met(reports: Reports) -> Dict[str, RendezvousReport]:
    """Return {host: report} of the nodes with a report."""
    return {host: one for host, one in reports.items() if isinstance(one, RendezvousReport)}


def not_met(reports: Reports) -> List[str]:
    """Return the problems in the rendezvous of all nodes, as a list of strings.

    The list holds the `complaints` about each node, and a problem for each node without a report.
    If a node reports its own fault, the list omits failed connections to this node.
    """
    met = _met(reports)
    # A node that reports its own fault explains the failed connections of other nodes to it.
    explained = (set(reports) - set(met)) | {host for host, one in met.items() if one.taken}
    problems = [
        complaint
        for host, report in sorted(met.items())
        for complaint in complaints(
            host, report, [one for one in report.unreachable if one.host not in explained]
        )
    ]
    return problems + [
        "%s: the agent did not complete the rendezvous (%s): correct the error, and run verify.yml "
        "again"
        % (host, end.error if isinstance(end, CheckError) else "no result, see the errors above")
        for host, end in sorted(reports.items())
        if host not in met
    ]


def clocks(reports: Reports, most: float) -> List[str]:
    """Return a problem for each node whose clock is more than `most` seconds from other clocks.

    The uncertainty of a difference is half of the round-trip time. The function compares all pairs
    of nodes, and takes the node that occurs in the most pairs with a too large difference. A
    problem names this node, and the partner in the pair with the largest difference. Then the
    function drops all pairs of this node, and repeats. So one wrong clock gives one problem.
    """
    apart = {
        (host, other): abs(offset)
        for host, others in _ways(_met(reports)).items()
        for other, (rtt, offset) in others.items()
        if host < other and abs(offset) - rtt / 2 > most
    }
    named = []
    while apart:
        count = Counter(host for pair in apart for host in pair)
        worst = max(sorted(count), key=lambda host: count[host])
        gap, pair = max((gap, pair) for pair, gap in apart.items() if worst in pair)
        named.append(pair + (gap,))
        apart = {pair: gap for pair, gap in apart.items() if worst not in pair}
    return [
        "the clocks of %s and %s differ by %.1f s: run chrony or ntpd on both nodes" % one
        for one in sorted(named)
    ]


def _ways(reports: Mapping[str, RendezvousReport]) -> Dict[str, Dict[str, Tuple[float, float]]]:
    """Return {host: {other host: (round-trip time, clock offset of the other host)}}, in seconds.

    For two nodes that did not meet, the function adds the offsets to the node that met the most
    nodes. This node is the scheduler's node, which meets all nodes. Of several measurements, the
    measurement with the shortest round trip counts, because its error is the smallest.
    """
    ways = {}  # type: Dict[str, Dict[str, Tuple[float, float]]]
    for host, report in reports.items():
        for met in report.met:
            for one, other, offset in ((host, met.host, met.offset), (met.host, host, -met.offset)):
                known = ways.setdefault(one, {})
                known[other] = min(known.get(other, (met.rtt, offset)), (met.rtt, offset))
    if ways:
        middle = dict(ways[max(sorted(ways), key=lambda host: len(ways[host]))])
        for host, (rtt, offset) in middle.items():
            for other, (rest, further) in middle.items():
                if other != host:
                    ways[host].setdefault(other, (rtt + rest, further - offset))
    return ways


def open_files(reports: Reports, least: float) -> List[str]:
    """Return a problem for each node where a process may open fewer than `least` files.

    A negative number means no limit.
    """
    return [
        "%s: a process may open %d files, fewer than verify_min_open_files=%d: raise nofile in "
        "/etc/security/limits.conf" % (host, report.limits.open_files, least)
        for host, report in sorted(_met(reports).items())
        if 0 <= report.limits.open_files < least
    ]
