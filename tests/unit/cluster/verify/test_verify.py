"""The verdict on a cluster, from answers of nodes."""

import copy
import hashlib

import pytest

from mxcluster.cluster import verify
from mxcluster.model.check_answer import Checked, CheckError, RendezvousReport
from mxcluster.model.cluster_verdict import ClusterVerdict
from mxcluster.model.plan import Node
from tests.unit.cluster.verify import test_gpus

GIB = 1 << 30
FILES = {"hosts": "10.0.0.1\n", "groups": "10.0.0.1\n", "data_sharding": "0 1\n"}
ANSWER = {
    "mxnet": {"mxnet": "1.9.1", "libmxnet": "a" * 64, "compiled_in": True, "says": ""},
    "files": {
        name: {"sha256": hashlib.sha256(content.encode()).hexdigest()}
        for name, content in FILES.items()
    },
    "room": {"/opt/mxcluster": 50 * GIB, "/dev/shm": GIB},
    "ssh": {"peers": {"a": None, "b": None, "c": None}},
    "gpus": None,
}
RENDEZVOUS = {
    "met": [{"host": "a", "rtt": 0.001, "offset": 0.01}],
    "unreachable": [],
    "taken": [],
    "limits": {"open_files": 4096},
}
WANTED = {
    "files": FILES,
    "nodes": {host: {"build": "cpu"} for host in "abc"},
    "ssh": True,
    "met": True,
    "max_clock_offset": 1.0,
    "min_disk_mb": 1024,
    "min_shm_mb": 32,
    "min_open_files": 1024,
}


def judged(change=lambda answers, reports, wanted: None):
    answers, reports = (
        {host: copy.deepcopy(what) for host in "abc"} for what in (ANSWER, RENDEZVOUS)
    )
    wanted = copy.deepcopy(WANTED)
    change(answers, reports, wanted)
    return verify.judge(
        {host: Node.decode(node) for host, node in wanted.pop("nodes").items()},
        {host: value and Checked.decode(value) for host, value in answers.items()},
        {host: report(value) for host, value in reports.items()},
        verify.Wanted.decode(wanted),
    ).encode()


def report(value):
    return value and (CheckError if "error" in value else RendezvousReport).decode(value)


def text(verdict):
    return verify.text(ClusterVerdict.decode(verdict), "verify.json")


def failures(verdict, result="failed"):
    return {line["check"]: line["why"] for line in verdict["checks"] if line["result"] == result}


def not_run(verdict):
    return failures(verdict, "not run")


def test_all_checks_pass():
    verdict = judged()
    assert verdict["ok"] and verdict["status"] == 0 and failures(verdict) == {}
    assert text(verdict)[0] == "OK        3 nodes: 11 ok"


def put(*keys):
    *path, value = keys

    def change(answers, reports, wanted):
        place = {"answers": answers, "reports": reports, "wanted": wanted}
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value

    return change


PLANNED, ROOM = "hosts, groups and data_sharding as planned", "room on disks and in shared memory"
SSH, LIMIT = "ssh from every node to every other node", "open files"
KV, TCP = "MXNet has the distributed kv-store", "TCP between all roles on the planned ports"
WITHOUT_KV = dict(ANSWER["mxnet"], compiled_in=False, says="USE_DIST")
BROKEN = {"error": "it broke"}
LOST = {"host": "c", "name": "worker-1", "address": "10.0.0.3", "port": 9091, "reason": "timed out"}


@pytest.mark.parametrize(
    "change, check, says",
    [
        (put("answers", "b", "mxnet", "mxnet", "1.5.1"), "the same MXNet", "a, c: 1.9.1; b: 1.5.1"),
        (put("answers", "a", "mxnet", WITHOUT_KV), KV, "a: USE_DIST: run provision.yml, which"),
        (put("answers", "c", "files", "groups", {"sha256": "f" * 64}), PLANNED, "c: groups differ"),
        (put("answers", "a", "ssh", "peers", "b", "Denied."), SSH, "a to b: ssh failed (Denied)"),
        (put("answers", "c", "files", BROKEN), PLANNED, "c: the check could not run (it broke)"),
        (put("answers", "a", "room", "/dev/shm", 1 << 20), ROOM, "/dev/shm has 1 MiB free, less"),
        (
            put("reports", "b", "unreachable", [LOST]),
            TCP,
            "b cannot reach c (worker-1 at 10.0.0.3:9091): timed out. Check that the agent",
        ),
        (put("reports", "b", BROKEN), TCP, "the agent did not complete the rendezvous (it broke)"),
        (put("reports", "c", "limits", {"open_files": 256}), LIMIT, "c: a process may open 256"),
    ],
)
def test_a_failure_is_named_with_its_remedy(change, check, says):
    verdict = judged(change)
    assert list(failures(verdict)) == [check] and verdict["status"] == 1 and not verdict["ok"]
    assert says in failures(verdict)[check][0]
    assert any(says in line for line in text(verdict))


