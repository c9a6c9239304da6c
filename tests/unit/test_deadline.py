"""Steps that end at a common deadline: decisions, T, small batches, passes; a simulated cluster."""

import collections
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as some

from mxcluster import deadline
from mxcluster.deadline import State, Walk
from mxcluster.errors import BadInput

times = some.floats(min_value=1e-4, max_value=1e4)


@given(some.integers(1, 50), times, times, times)
def test_a_worker_begins_another_batch_if_its_end_is_nearer_to_the_deadline(
    done, elapsed, expected, seconds
):
    begins = deadline.goes_on(done, elapsed, expected, seconds, 1)
    farther, nearer = abs(elapsed + expected - seconds), abs(elapsed - seconds)
    if abs(farther - nearer) > 1e-9 * (elapsed + expected + seconds):
        assert begins == (farther < nearer)


def test_a_worker_runs_at_least_one_batch_and_the_planned_ones_without_a_deadline():
    assert deadline.goes_on(0, 9.0, 5.0, 1.0, 1)
    assert [deadline.goes_on(done, 99.0, 0.0, None, 3) for done in range(5)] == [True] * 3 + [
        False
    ] * 2


def test_small_batches_are_a_sixteenth_of_a_step_within_their_bounds():
    assert deadline.small_sizes([160, 24, 23, 7, 1], [1] * 5, [999] * 5) == [10, 2, 1, 1, 1]
    assert deadline.small_sizes([160, 16], [8, 8], [9, 99]) == [9, 8]
    assert [deadline.planned_batches(16, small) for small in (1, 3, 4, 8, 16, 99)] == [
        *(16, 5, 4, 2, 1, 1)
    ]


def test_the_deadline_is_the_time_of_a_step_at_the_smoothed_speeds():
    state = deadline.heard(deadline.start(2), 60, [0.05, 0.1])
    assert state == State((20.0, 10.0), pytest.approx(2.0))
    state = deadline.heard(state, 60, [0.05, 0.05])
    assert state.speeds == (20.0, pytest.approx(0.2 * 20 + 0.8 * 10))
    assert state.seconds == pytest.approx(60 / 32)
    # A worker that has measured nothing keeps its speed.
    assert deadline.heard(state, 60, [0.0, 0.0]).speeds == state.speeds


def test_there_is_no_deadline_before_all_speeds_are_known():
    state = deadline.heard(deadline.start(3), 60, [0.05, 0.0, 0.1])
    assert state == State((20.0, 0.0, 10.0), None)
    assert deadline.heard(state, 60, [0.05, 0.1, 0.1]).seconds == pytest.approx(1.5)


@pytest.mark.slow
@given(some.lists(some.lists(times, min_size=3, max_size=3), min_size=1, max_size=20))
def test_the_deadline_changes_by_a_factor_of_at_most_two(steps):
    state = deadline.start(3)
    for per_sample in steps:
        before, state = state, deadline.heard(state, 96, per_sample)
        if before.seconds is not None:
            assert before.seconds / 2 <= state.seconds <= 2 * before.seconds


def test_the_same_numbers_give_the_same_bits_on_any_python():
    """sum() rounds differently from Python 3.12 on; these bits are those of the exact sum."""
    state = deadline.heard(deadline.start(10), 1, [10.0] * 10)
    assert struct.pack(">d", state.seconds).hex() == struct.pack(">d", 1.0).hex()
    total = 0.0
    for speed in state.speeds:
        total += speed
    assert total != 1.0, "a sum from left to right has other bits"


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -0.5])
def test_impossible_seconds_name_their_worker(wrong):
    with pytest.raises(BadInput, match="worker-7 measured"):
        deadline.heard(deadline.start(2), 60, [0.1, wrong], [4, 7])


def test_the_first_batch_of_a_size_does_not_count():
    cost = deadline.Cost()
    cost.add(9.0, 2)
    assert cost.of(2) == 0 and cost.take() == 0
    cost.add(1.0, 2)
    assert cost.of(2) == 1.0 and cost.take() == 0.5
    cost.resize()
    cost.add(99.0, 4)
    assert cost.of(4) == 2.0 and cost.take() == 0.5, "the expected seconds without a measurement"
    cost.add(4.0, 4)
    cost.add(2.0, 4)
    assert cost.take() == pytest.approx(6.0 / 8), "the mean of all since the last call"
    assert cost.of(4) == pytest.approx((0.5 * 3 + 0.5 * 2) * 1.0)


