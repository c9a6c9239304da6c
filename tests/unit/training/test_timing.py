"""The median of repeated steps."""

from mxcluster.training import timing


class Clock:
    """A clock that the steps move on."""

    def __init__(self, steps):
        self.now, self.steps = 100.0, iter(steps)

    def step(self):
        self.now += next(self.steps)

    def __call__(self):
        return self.now


def test_equal_steps_are_measured_the_least_number_of_times():
    clock = Clock([0.5] * 100)
    assert timing.repeat(clock.step, 60, clock=clock) == [0.5] * timing.LEAST_STEPS


def test_uneven_steps_are_repeated_until_the_time_is_up():
    clock = Clock([0.1, 0.3] * 1000)
    times = timing.repeat(clock.step, 2, clock=clock)
    assert len(times) == 11 and sum(times) > 2


def test_a_quick_step_is_not_repeated_for_ever():
    clock = Clock([1e-6, 3e-6] * 10000)
    assert len(timing.repeat(clock.step, 60, clock=clock)) <= timing.MOST_STEPS


def test_processes_that_measure_together_go_on_to_the_end():
    clock = Clock([0.25] * 10000)
    assert len(timing.repeat(clock.step, 10, whole=True, clock=clock)) == 41
    clock = Clock([0.001] * 10000)
    assert len(timing.repeat(clock.step, 3, whole=True, clock=clock)) > 2 * timing.MOST_STEPS


def test_slow_steps_are_repeated_even_when_the_time_is_up():
    clock = Clock([10.0, 20.0] * 10)
    assert len(timing.repeat(clock.step, 1, clock=clock)) == timing.LEAST_STEPS
