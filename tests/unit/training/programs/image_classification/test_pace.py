"""Padded steps and their measured seconds; the tests replace MXNet's Module and the clock."""

import pytest

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
    steps = pace.Pace(Module(clock), slowdown=3.0)
    assert steps.pads and steps.run("batch", 32) == pytest.approx(0.3)
    assert clock.slept == [pytest.approx(0.2)] and steps.late == 0


@pytest.mark.parametrize("samples,seconds", [(32, 0.4), (16, 0.2), (48, 0.6)])
def test_a_least_time_is_in_proportion_to_the_samples(clock, samples, seconds):
    """step_ms=200 for 32 samples, slowdown=2."""
    steps = pace.Pace(Module(clock), 2.0, 0.2 / 32)
    assert steps.pads and steps.run("batch", samples) == pytest.approx(seconds)


def test_a_step_that_takes_longer_than_planned_is_counted(clock):
    steps = pace.Pace(Module(clock), sample_seconds=0.05 / 32)
    assert steps.run("batch", 32) == pytest.approx(0.1) and clock.slept == [] and steps.late == 1
    steps.run("batch", 128)  # 0.2 s are enough
    assert steps.late == 1 and not pace.Pace(Module(clock)).pads
