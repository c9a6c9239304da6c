"""The verdict on a cluster, from what its nodes have answered. Pure.

A line of the verdict is {"check", "result": "ok" | "failed" | "not run", "why": [text, ...]}. The verdict's status is 0 if no
check failed, 1 if one did, 2 if one could not be asked.
"""
from collections import Counter, OrderedDict
from typing import Any, Dict, List, Optional, Tuple

from . import verify_gpus
from .plan.table import some

Json = Dict[str, Any]
Answers = Dict[str, Optional[Json]]  # {host: answer of `checks.check`, None if it could not be asked}

MIB = 1 << 20


def judge(answers: Answers, meetings: Dict[str, Optional[Json]], wanted: Json) -> Json:
    """The verdict: {"ok", "status", "checks": [...], "nodes": [...]}.

    meetings: {host: content of its meeting.json, {"error": why} or None if it has none}.
    wanted: {"files": {name: sha256 as planned}, "nodes": those of the plan, with the "build" of MXNet that each has and the
    "cuda" of those that train on GPUs, see `versions.decide`, "ssh": whether nodes shall reach each other, "met": whether they
    were let meet, "max_clock_offset" s, "min_disk_mb", "min_shm_mb", "min_open_files"}.
    """
    silent = sorted(host for host, answer in answers.items() if answer is None)
    known = {host: answer for host, answer in answers.items() if answer is not None}
    lines = [line("every node answers", ["%s does not answer, see above" % host for host in silent])]
    for name, label in (("python", "the same Python"), ("numpy", "the same numpy"), ("mxnet", "the same MXNet"),
                        ("libmxnet", "the same libmxnet.so")):
        # MXNet's library for GPUs is another than that for CPUs.
        builds = {host: node["build"] for host, node in wanted["nodes"].items()} if name == "libmxnet" else {}
        lines.append(asked(line(label, same(known, name, builds)), known, name))
    lines += [asked(line("MXNet has the distributed kv-store", distributed(known)), known, "compiled_in"),
              line("hosts, groups and data_sharding as planned", planned_files(known, wanted["files"])),
              line("ssh from every node to every other", unreachable_by_ssh(known)) if wanted["ssh"]
              else skipped("ssh from every node to every other", "ssh_mesh_mode is none"),
              line("room on disks and in shared memory", no_room(known, wanted))]
    cuda = {host: node["cuda"] for host, node in wanted["nodes"].items() if node.get("cuda")}
    having, unasked = facts({host: answer for host, answer in known.items() if host in cuda and answer["gpus"]}, "gpus")
    lines += verify_gpus.judge({host: dict(found, wanted=cuda[host]) for host, found in having}, line, skipped)
    lines += [line("GPUs", unasked) for _ in unasked[:1]]
    if silent or not wanted["met"]:
        lines += [skipped(label, "not all nodes answer" if silent else "check mode starts nothing")
                  for label in ("TCP between all roles on the planned ports", "clocks", "open files")]
    else:
        apart = clocks(meetings, wanted["max_clock_offset"])
        lost = not_met(meetings)
        lines += [line("TCP between all roles on the planned ports", lost),
                  line("clocks within %g s" % wanted["max_clock_offset"], apart) if apart or not lost
                  else skipped("clocks", "not all nodes have met"),
                  line("open files", open_files(meetings, wanted["min_open_files"]))]
    lines.append(closed_ports(known))
    failed = [one for one in lines if one["result"] == "failed"]
    return {"ok": not failed, "status": 2 if silent else 1 if failed else 0, "nodes": sorted(answers), "checks": lines}


def line(check: str, why: List[str]) -> Json:
    """A line of the verdict: ok unless there is something to say."""
    return {"check": check, "result": "failed" if why else "ok", "why": why}


def skipped(check: str, why: str) -> Json:
    """A line for a check that was not made."""
    return {"check": check, "result": "not run", "why": [why]}


