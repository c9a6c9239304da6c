"""The thread that shows a running task, with a display that keeps its lines."""

import threading
import time

import pytest

from mxcluster.ansible.terminal import view
from mxcluster.ansible.terminal.lines import Failed
from tests.waiting import until

DISK = Failed("TASK [mxnet : Check the disk]", "fatal: %s: FAILED!", ("delete files",), "red")


class Display:
    """Ansible's display: `shown` has its lines."""

    def __init__(self):
        self._lock, self.shown = threading.RLock(), []

    def display(self, text, color=None, screen_only=False):
        self.shown.append(text)


@pytest.fixture
def started(monkeypatch):
    """Return a function that starts a view with the given times in seconds."""
    views = []

    def start(period, gathering=1000.0):
        monkeypatch.setattr(view, "TICK", 0.02)
        monkeypatch.setattr(view, "PERIOD", period)
        monkeypatch.setattr(view, "GATHERING", gathering)
        views.append(view.View(Display(), "provision.yml", shows_roles=True))
        views[-1].begin_task("mxnet", "Build the environment", is_quiet=False, throttled=False)
        for host in ("node1", "node2", "node3"):
            views[-1].begin_host(host)
        return views[-1]

    yield start
    for one in views:
        one.end()


def test_a_ci_log_gets_a_line_for_a_step_that_still_runs(started):
    one = started(period=0.1)
    shown, first = one.display.shown, "mxnet            Build the environment  0 of 3 nodes  "
    until(lambda: len(shown) > 1)
    assert all(line.startswith(first) for line in shown), shown
    one.end_host("node1", "mxnet", "ok")
    one.end_host("node3", "mxnet", "changed")
    last = "mxnet            Build the environment  2 of 3 nodes, not node2  0:0"
    until(lambda: shown[-1].startswith(last), evidence=lambda: str(shown))


def test_a_short_step_gets_no_line_in_a_ci_log(started):
    """The last line is that of the role."""
    one = started(period=1000.0)
    one.end_host("node1", "mxnet", "ok")
    began = time.monotonic()
    until(lambda: time.monotonic() > began + 10 * view.TICK)
    one.end()
    assert one.display.shown == ["mxnet            1 node: 1 ok   0:00"]


def test_the_hosts_of_a_failure_share_a_line(started):
    one = started(period=1000.0)
    one.fail(DISK, "node1")
    one.fail(DISK, "node3")
    one.settle()
    assert one.display.shown == [DISK.heading, "fatal: [node1], [node3]: FAILED!\n  delete files"]


def test_a_failure_is_shown_while_other_hosts_go_on(started):
    one = started(period=1000.0, gathering=0.1)
    one.fail(DISK, "node1")
    until(lambda: one.display.shown)
    one.fail(DISK, "node3")
    until(lambda: len(one.display.shown) > 2)
    assert one.display.shown == [
        DISK.heading,
        "fatal: [node1]: FAILED!\n  delete files",
        "fatal: [node3]: FAILED!\n  delete files",
    ]


def test_messages_are_in_the_order_of_their_hosts(started):
    one = started(period=1000.0)
    for host, text in (("node2", "new"), ("node1", "another user"), ("node3", "new")):
        one.tell([text], host)
    one.settle()
    assert one.display.shown == ["node1: another user", "node2, node3: new"]


def test_the_display_is_ansibles_again_after_the_end(started):
    one = started(period=1000.0)
    assert "display" in vars(one.display)
    one.end()
    one.end()
    assert "display" not in vars(one.display)
