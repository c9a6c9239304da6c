"""The watch over the other processes, with ps-lite's answers and the clocks given."""
import pathlib
import socket

import pytest

from mxcluster import watch


class Ended(Exception):
    """The process would have ended."""


class World:
    """The clocks, and how many processes ps-lite takes for dead at each second (a function of the time)."""

    def __init__(self, monkeypatch, dead, jumps):
        self.ticks, self.jump, self.dead, self.jumps = 1000.0, 0.0, dead, dict(jumps)
        monkeypatch.setattr(watch, "time", self)
        self.begins = 0.0
        monkeypatch.setattr(watch, "has_begun", lambda: self.ticks - 1000.0 >= self.begins)
        monkeypatch.setattr(watch, "dead_nodes", self.dead_nodes)
        monkeypatch.setattr(watch, "_end", self.end)

    def monotonic(self):
        return self.ticks

    def time(self):
        return 5e8 + self.ticks + self.jump

    def dead_nodes(self, handle, timeout, group=7):
        assert self.ticks - 1000.0 >= self.begins, "ps-lite would end the process"
        return 1 if timeout < 0 else self.dead(self.ticks - 1000.0)

    def wait(self, seconds):
        """Stands in for the event that `stop` sets."""
        self.ticks += seconds
        self.jump += self.jumps.pop(self.ticks - 1000.0, 0.0)
        return self.ticks >= 1060.0

    def end(self, why):
        raise Ended(self.ticks - 1000.0)


def seconds_until_the_end(monkeypatch, dead, **jumps):
    world = World(monkeypatch, dead, {float(name[1:]): jump for name, jump in jumps.items()})
    made = watch.Watch(None, 5)
    made._ended = world
    try:
        made.run()
    except Ended as end:
        return end.args[0]
    return None


@pytest.mark.parametrize("told, seconds", [(None, 600.0), ("60", 135.0), ("0", 0)])
def test_it_waits_for_others_until_their_agents_have_named_who_is_late(monkeypatch, told, seconds):
    monkeypatch.setenv("MXCLUSTER_START_TIMEOUT", told) if told else monkeypatch.delenv("MXCLUSTER_START_TIMEOUT", False)
    assert watch.start_seconds() == seconds


def test_ps_lite_is_asked_only_once_it_listens(monkeypatch):
    """On a busy machine it takes seconds until then."""
    world = World(monkeypatch, lambda now: 0, {})
    world.begins = 20.0
    made = watch.Watch(None, 5)
    made._ended = world
    made.run()
    monkeypatch.undo()
    with socket.socket() as listener:
        listener.bind(("127.0.0.31", 0))
        monkeypatch.setenv("DMLC_NODE_HOST", "127.0.0.31")
        monkeypatch.setenv("PORT", str(listener.getsockname()[1]))
        assert not watch.has_begun()
        listener.listen(1)
        assert watch.has_begun()


def test_two_readings_in_a_row_end_the_process(monkeypatch):
    assert seconds_until_the_end(monkeypatch, lambda now: 10 <= now < 11) is None
    assert seconds_until_the_end(monkeypatch, lambda now: now >= 10) == 11


@pytest.mark.parametrize("jump", [3600.0, 7.0])
def test_a_clock_that_is_set_forward_ends_nothing(monkeypatch, jump):
    """All look silent until their next heartbeats have come, which may take two readings."""
    assert seconds_until_the_end(monkeypatch, lambda now: 10 <= now < 13, t10=jump) is None


def test_a_process_that_is_gone_is_missed_after_the_clock_was_set_too(monkeypatch):
    assert seconds_until_the_end(monkeypatch, lambda now: now >= 10, t10=3600.0) == 16
    assert seconds_until_the_end(monkeypatch, lambda now: now >= 10, t10=-3600.0) == 11


@pytest.mark.parametrize("part", ["kvstore", "programs"])
def test_durations_are_measured_by_a_clock_that_nobody_sets(part):
    """A speed would be negative, and no progress would be told for as long as the clock was set back."""
    files = list(pathlib.Path(watch.__file__).parent.joinpath(part).rglob("*.py"))
    assert files and not [str(path) for path in files if "time.time()" in path.read_text()]