def test_the_remainder_is_the_wait_for_the_last_end():
    counts, per_sample = [20, 10, 4], [0.05, 0.11, 0.25]
    found = [deadline.remainder(counts, per_sample, place) for place in range(3)]
    assert found == [pytest.approx(0.1), 0, pytest.approx(0.1)]


def test_a_walk_goes_on_in_the_next_pass():
    assert deadline.walked(Walk(2, 5), 4, 10) == Walk(2, 9)
    assert deadline.walked(Walk(2, 5), 5, 10) == Walk(3, 0)
    assert deadline.walked(Walk(2, 5), 27, 10) == Walk(5, 2)
    assert deadline.anew(Walk(2, 5)) == Walk(3, 0) and deadline.anew(Walk(3, 0)) == Walk(3, 0)


class Worker:
    """A worker of a simulated cluster, with a clock of its own in each step."""

    def __init__(self, seconds_of):
        self.seconds_of = seconds_of  # of a sample, by the time since the begin of the job
        self.cost = deadline.Cost()

    def step(self, begin, state, planned, small):
        """Return (samples, seconds for a sample, seconds of the step, seconds of each batch)."""
        batches, elapsed, told = [], 0.0, None
        while told is None and self._goes_on(len(batches), elapsed, state, planned, small):
            expected = self.cost.of(small)
            if not self._goes_on(len(batches) + 1, elapsed + expected, state, planned, small):
                told = self.cost.take()
            batches.append(small * self.seconds_of(begin + elapsed))
            elapsed += batches[-1]
            self.cost.add(batches[-1], small)
        told = self.cost.take() if told is None else told
        return small * len(batches), told, elapsed, batches

    def _goes_on(self, done, elapsed, state, planned, small):
        count = deadline.planned_batches(planned, small)
        return deadline.goes_on(done, elapsed, self.cost.of(small), state.seconds, count)


Simulated = collections.namedtuple("Simulated", "begin seconds deadline counts longest remainders")


def simulate(workers, batch_size, smalls, steps):
    """Return what each of `steps` steps of a cluster without a network does, as Simulated."""
    total, now, found = batch_size * len(workers), 0.0, []
    state = deadline.start(len(workers))
    for _ in range(steps):
        done = [
            worker.step(now, state, batch_size, small) for worker, small in zip(workers, smalls)
        ]
        counts, told, elapsed, batches = zip(*done)
        longest = [max(each) for each in batches]
        remainders = [max(elapsed) - one for one in elapsed]
        found.append(Simulated(now, max(elapsed), state.seconds, counts, longest, remainders))
        state, now = deadline.heard(state, total, told), now + max(elapsed)
    return found


def test_unequal_workers_train_as_much_as_alone():
    """Speeds of 1, 1, 1/2 and 1/4: a step loses about half a small batch, 1/32 of T."""
    seconds = [0.01, 0.01, 0.02, 0.04]
    workers = [Worker(lambda now, one=one: one) for one in seconds]
    steps = simulate(workers, 64, [6, 6, 3, 1], 200)[20:]
    speed = sum(sum(step.counts) for step in steps) / sum(step.seconds for step in steps)
    assert speed > (1 - 2 / 32) * sum(1 / one for one in seconds)
    mean = sum(sum(step.counts) for step in steps) / len(steps)
    assert mean == pytest.approx(256, rel=0.05), "the update has the planned samples"
    lost = [one / step.deadline for step in steps for one in step.remainders]
    assert 0 < sum(lost) / len(lost) < 2 / 32


def test_a_worker_that_is_slowed_tenfold_for_five_seconds_costs_one_small_batch_a_step():
    """The others wait for one of its slow small batches at most, and it gets its samples back."""

    def slowed(now):
        return 0.1 if 5 <= now < 10 else 0.01

    workers = [Worker(lambda now: 0.01), Worker(slowed), Worker(lambda now: 0.01)]
    steps = simulate(workers, 64, [4, 4, 4], 40)
    known = [step for step in steps if step.deadline is not None]
    assert any(max(step.longest) > 0.3 for step in known), "the slow phase is in the steps"
    for step in known:
        assert step.seconds <= step.deadline + max(step.longest), step
    before = [step.counts[1] for step in known if step.begin + step.seconds < 5][-1]
    during = [step.counts[1] for step in known if 6 < step.begin < 9]
    after = [step.counts[1] for step in known if step.begin > 11][:3]
    assert before == pytest.approx(64, abs=4) and max(during) <= 16 and min(after) >= 48
    # The others go on at their speed: they wait for less than one of its small batches.
    others = [step.counts[0] for step in known if 6 < step.begin < 9]
    assert min(others) >= 64
