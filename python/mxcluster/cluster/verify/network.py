"""Judge ports, clocks and limits from the rendezvous results of a cluster's nodes."""

from collections import Counter
from typing import Any, Dict, List, Optional, Tuple

from mxcluster.errors import some
from mxcluster.lists import grouped

Json = Dict[str, Any]

NAMED = 3  # at most so many processes of a node in a message


def complaints(result: Json) -> List[str]:
    """Return a problem for each taken port of one node, and for each node that it cannot reach.

    A problem about an unreachable node names the node's processes, the error and the cure.

    Args: `result` the content of meeting.json, with "host".
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
                else "Choose another root_port, or end the program there.",
            )
        )
    return lines


def not_met(meetings: Dict[str, Optional[Json]]) -> List[str]:
    """Return the problems of the rendezvous of all nodes.

    They are the `complaints` of each node, and a problem for each node without a result. Failed
    connections to a node with a fault of its own are left out.

    Args: `meetings` as in `verify.judge`.
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
        "%s: the agent did not complete the rendezvous (%s)"
        % (
            host,
            end["error"] if end else "no result; see the errors above, and run verify.yml again",
        )
        for host, end in ends.items()
    ]


def clocks(meetings: Dict[str, Optional[Json]], most: float) -> List[str]:
    """Return problems that name pairs of nodes whose clocks differ by more than `most` seconds.

    Half of the round-trip time is the uncertainty of a difference. The function compares all nodes,
    also nodes of one role, which do not meet each other. The node that differs from most others is
    named once, with the node of the largest difference, so that one wrong clock gives one problem.

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
        "the clocks of %s and %s differ by %.1f s: run chrony or ntpd on both" % one
        for one in sorted(named)
    ]


def _ways(meetings: Dict[str, Optional[Json]]) -> Dict[str, Dict[str, Tuple[float, float]]]:
    """Return {host: {other: (round-trip time, clock offset of other)}}, in seconds.

    Two nodes that did not meet are compared through the node that met most others. This is the node
    of the scheduler, which meets all nodes. Of several measurements, that with the shortest round
    trip counts, because its error is the smallest.
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
