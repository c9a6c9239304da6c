"""The lines of the terminal."""

import pytest

from mxcluster.ansible.terminal import lines

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
    assert lines.role("mxnet", outcomes, 12.2) == expected


def test_a_line_names_at_most_eight_hosts():
    many = ["node%d" % number for number in range(20)]
    assert lines.hosts(many).endswith("node7 and 12 more")
    failed = lines.Failed("TASK [x]", "fatal: %s: FAILED!", ("full",), "red")
    assert lines.failure(failed, many).endswith("[node7] and 12 more: FAILED!\n  full")


def test_a_failure_is_shown_once_for_all_its_hosts():
    failed = lines.Failed("TASK [x]", "failed: %s (item=%s)", ("a", "  b"), "red")
    assert lines.failure(failed, ["n1", "n2"]) == "failed: [n1], [n2] (item=%s)\n  a\n    b"


def test_the_live_line_of_a_task():
    assert lines.step("mxnet", "Build it", 1, 4, 94) == (
        "mxnet            Build it  1 of 4 nodes  1:34"
    )
    assert lines.step("", "Plan the job", 0, 1, 3) == "Plan the job  0:03"


def test_a_message_names_its_hosts_once():
    assert lines.message(["a", "b"], ["one", "two"]) == ["a, b: one", "two"]
    assert lines.message([], ["\x1b[2Jone"]) == ["one"], "no control sequences"


def test_the_closing_line_names_failed_hosts():
    assert lines.closing("provision.yml", [], 72) == "OK        provision.yml   1:12"
    assert lines.closing("provision.yml", ["b", "a"], 72) == (
        "FAILED    provision.yml on a, b   1:12"
    )
