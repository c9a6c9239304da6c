"""Slow nodes, from the answers of nodes."""

import pytest

from mxcluster.cluster.verify import speeds
from mxcluster.model.check_answer import Checked, NodeSpeed, RendezvousReport
from mxcluster.model.cluster_speeds import ClusterSpeeds
from mxcluster.model.shapes import Wrong
from tests.unit.cluster.verify.test_verify import ANSWER, RENDEZVOUS

FAST = {"matmul": 100.0, "disk": {"write": 200.0, "read": 1000.0}}
NAMES = [check.name for check in speeds.CHECKS]


def judged(of_nodes, links=None):
    """Return (the speeds, {figure: (result, reasons)}) of {host: speed}."""
    answers = {
        host: Checked.decode(dict(ANSWER, speed=dict(FAST, **own)))
        if own is not None
        else Checked.decode(ANSWER)
        for host, own in of_nodes.items()
    }
    reports = {
        host: RendezvousReport.decode(
            dict(RENDEZVOUS, links=[dict(host=other, **one) for other, one in of_host.items()])
        )
        for host, of_host in (links or {}).items()
    }
    found = speeds.of(answers, reports, 1.0)
    lines = speeds.lines(found, answers, reports)
    return found, {name: (one.result, one.why, one.check) for name, one in zip(NAMES, lines)}


def all_pairs(hosts, rate=lambda sender, receiver: 100.0):
    return {
        receiver: {
            sender: {"received": rate(sender, receiver)} for sender in hosts if sender != receiver
        }
        for receiver in hosts
    }


def test_a_slow_node_is_named_with_its_figure_and_the_median():
    hosts = "abcd"
    links = all_pairs(hosts, lambda *ends: 10.0 if "c" in ends else 110.0)
    nodes = {host: {} for host in hosts}
    nodes["b"] = {"matmul": 69.0}
    nodes["d"] = {"disk": {"write": 20.0, "read": 701.0}}
    found, lines = judged(nodes, links)
    assert lines["matmul"][2] == "speed of matrix products, median 100 GFLOP/s"
    assert lines["matmul"][0] == "warning" and len(lines["matmul"][1]) == 1
    assert lines["matmul"][1][0].startswith(
        "b: 69 GFLOP/s, and the median of the nodes is 100 GFLOP/s: end other programs there"
    )
    assert lines["write"][1][0].startswith("d: 20 MB/s, and the median of the nodes is 200 MB/s")
    assert lines["read"][:2] == ("ok", [])
    assert [why.split(",")[0] for why in lines["bandwidth"][1]] == ["c: 10 MB/s"], lines
    assert found.medians.bandwidth == 110.0 and len(found.transfers) == 12
    assert ClusterSpeeds.decode(found.encode()) == found


def test_a_node_that_is_slow_in_one_direction_is_slow():
    links = all_pairs("abcd", lambda sender, receiver: 10.0 if sender == "c" else 100.0)
    found, lines = judged({host: {} for host in "abcd"}, links)
    assert found.nodes["c"].bandwidth == 10.0 and found.nodes["a"].bandwidth == 100.0
    assert [why.split(",")[0] for why in lines["bandwidth"][1]] == ["c: 10 MB/s"], lines


def test_a_slow_pair_of_fast_nodes_is_named():
    links = all_pairs("abcd", lambda *ends: 10.0 if ends == ("a", "b") else 100.0)
    lines = judged({host: {} for host in "abcd"}, links)[1]
    assert [why[:12] for why in lines["bandwidth"][1]] == ["a to b: 10 M"], lines


def test_a_failed_measurement_fails_and_a_missing_one_is_not_run():
    nodes = {"a": {}, "b": {"matmul": {"error": "no numpy"}, "disk": {"error": "full"}}}
    lines = judged(nodes, {"a": {"b": {"error": "timed out"}}})[1]
    for name, words in (
        ("matmul", "b: the measurement failed (no numpy)"),
        ("write", "b: the measurement failed (full)"),
        ("bandwidth", "a from b: the measurement failed (timed out)"),
    ):
        assert lines[name][0] == "failed" and words in lines[name][1][0], lines
    found, lines = judged({"a": None, "b": None})
    assert {one[0] for one in lines.values()} == {"not run"} and found.nodes == {}


@pytest.mark.parametrize(
    "change",
    [
        {"matmul": -1.0},
        {"matmul": float("nan")},
        {"matmul": 1e10},
        {"matmul": "100"},
        {"disk": {"write": 1.0}},
        {"disk": {"write": 1.0, "read": float("inf")}},
    ],
)
def test_an_impossible_figure_is_refused(change):
    with pytest.raises(Wrong):
        NodeSpeed.decode(dict(FAST, **change))


def test_figures_about_unknown_nodes_do_not_count():
    links = all_pairs("ab")
    links["a"]["evil"] = {"received": 1e9}
    found = judged({"a": {}, "b": {}}, links)[0]
    assert {one.sender for one in found.transfers} == {"a", "b"}
