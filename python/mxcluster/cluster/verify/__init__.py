"""Make the verdict on a cluster from the check results of its nodes.

A line of the verdict is {"check", "result": "ok" | "failed" | "not run", "why": [text, ...]}. The
verdict's status is 0 if no check failed, 1 if a check failed, and 2 if a node did not answer.
"""

from collections import OrderedDict
from typing import Any, Dict, List, Optional, Tuple

from mxcluster.cluster.verify import gpus
from mxcluster.cluster.verify.network import clocks, not_met, open_files
from mxcluster.errors import some
from mxcluster.lists import grouped, several

Json = Dict[str, Any]
Answers = Dict[
    str, Optional[Json]
]  # {host: result of `health_checks.check`, None if the node did not answer}

MIB = 1 << 20


def judge(answers: Answers, meetings: Dict[str, Optional[Json]], wanted: Json) -> Json:
    """Return the verdict on the cluster.

    The verdict is {"ok": True or False, "status", "checks": [line, ...], "nodes": [host, ...]}.

    Args:
        answers: {host: check results of the node, or None if the node did not answer}.
        meetings: {host: content of the node's meeting.json, or {"error": reason}, or None if the
            node has neither}.
        wanted: the requirements, a dict with the following entries.

            "files": {name: sha256 of the planned text}
            "nodes": {host: {"build": MXNet's build, "cuda": for a node that trains on GPUs}}, as
                planned by `versions.decide`
            "ssh": True if nodes must reach each other by ssh
            "met": True if the rendezvous ran
            "max_clock_offset": seconds
            "min_disk_mb", "min_shm_mb": MiB of free space
            "min_open_files": number of files that a process may open
    """
    silent = sorted(host for host, answer in answers.items() if answer is None)
    known = {host: answer for host, answer in answers.items() if answer is not None}
    lines = [
        line(
            "every node answers",
            [
                "%s does not answer: correct the error shown above, and run verify.yml again" % host
                for host in silent
            ],
        )
    ]
    for name, label in (
        ("mxnet", "the same MXNet"),
        ("libmxnet", "the same libmxnet.so"),
    ):
        # MXNet's library for GPUs differs from its library for CPUs.
        builds = (
            {host: node["build"] for host, node in wanted["nodes"].items()}
            if name == "libmxnet"
            else {}
        )
        lines.append(asked(line(label, same(known, name, builds)), known, name))
    lines += [
        asked(line("MXNet has the distributed kv-store", distributed(known)), known, "compiled_in"),
        line("hosts, groups and data_sharding as planned", planned_files(known, wanted["files"])),
        line("ssh from every node to every other node", unreachable_by_ssh(known))
        if wanted["ssh"]
        else skipped("ssh from every node to every other node", "ssh_mesh_mode is none"),
        line("room on disks and in shared memory", no_room(known, wanted)),
    ]
    cuda = {host: node["cuda"] for host, node in wanted["nodes"].items() if node.get("cuda")}
    having, unasked = facts(
        {host: answer for host, answer in known.items() if host in cuda and answer["gpus"]}, "gpus"
    )
    lines += gpus.judge(
        {host: dict(found, wanted=cuda[host]) for host, found in having}, line, skipped
    )
    lines += [line("GPUs", unasked) for _ in unasked[:1]]
    without = sorted(host for host, answer in known.items() if host in cuda and not answer["gpus"])
    if without:
        lines.append(
            skipped(
                "GPUs",
                "%s: the plan has CUDA, but the answer has no facts about GPUs: run provision.yml, "
                "then verify.yml" % ", ".join(without),
            )
        )
    if silent or not wanted["met"]:
        lines += [
            skipped(label, "not all nodes answer" if silent else "a dry run starts no rendezvous")
            for label in ("TCP between all roles on the planned ports", "clocks", "open files")
        ]
    else:
        apart = clocks(meetings, wanted["max_clock_offset"])
        lost = not_met(meetings)
        lines += [
            line("TCP between all roles on the planned ports", lost),
            line("clocks within %g s" % wanted["max_clock_offset"], apart)
            if apart or not lost
            else skipped("clocks", "the rendezvous is not complete"),
            line("open files", open_files(meetings, wanted["min_open_files"])),
        ]
    lines.append(closed_ports(known))
    failed = [one for one in lines if one["result"] == "failed"]
    return {
        "ok": not failed,
        "status": 2 if silent else 1 if failed else 0,
        "nodes": sorted(answers),
        "checks": lines,
    }


def line(check: str, why: List[str]) -> Json:
    """Return the line of a check: "ok" if `why` is empty, else "failed" with these reasons."""
    return {"check": check, "result": "failed" if why else "ok", "why": why}


def skipped(check: str, why: str) -> Json:
    """Return the line of a check that did not run ("not run"), with the reason `why`."""
    return {"check": check, "result": "not run", "why": [why]}


def asked(made: Json, known: Dict[str, Json], name: str) -> Json:
    """Return the line `made`, or a line "not run" if `made` is "ok" and a node lacks a value.

    Args: `known` {host: check results of the node}; `name` the value's field in "mxnet" of the
    check results.
    """
    dumb = sorted(host for host, answer in known.items() if answer["mxnet"].get(name) is None)
    if dumb and made["result"] == "ok":
        return skipped(made["check"], "no value from %s" % ", ".join(dumb))
    return made