def test_a_value_that_mxnet_does_not_report_is_not_run():
    verdict = judged(put("answers", "b", "mxnet", {"error": "it crashes", "libmxnet": "a" * 64}))
    assert failures(verdict) == {"the same MXNet": ["b: it crashes: run provision.yml"]}
    assert not_run(verdict) == {KV: ["no value from b"]}


def test_a_taken_port_explains_unreachable_peers():
    def change(answers, reports, wanted):
        reports["c"]["taken"] = ["port 9091 is in use"]
        reports["b"]["unreachable"] = [LOST]  # the process on the port has answered, or has not

    verdict = judged(change)
    assert failures(verdict) == {TCP: ["c: port 9091 is in use"]}
    assert not_run(verdict)["clocks"] == ["the rendezvous is not complete"]


def test_a_process_without_a_limit_may_open_all_files():
    assert judged(put("reports", "c", "limits", {"open_files": -1}))["ok"]


def test_a_clock_offset_within_the_round_trip_time_is_ok():
    assert judged(put("reports", "b", "met", [{"host": "a", "rtt": 2.0, "offset": 1.5}]))["ok"]


def test_clocks_of_workers_are_compared_through_the_scheduler():
    """Workers reach the scheduler and servers only.

    Each clock here is within 0.7 s of the scheduler's, one ahead and one behind.
    """

    def change(answers, reports, wanted):
        reports["a"]["met"] = [
            {"host": "b", "rtt": 0.1, "offset": 0.7},
            {"host": "c", "rtt": 0.1, "offset": -0.7},
        ]
        for host, offset in (("b", -0.71), ("c", 0.71)):
            reports[host]["met"] = [{"host": "a", "rtt": 0.2, "offset": offset}]

    assert failures(judged(change)) == {
        "clocks within 1 s": [
            "the clocks of b and c differ by 1.4 s: run chrony or ntpd on both nodes"
        ]
    }


def test_a_wrong_clock_is_reported_once():
    hosts = ["n%d" % number for number in range(50)]
    met = [
        {"host": host, "rtt": 0.001, "offset": (host == "n7") * 9.0}
        for index, host in enumerate(hosts)
        if index
    ]
    told = verify.clocks({"n0": report(dict(RENDEZVOUS, met=met))}, 1.0)
    assert told == ["the clocks of n7 and n9 differ by 9.0 s: run chrony or ntpd on both nodes"]
    assert verify.clocks({"n0": None, "n1": report({"error": "it broke"})}, 1.0) == []


def test_a_missing_answer_is_a_failure():
    verdict = judged(put("answers", "c", None))
    assert verdict["status"] == 2 and failures(verdict) == {
        "every node answers": [
            "c does not answer: correct the error shown above, and run verify.yml again"
        ]
    }
    assert list(not_run(verdict)) == [TCP, "clocks", LIMIT]


@pytest.mark.parametrize(
    "change, count", [(put("wanted", "ssh", False), 1), (put("wanted", "met", False), 3)]
)
def test_disabled_checks_are_not_run(change, count):
    verdict = judged(change)
    assert verdict["ok"] and len(not_run(verdict)) == count


def test_ports_without_a_firewall_are_listed_as_not_run():
    def change(answers, reports, wanted):
        answers["a"]["ports_open"] = answers["b"]["ports_open"] = "no root"
        answers["c"]["ports_open"] = ""

    verdict = judged(change)
    assert verdict["ok"] and list(not_run(verdict).values()) == [["a, b: no root"]]


def test_libraries_are_compared_among_nodes_of_the_same_build():
    """Nodes with GPUs have another library than nodes without; the verdict includes their GPUs."""
    # Without "sass", as in a record of an older mxcluster.
    cuda = {name: value for name, value in test_gpus.WANTED.items() if name != "sass"}

    def change(answers, reports, wanted):
        for host in "bc":
            wanted["nodes"][host] = {"build": "cu92", "cuda": cuda}
            answers[host]["mxnet"]["libmxnet"] = "b" * 64
            answers[host]["gpus"] = test_gpus.WELL

    verdict = judged(change)
    assert verdict["ok"] and failures(verdict) == {}
    assert "MXNet computes on every GPU" in failures(verdict, "ok")

    def differ(answers, reports, wanted):
        change(answers, reports, wanted)
        answers["c"]["mxnet"]["libmxnet"] = "c" * 64

    assert failures(judged(differ)) == {
        "the same libmxnet.so": [
            "the nodes differ (b: bbbbbbbbbbbb; c: cccccccccccc): run provision.yml without --limit"
        ]
    }


def test_an_answer_without_gpu_facts_is_reported():
    """Without the line, the verdict would pass without any check of the node's GPUs."""

    def change(answers, reports, wanted):
        for host in "ab":
            wanted["nodes"][host]["cuda"] = {"version": "9.2", "folder": "/usr/local/cuda-9.2"}

    verdict = judged(change)
    (why,) = not_run(verdict)["GPUs"]
    assert why.startswith("a, b: ") and "run provision.yml" in why and verdict["ok"]
