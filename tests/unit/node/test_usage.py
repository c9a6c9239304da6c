"""What processes and interfaces use, from files of the kernel."""

import os

import pytest

from mxcluster.node import processes, usage


@pytest.fixture
def card(tmp_path):
    """Return a function that makes the files of the interface eth0 in sysfs."""

    def make(**values):
        folder = tmp_path / "eth0"
        (folder / "statistics").mkdir(parents=True, exist_ok=True)
        known = dict({"flags": "0x1003", "rx_bytes": "500", "tx_bytes": "70"}, **values)
        for name, value in known.items():
            place = folder / "statistics" if name.endswith("_bytes") else folder
            (place / name).write_text(value + "\n")
        return str(tmp_path)

    return make


def test_this_process_has_used_time_and_memory():
    found = usage.of_process(os.getpid())
    assert found.cpu > 0 and found.memory > 1 << 20
    threads = usage.threads(os.getpid())
    assert not threads or os.getpid() in threads


def test_an_ended_process_uses_nothing():
    absent = 2**22 + 1  # above the largest pid
    assert usage.of_process(absent) is None
    assert usage.memory(absent) is None and usage.threads(absent) == {}


def test_an_interface_counts_its_bytes(card):
    folder = card(speed="10000")
    assert usage.traffic("eth0", folder) == (500, 70)
    assert usage.link("eth0", folder) == 1.25e9


def test_what_the_kernel_does_not_tell_is_none_and_not_0(card):
    assert usage.traffic("absent", card()) is None and usage.link("absent", card()) is None
    assert usage.traffic("", card()) is None
    for speed in ("-1", "0", "", "fast"):
        assert usage.link("eth0", card(speed=speed)) is None
    assert usage.traffic("eth0", card(rx_bytes="")) is None


def test_a_loopback_interface_belongs_to_no_node(card):
    assert usage.traffic("eth0", card(flags="0x9")) is None


def test_the_helpers_of_the_agent_belong_to_no_process():
    def line(pid, parent, session):
        return processes.Entry(pid, parent, session, session, "S", pid)

    # The agent 10 has the worker 20 with the child 21, and the helper 30.
    lines = [line(10, 1, 10), line(20, 10, 20), line(21, 20, 20), line(30, 10, 30), line(99, 1, 99)]
    roots = {"worker-0": processes.Identity(20, 20)}
    assert usage.family_of(roots, 10, lines) == ({"worker-0": [20, 21]}, [10, 30])
