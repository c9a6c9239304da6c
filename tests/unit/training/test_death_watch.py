"""The death watch, with simulated answers of ps-lite and simulated clocks."""

import pathlib
import socket

import pytest

from mxcluster.training import death_watch


class Ended(Exception):
    """The end of the process."""


class World:
    """Simulated clocks and ps-lite; `dead` gives the number of dead processes at a time."""

    def __init__(self, monkeypatch, dead, jumps):
        self.ticks, self.jump, self.dead, self.jumps = 1000.0, 0.0, dead, dict(jumps)
        monkeypatch.setattr(death_watch, "time", self)
        self.begins = 0.0
        monkeypatch.setattr(death_watch, "is_listening", lambda: self.ticks - 1000.0 >= self.begins)
        monkeypatch.setattr(death_watch, "dead_nodes", self.dead_nodes)
        monkeypatch.setattr(death_watch, "_end", self.end)

    def monotonic(self):
        return self.ticks

    def time(self):
        return 5e8 + self.ticks + self.jump

    def dead_nodes(self, handle, timeout, group=7):
        assert self.ticks - 1000.0 >= self.begins, "ps-lite would end the process"
        return 1 if timeout < 0 else self.dead(self.ticks - 1000.0)

    def wait(self, seconds):
        """Replace `wait` of the event that `stop` sets."""
        self.ticks += seconds
        self.jump += self.jumps.pop(self.ticks - 1000.0, 0.0)
        return self.ticks >= 1060.0

    def end(self, why):
        raise Ended(self.ticks - 1000.0)


def seconds_until_the_end(monkeypatch, dead, **jumps):
    world = World(monkeypatch, dead, {float(name[1:]): jump for name, jump in jumps.items()})
    made = death_watch.Watch(5)
    made.watch(object())
    made._ended = world
    try:
        made.run()
    except Ended as end:
        return end.args[0]
    return None


@pytest.mark.parametrize("timeout, seconds", [(None, 600.0), ("60", 135.0), ("0", 0)])
def test_the_start_limit_leaves_the_agents_time_to_name_a_late_process(
    monkeypatch, timeout, seconds
):
    monkeypatch.delenv("MXCLUSTER_START_TIMEOUT", False)
    if timeout:
        monkeypatch.setenv("MXCLUSTER_START_TIMEOUT", timeout)
    assert death_watch.start_seconds() == seconds


def test_the_watch_reads_ps_lite_only_when_it_listens(monkeypatch):
    """On a busy machine ps-lite needs seconds until then."""
    world = World(monkeypatch, lambda now: 0, {})
    world.begins = 20.0
    made = death_watch.Watch(5)
    made.watch(object())
    made._ended = world
    made.run()
    monkeypatch.undo()
    with socket.socket() as listener:
        listener.bind(("127.0.0.31", 0))
        monkeypatch.setenv("DMLC_NODE_HOST", "127.0.0.31")
        monkeypatch.setenv("PORT", str(listener.getsockname()[1]))
        assert not death_watch.is_listening()
        listener.listen(1)
        assert death_watch.is_listening()


def test_a_watch_without_a_kv_store_ends():
    made = death_watch.Watch(5)
    made.start()
    made.stop()
    assert not made._thread.is_alive()


def test_two_missed_readings_in_a_row_end_the_process(monkeypatch):
    assert seconds_until_the_end(monkeypatch, lambda now: 10 <= now < 11) is None
    assert seconds_until_the_end(monkeypatch, lambda now: now >= 10) == 11


@pytest.mark.parametrize("jump", [3600.0, 7.0])
def test_a_clock_set_forward_does_not_end_the_process(monkeypatch, jump):
    """All peers look silent until their next heartbeats, which may take two readings."""
    assert seconds_until_the_end(monkeypatch, lambda now: 10 <= now < 13, t10=jump) is None


def test_a_dead_process_is_noticed_after_a_clock_change(monkeypatch):
    assert seconds_until_the_end(monkeypatch, lambda now: now >= 10, t10=3600.0) == 16
    assert seconds_until_the_end(monkeypatch, lambda now: now >= 10, t10=-3600.0) == 11


@pytest.mark.parametrize("part", ["kvstore", "programs"])
def test_durations_use_the_monotonic_clock(part):
    """With the wall clock, setting it back gives negative speeds and a false stall."""
    files = list(pathlib.Path(death_watch.__file__).parent.joinpath(part).rglob("*.py"))
    assert files and not [str(path) for path in files if "time.time()" in path.read_text()]