def asked(made: Json, known: Dict[str, Json], name: str) -> Json:
    """The line, unless it is ok for the only reason that some nodes' MXNet could not be asked for `name`."""
    dumb = sorted(host for host, answer in known.items() if answer["mxnet"].get(name) is None)
    if dumb and made["result"] == "ok":
        return skipped(made["check"], "not known of %s" % ", ".join(dumb))
    return made


def text(verdict: Json, path: str) -> List[str]:
    """The verdict in lines for people; `path` is where its JSON lies."""
    count = {result: sum(one["result"] == result for one in verdict["checks"]) for result in ("ok", "failed", "not run")}
    lines = ["%-9s %d nodes: %s" % ("OK" if verdict["ok"] else "FAILED", len(verdict["nodes"]),
                                    ", ".join("%d %s" % (number, result) for result, number in count.items() if number))]
    for one in verdict["checks"]:
        lines.append("%-9s %s%s" % (one["result"], one["check"],
                                    ": " + one["why"][0] if one["result"] == "not run" else ""))
        if one["result"] == "failed":
            lines += ["            " + why for why in one["why"]]
    return lines + ["verdict   %s" % path]


def facts(known: Dict[str, Json], name: str) -> Tuple[List[Tuple[str, Json]], List[str]]:
    """([(host, what the check `name` has found there)], a line for each node where the check itself has failed)."""
    told = [(host, answer[name]) for host, answer in sorted(known.items()) if "error" not in answer[name]]
    return told, ["%s: this could not be looked at (%s): mend that there, and run verify.yml again"
                  % (host, answer[name]["error"]) for host, answer in sorted(known.items()) if "error" in answer[name]]


def same(known: Dict[str, Json], name: str, kinds: Dict[str, str]) -> List[str]:
    """A line for each kind whose hosts differ in `name`. `kinds` is {host: kind}; the line begins with the largest party."""
    parties, problems = OrderedDict(), []  # type: ignore
    for host in sorted(known):
        answer = known[host]["mxnet"]
        if answer.get(name):
            parties.setdefault(kinds.get(host, ""), OrderedDict()).setdefault(answer[name], []).append(host)
        elif name == "mxnet":  # one line is enough
            problems.append("%s: %s: run provision.yml" % (host, answer["error"]))
    for _, of_kind in sorted(parties.items()):
        if len(of_kind) > 1:
            problems.append("%s: run provision.yml without --limit" % "; ".join(
                "%s: %s" % (", ".join(hosts), value[:12])
                for value, hosts in sorted(of_kind.items(), key=lambda party: -len(party[1]))))
    return problems


def distributed(known: Dict[str, Json]) -> List[str]:
    """Nodes whose MXNet can be imported but cannot train with others."""
    return ["%s: %s: install the official wheel: run provision.yml" % (host, answer["mxnet"]["says"])
            for host, answer in sorted(known.items())
            if "error" not in answer["mxnet"] and not answer["mxnet"]["compiled_in"]]


def closed_ports(known: Dict[str, Json]) -> Json:
    """Whether the nodes have something that keeps strangers from the ports of jobs. Not to have it is no fault: it is said."""
    check, by_reason = "ports of jobs are closed to strangers", OrderedDict()  # type: Tuple[str, Dict[str, List[str]]]
    for host, answer in sorted(known.items()):
        if answer.get("ports_open"):
            by_reason.setdefault(answer["ports_open"], []).append(host)
    if not by_reason:
        return line(check, [])
    return skipped(check, "; ".join("%s: %s" % (some(hosts), why) for why, hosts in by_reason.items()))


def planned_files(known: Dict[str, Json], planned: Dict[str, str]) -> List[str]:
    """Nodes whose three files are not those of the plan."""
    told, problems = facts(known, "files")
    for host, found_there in told:
        for name, digest in planned.items():
            found = found_there[name]
            if "error" in found:
                problems.append("%s: %s: run provision.yml" % (host, found["error"].replace("\n", "; ")))
            elif found["sha256"] != digest:
                problems.append("%s: %s is not what the inventory says: run provision.yml, which writes it anew" % (host, name))
    return problems


