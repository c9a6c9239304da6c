"""Judge ports, clocks and limits from the rendezvous results of a cluster's nodes."""

from collections import Counter
from typing import Any, Dict, List, Optional, Tuple

from mxcluster.errors import some
from mxcluster.lists import grouped

Json = Dict[str, Any]

NAMED = 3  # the most processes of a node that a message names


def complaints(result: Json) -> List[str]:
    """Return the problems in one node's rendezvous result, as a list of strings.

    Each taken port and each unreachable node is a problem. The text about an unreachable node names
    the node's processes, the error and the cure.

    Args:
        result: the content of the node's meeting.json, with the node's name as "host".
    """
    by_host = grouped((one["host"], one) for one in result["unreachable"])
    lines = ["%s: %s" % (result["host"], why) for why in result["taken"]]
    for host, lost in by_host.items():
        reason = lost[0]["reason"]
        named = ["%s at %s:%d" % (one["name"], one["address"], one["port"]) for one in lost]
        lines.append(
            "%s cannot reach %s (%s): %s. %s"
            % (
                result["host"],
                host,
                some(named, NAMED),
                reason,
                "Check that the agent of %s runs and that no firewall blocks these ports." % host
                if "answers there" not in reason
                else "Choose another root_port, or end the program that uses the port.",
            )
        )
    return lines


def not_met(meetings: Dict[str, Optional[Json]]) -> List[str]:
    """Return the problems in the rendezvous of all nodes, as a list of strings.

    The list holds the `complaints` about each node, and a problem for each node without a result.
    If a node reports its own fault, the list omits failed connections to this node.

    Args:
        meetings: as in `verify.judge`.
    """
    ends = {
        host: meeting
        for host, meeting in sorted(meetings.items())
        if not meeting or "error" in meeting
    }
    # A node that reports its own fault explains the failed connections of other nodes to it.
    explained = set(ends) | {
        host for host, meeting in meetings.items() if meeting and meeting.get("taken")
    }
    problems = [
        complaint
        for host, meeting in sorted(meetings.items())
        if meeting and host not in ends
        for complaint in complaints(
            dict(
                meeting,
                unreachable=[one for one in meeting["unreachable"] if one["host"] not in explained],
            )
        )
    ]
    return problems + [
        "%s: the agent did not complete the rendezvous (%s): correct the error, and run verify.yml "
        "again" % (host, end["error"] if end else "no result, see the errors above")
        for host, end in ends.items()
    ]


def clocks(meetings: Dict[str, Optional[Json]], most: float) -> List[str]:
    """Return a problem for each node whose clock is more than `most` seconds from other clocks.

    The uncertainty of a difference is half of the round-trip time. The function compares all pairs
    of nodes, and takes the node that occurs in the most pairs with a too large difference. A
    problem names this node, and the partner in the pair with the largest difference. Then the
    function drops all pairs of this node, and repeats. So one wrong clock gives one problem.

    Args: `meetings` as in `verify.judge`.
    """
    apart = {
        (host, other): abs(offset)
        for host, others in _ways(meetings).items()
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


def _ways(meetings: Dict[str, Optional[Json]]) -> Dict[str, Dict[str, Tuple[float, float]]]:
    """Return {host: {other host: (round-trip time, clock offset of the other host)}}, in seconds.

    For two nodes that did not meet, the function adds the offsets to the node that met the most
    nodes. This node is the scheduler's node, which meets all nodes. Of several measurements, the
    measurement with the shortest round trip counts, because its error is the smallest.
    """
    ways = {}  # type: Dict[str, Dict[str, Tuple[float, float]]]
    for host, meeting in meetings.items():
        for met in (meeting or {}).get("met", []):
            for one, other, offset in (
                (host, met["host"], met["offset"]),
                (met["host"], host, -met["offset"]),
            ):
                known = ways.setdefault(one, {})
                known[other] = min(known.get(other, (met["rtt"], offset)), (met["rtt"], offset))
    if ways:
        middle = dict(ways[max(sorted(ways), key=lambda host: len(ways[host]))])
        for host, (rtt, offset) in middle.items():
            for other, (rest, further) in middle.items():
                if other != host:
                    ways[host].setdefault(other, (rtt + rest, further - offset))
    return ways


def open_files(meetings: Dict[str, Optional[Json]], least: int) -> List[str]:
    """Return a problem for each node where a process may open fewer than `least` files."""
    return [
        "%s: a process may open %d files, fewer than verify_min_open_files=%d: raise nofile in "
        "/etc/security/limits.conf" % (host, meeting["limits"]["open_files"], least)
        for host, meeting in sorted(meetings.items())
        if meeting and "limits" in meeting and meeting["limits"]["open_files"] < least
    ]
