"""The lines of the terminal."""

import pytest

from mxcluster.ansible.terminal import lines
from mxcluster.ansible.terminal.transfers import Bytes

FOUR = ["node1", "node2", "node3", "node4"]


@pytest.mark.parametrize(
    "outcomes, expected",
    [
        (dict.fromkeys(FOUR, "ok"), "mxnet            4 nodes: 4 ok   0:12"),
        (
            dict(dict.fromkeys(FOUR, "ok"), node4="changed"),
            "mxnet            4 nodes: 3 ok, 1 changed (node4)   0:12",
        ),
        (dict.fromkeys(FOUR, "changed"), "mxnet            4 nodes: 4 changed   0:12"),
        (
            {"a": "skipped", "b": "failed", "c": "unreachable"},
            "mxnet            3 nodes: 1 skipped, 1 failed (b), 1 unreachable (c)   0:12",
        ),
    ],
)
def test_a_role_names_the_hosts_with_another_outcome(outcomes, expected):
    assert lines.role("mxnet", outcomes, 12.2, 80) == expected


def test_a_role_names_the_hosts_that_fit_into_the_line():
    outcomes = {"node%02d" % number: "changed" for number in range(12)}
    outcomes["node00"] = "ok"
    for columns, named in ((160, 8), (80, 2), (40, 1)):
        line = lines.role("mxnet", outcomes, 12.2, columns)
        assert (
            line.count("node0") + line.count("node1") == named
            and "and %d more" % (11 - named) in line
        )
        assert len(line) <= columns or named == 1


def test_a_line_names_at_most_eight_hosts():
    many = ["node%d" % number for number in range(20)]
    assert lines.hosts(many).endswith("node7 and 12 more")
    failed = lines.Failed("TASK [x]", "fatal: %s: FAILED!", ("full",), "red")
    assert lines.failure(failed, many).endswith("[node7] and 12 more: FAILED!\n  full")


def test_a_failure_is_shown_once_for_all_its_hosts():
    failed = lines.Failed("TASK [x]", "failed: %s (item=%s)", ("a", "  b"), "red")
    assert lines.failure(failed, ["n1", "n2"]) == "failed: [n1], [n2] (item=%s)\n  a\n    b"


def step(columns, title="mxnet", left="bcd", hosts=4, throttled=False, transfer=None):
    running = lines.Step(title, "Build the environment", hosts, left, throttled, transfer, 94)
    return lines.step(running, columns)


def test_the_live_line_of_a_task():
    assert step(80) == "mxnet            Build the environment  1 of 4 nodes  1:34"
    assert step(80, title="", hosts=1, left="a") == "Build the environment  1:34"


@pytest.mark.parametrize(
    "hosts, left, throttled, expected",
    [
        (4, "abcd", False, "0 of 4 nodes"),
        (4, "c", False, "3 of 4 nodes, not c"),
        (4, "", False, "4 of 4 nodes"),
        (10, "abcdefgh", True, "2 nodes done, 8 at work"),
    ],
)
def test_the_live_line_counts_nodes(hosts, left, throttled, expected):
    assert step(80, "", left, hosts, throttled) == ("Build the environment  %s  1:34" % expected)


@pytest.mark.parametrize(
    "columns, expected",
    [
        (58, "mxnet            Build the environment  1 of 4 nodes  1:34"),
        (57, "Build the environment  1 of 4 nodes  1:34"),
        (39, "Build the environm…  1 of 4 nodes  1:34"),
        (21, "…  1 of 4 nodes  1:34"),
    ],
)
def test_a_narrow_terminal_keeps_the_figures_of_the_live_line(columns, expected):
    assert step(columns) == expected


@pytest.mark.parametrize(
    "transfer, expected",
    [
        (Bytes(312400000, 0), "312 MB"),
        (Bytes(312400000, 1628000000), "312 of 1,628 MB"),
        (Bytes(300000, 9500000), "0.3 of 9.5 MB"),
        (Bytes(312400000, 861000000, 1), "1 copy: 312 of 861 MB"),
        (Bytes(432000000, 1722000000, 2), "2 copies: 432 of 1,722 MB"),
    ],
)
def test_the_live_line_of_a_transfer(transfer, expected):
    assert step(99, title="", transfer=transfer) == (
        "Build the environment  %s  1 of 4 nodes  1:34" % expected
    )


def test_a_message_names_its_hosts_once():
    assert lines.message(["a", "b"], ["one", "two"], 80) == ["a, b: one", "two"]
    assert lines.message([], ["\x1b[2Jone"], 80) == ["one"], "no control sequences"
    assert lines.message(["node1", "node2", "node3"], ["new"], 20) == ["node1 and 2 more: new"]


def test_the_closing_line_names_failed_hosts_and_what_to_do():
    assert lines.closing("provision.yml", [], "a.log", 72) == ["OK        provision.yml   1:12"]
    assert lines.closing("provision.yml", ["b", "a"], "a.log", 72) == [
        "FAILED    provision.yml on a, b   1:12",
        "next      correct the cause, and run provision.yml again: it repeats unfinished steps",
        "log       a.log",
    ]
    assert len(lines.closing("provision.yml", ["b"], "", 72)) == 2