def unreachable_by_ssh(known: Dict[str, Json]) -> List[str]:
    """A line for each way that is closed."""
    told, problems = facts(known, "ssh")
    return problems + ["%s to %s: %s: run provision.yml without --limit" % (host, peer, why.rstrip("."))
                       for host, found in told for peer, why in sorted(found["peers"].items()) if why]


def no_room(known: Dict[str, Json], wanted: Json) -> List[str]:
    """Nodes with less free space than wanted."""
    told, problems = facts(known, "room")
    for host, found in told:
        for path, free in sorted(found.items()):
            least = wanted["min_shm_mb"] if path == "/dev/shm" else wanted["min_disk_mb"]
            if free < least * MIB:
                problems.append("%s: %s has %d MiB free, less than %d: remove what is not needed there"
                                % (host, path, free // MIB, least))
    return problems


def not_met(meetings: Dict[str, Optional[Json]]) -> List[str]:
    """Who could not reach whom, and who did not get as far as the meeting."""
    from .meeting import complaints
    ends = {host: meeting for host, meeting in sorted(meetings.items()) if not meeting or "error" in meeting}
    # What others miss of a node that says itself what is wrong is explained by that.
    explained = set(ends) | {host for host, meeting in meetings.items() if meeting and meeting.get("taken")}
    problems = [complaint for host, meeting in sorted(meetings.items()) if meeting and host not in ends
                for complaint in complaints(dict(
                    meeting, unreachable=[one for one in meeting["unreachable"] if one["host"] not in explained]))]
    return problems + ["%s: its agent did not get through the meeting%s"
                       % (host, " (%s)" % end["error"] if end else ", see above") for host, end in ends.items()]


def clocks(meetings: Dict[str, Optional[Json]], most: float) -> List[str]:
    """Nodes whose clocks differ by more than `most` seconds, beyond what the ways between them leave open.

    All are compared with all, nodes of one role too, which do not meet each other. Who is apart from most is named once, with
    the one that he is furthest from: a clock that is wrong is not a line for each that is right.
    """
    apart = {(host, other): abs(offset) for host, others in _ways(meetings).items() for other, (rtt, offset) in others.items()
             if host < other and abs(offset) - rtt / 2 > most}
    named = []
    while apart:
        count = Counter(host for pair in apart for host in pair)
        worst = max(sorted(count), key=lambda host: count[host])
        gap, pair = max((gap, pair) for pair, gap in apart.items() if worst in pair)
        named.append(pair + (gap,))
        apart = {pair: gap for pair, gap in apart.items() if worst not in pair}
    return ["the clocks of %s and %s differ by %.1f s: let chrony or ntpd set them" % one for one in sorted(named)]


def _ways(meetings: Dict[str, Optional[Json]]) -> Dict[str, Dict[str, Tuple[float, float]]]:
    """{host: {other: (round trip, how far its clock is ahead)}}: as they have met, or by way of the node that has met most.

    The scheduler's node has met all. Of several measurements the quickest counts, which can be least wrong.
    """
    ways = {}  # type: Dict[str, Dict[str, Tuple[float, float]]]
    for host, meeting in meetings.items():
        for met in (meeting or {}).get("met", []):
            for one, other, offset in ((host, met["host"], met["offset"]), (met["host"], host, -met["offset"])):
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
    """Nodes on which a process may not open enough files."""
    return ["%s: a process may open %d files, fewer than %d: raise it in /etc/security/limits.conf"
            % (host, meeting["limits"]["open_files"], least) for host, meeting in sorted(meetings.items())
            if meeting and "limits" in meeting and meeting["limits"]["open_files"] < least]