def text(verdict: Json, path: str) -> List[str]:
    """Return the verdict as a list of text lines for the terminal.

    Args:
        verdict: the result of `judge`.
        path: the path of the verdict's JSON file.
    """
    count = {
        result: sum(one["result"] == result for one in verdict["checks"])
        for result in ("ok", "failed", "not run")
    }
    lines = [
        "%-9s %s: %s"
        % (
            "OK" if verdict["ok"] else "FAILED",
            several(len(verdict["nodes"]), "node"),
            ", ".join("%d %s" % (number, result) for result, number in count.items() if number),
        )
    ]
    for one in verdict["checks"]:
        lines.append(
            "%-9s %s%s"
            % (
                one["result"],
                one["check"],
                ": " + one["why"][0] if one["result"] == "not run" else "",
            )
        )
        if one["result"] == "failed":
            lines += ["            " + why for why in one["why"]]
    return lines + ["verdict   %s" % path]


def facts(known: Dict[str, Json], name: str) -> Tuple[List[Tuple[str, Json]], List[str]]:
    """Return the results of the check `name`, and a problem for each node without a result.

    The results are [(host, result), ...], the problems a list of texts.

    Args: `known` {host: check results of the node}.
    """
    told = [
        (host, answer[name])
        for host, answer in sorted(known.items())
        if "error" not in answer[name]
    ]
    return told, [
        "%s: the check could not run (%s): correct the error on the node, and run verify.yml again"
        % (host, answer[name]["error"])
        for host, answer in sorted(known.items())
        if "error" in answer[name]
    ]


def same(known: Dict[str, Json], name: str, kinds: Dict[str, str]) -> List[str]:
    """Return a problem (text) for each kind of node with several values of the field `name`.

    A problem lists the hosts of each value, the most frequent value first. For the field "mxnet"
    the function also returns a problem for each node without a value.

    Args:
        known: {host: check results of the node}.
        name: a field of the results' "mxnet".
        kinds: {host: kind}. The kind of a host outside this dict is "".
    """
    parties: Dict[str, Dict[str, List[str]]] = OrderedDict()
    problems = []
    for host in sorted(known):
        answer = known[host]["mxnet"]
        if answer.get(name):
            parties.setdefault(kinds.get(host, ""), OrderedDict()).setdefault(
                answer[name], []
            ).append(host)
        elif name == "mxnet":  # one line for each host is enough
            problems.append("%s: %s: run provision.yml" % (host, answer["error"]))
    for _, of_kind in sorted(parties.items()):
        if len(of_kind) > 1:
            problems.append(
                "the nodes differ (%s): run provision.yml without --limit"
                % "; ".join(
                    "%s: %s" % (", ".join(hosts), value[:12])
                    for value, hosts in sorted(of_kind.items(), key=lambda party: -len(party[1]))
                )
            )
    return problems


def distributed(known: Dict[str, Json]) -> List[str]:
    """Return a problem (text) for each node with an MXNet that lacks the distributed kv-store.

    The function skips nodes where the import of MXNet fails.

    Args: `known` {host: check results of the node}.
    """
    return [
        "%s: %s: run provision.yml, which installs the official wheel"
        % (host, answer["mxnet"]["says"])
        for host, answer in sorted(known.items())
        if "error" not in answer["mxnet"] and not answer["mxnet"]["compiled_in"]
    ]


def closed_ports(known: Dict[str, Json]) -> Json:
    """Return the line of the check that job ports are closed to other machines.

    The line is "ok" if no node reports a reason for open ports. Otherwise the line is "not run",
    with these reasons.

    Args: `known` {host: check results of the node}.
    """
    # by_reason: {reason: [host, ...]}
    check = "job ports are closed to other machines"
    by_reason = grouped(
        (answer["ports_open"], host)
        for host, answer in sorted(known.items())
        if answer.get("ports_open")
    )
    if not by_reason:
        return line(check, [])
    return skipped(
        check, "; ".join("%s: %s" % (some(hosts), why) for why, hosts in by_reason.items())
    )


def planned_files(known: Dict[str, Json], planned: Dict[str, str]) -> List[str]:
    """Return a problem for each cluster file of a node that differs from the plan.

    Args:
        known: {host: check results of the node}.
        planned: {name: sha256 of the planned text}.
    """
    told, problems = facts(known, "files")
    for host, found_there in told:
        for name, digest in planned.items():
            found = found_there[name]
            if "error" in found:
                problems.append(
                    "%s: %s: run provision.yml" % (host, found["error"].replace("\n", "; "))
                )
            elif found["sha256"] != digest:
                problems.append(
                    "%s: %s differs from the inventory: run provision.yml to write this file again"
                    % (host, name)
                )
    return problems


def unreachable_by_ssh(known: Dict[str, Json]) -> List[str]:
    """Return a problem (text) for each failed ssh connection from a node to another node.

    Args: `known` {host: check results of the node}.
    """
    told, problems = facts(known, "ssh")
    return problems + [
        "%s to %s: ssh failed (%s): run provision.yml without --limit. If the "
        "connection comes from another address than the planned one, list it in ssh_mesh_from"
        % (host, peer, why.rstrip("."))
        for host, found in told
        for peer, why in sorted(found["peers"].items())
        if why
    ]


def no_room(known: Dict[str, Json], wanted: Json) -> List[str]:
    """Return a problem (text) for each folder of a node with too little free space.

    Args: `known` {host: check results of the node}; `wanted` the requirements, as in `judge`.
    """
    told, problems = facts(known, "room")
    for host, found in told:
        for path, free in sorted(found.items()):
            least = wanted["min_shm_mb"] if path == "/dev/shm" else wanted["min_disk_mb"]
            if free < least * MIB:
                problems.append(
                    "%s: %s has %d MiB free, less than %s=%d: remove unneeded files there"
                    % (
                        host,
                        path,
                        free // MIB,
                        "verify_min_shm_mb" if path == "/dev/shm" else "verify_min_disk_mb",
                        least,
                    )
                )
    return problems
