"""Padded steps and their measured seconds; the tests replace MXNet's Module and the clock."""

import pytest

from mxcluster.model.program_arguments import ProgramArguments
from mxcluster.training.programs.image_classification import pace


class Array:
    def __init__(self, log, name):
        self.log, self.name = log, name

    def wait_to_read(self):
        self.log.append(self.name)


class Module:
    """A Module whose pass takes 0.1 s on the clock."""

    def __init__(self, clock):
        self.log, self.clock, self._exec_group = [], clock, self
        self.param_arrays = [[Array(self.log, "weight")]]
        self.grad_arrays = [[Array(self.log, "gradient"), None], None]

    def forward_backward(self, batch):
        self.log.append(batch)
        self.clock.now += 0.1

    def get_outputs(self):
        return [Array(self.log, "output")]


class Clock:
    def __init__(self):
        self.now, self.slept = 50.0, []

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(pace, "time", clock)
    return clock


def test_a_step_without_pads_is_only_measured(clock):
    module = Module(clock)
    steps = pace.Pace(module)
    assert not steps.pads and steps.run("batch", 32) == pytest.approx(0.1)
    # The wait for the weights comes before the pass, the wait for the gradients belongs to it.
    assert module.log == ["weight", "batch", "output", "gradient"]
    assert clock.slept == [] and steps.late == 0


def test_a_slow_worker_takes_a_multiple_of_its_own_time(clock):
    steps = pace.Pace(Module(clock), pace.Slowdown(3.0))
    assert steps.pads and steps.run("batch", 32) == pytest.approx(0.3)
    assert clock.slept == [pytest.approx(0.2)] and steps.late == 0


@pytest.mark.parametrize("samples,seconds", [(32, 0.4), (16, 0.2), (48, 0.6)])
def test_a_least_time_is_in_proportion_to_the_samples(clock, samples, seconds):
    """step_ms=200 for 32 samples, slowdown=2."""
    steps = pace.Pace(Module(clock), pace.Slowdown(2.0), 0.2 / 32)
    assert steps.pads and steps.run("batch", samples) == pytest.approx(seconds)


def test_a_step_that_takes_longer_than_planned_is_counted(clock):
    steps = pace.Pace(Module(clock), sample_seconds=0.05 / 32)
    assert steps.run("batch", 32) == pytest.approx(0.1) and clock.slept == [] and steps.late == 1
    steps.run("batch", 128)  # 0.2 s are enough
    assert steps.late == 1 and not pace.Pace(Module(clock)).pads


def test_the_speed_of_a_worker_changes_with_the_time_since_its_first_pass(clock):
    steps = pace.Pace(Module(clock), pace.Slowdown(2.0, [1, 2], every=10.0), 0.2 / 32)
    assert steps.pads and steps.run("batch", 32) == pytest.approx(0.4)
    clock.now = 50 + 9.9
    assert steps.run("batch", 32) == pytest.approx(0.4), "the factor at the begin counts"
    clock.now = 50 + 10.1
    assert steps.run("batch", 32) == pytest.approx(0.8)
    clock.now = 50 + 20.1
    assert steps.run("batch", 32) == pytest.approx(0.4), "the factors begin again"


def test_each_worker_changes_its_speed_at_its_own_times():
    def changes(worker):
        slowdown = pace.Slowdown(1.0, [1, 2], 10.0, worker)
        factors = [slowdown.at(tenth / 10) for tenth in range(200)]
        assert sorted(factors) == [1.0] * 100 + [2.0] * 100, "as long fast as slow"
        return [time for time in range(1, 200) if factors[time] != factors[time - 1]]

    times = sorted(time for worker in range(4) for time in changes(worker))
    assert min(later - time for time, later in zip(times, times[1:])) > 20, "2 s, of 20 s for all"
    assert pace.Slowdown(1.0, [1, 2], 10.0, 3).at(5) == pace.Slowdown(1.0, [1, 2], 10.0, 3).at(25)


def test_the_arguments_of_the_program_describe_the_slowdown():
    args = ProgramArguments(slowdown=1.5, slowdown_changes=[2.0, 1.0], slowdown_every=3.0)
    slowdown = pace.slowdown_of(args, 0)
    assert [slowdown.at(seconds) for seconds in (0, 2.9, 3, 6)] == [3.0, 3.0, 1.5, 3.0]
    assert not pace.slowdown_of(ProgramArguments(), 3).slows
