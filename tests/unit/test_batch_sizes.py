"""Batch sizes follow the speeds: sums, bounds, dead band, turning back, ranges of samples."""

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from mxcluster import batch_sizes
from mxcluster.errors import BadInput

speeds = some.floats(min_value=1e-3, max_value=1e6)


@some.composite
def jobs(draw):
    """Return (speeds, B W, least, most), for which some sizes exist."""
    count = draw(some.integers(1, 12))
    bounds = draw(
        some.lists(
            some.tuples(some.integers(1, 40), some.integers(0, 200)), min_size=count, max_size=count
        )
    )
    least, most = [low for low, _ in bounds], [low + more for low, more in bounds]
    total = draw(some.integers(sum(least), sum(most)))
    return draw(some.lists(speeds, min_size=count, max_size=count)), total, least, most


@pytest.mark.slow
@given(jobs())
def test_sizes_within_the_bounds_are_in_proportion(job):
    """Sizes that no bound cuts have one factor; a cut size would be beyond its bound with it."""
    weights, total, least, most = job
    sizes = batch_sizes.divide(weights, total, least, most)
    assert sum(sizes) == total
    assert all(low <= size <= high for size, low, high in zip(sizes, least, most))
    free = [i for i in range(len(sizes)) if least[i] < sizes[i] < most[i]]
    for one in free:
        for other in range(len(sizes)):
            # The sizes of two free workers differ from their proportion by their rounding only.
            wanted = (sizes[one] + 1) * weights[other] / weights[one] + 1.001
            assert sizes[other] <= max(wanted, least[other]), (one, other, sizes)


def test_sizes_by_hand():
    def divide(weights, total, least=1, most=None):
        count = len(weights)
        return batch_sizes.divide(weights, total, [least] * count, [most or total] * count)

    assert divide([3.0, 1.0], 64) == [48, 16]
    assert divide([1, 1, 1], 10) == [4, 3, 3]  # a tie: the lower index
    assert divide([1, 1, 4], 9) == [2, 1, 6]
    assert divide([1000, 1, 1], 30) == [28, 1, 1]  # at least one sample
    assert divide([4, 2, 1, 1], 64, most=20) == [20, 20, 12, 12]  # the others share the rest
    assert divide([4, 3, 1], 30, least=6, most=14) == [14, 10, 6]


@pytest.mark.parametrize(
    "total,least,most,words",
    [
        (1, [1, 1], [1, 1], "a step has 1 samples for 2 workers"),
        (8, [5, 1], [4, 8], "worker 0 has the lower bound 5 and the upper bound 4"),
        (8, [5, 5], [8, 8], "at least 10 and at most 16: use a larger batch_size"),
    ],
)
def test_impossible_bounds_are_refused(total, least, most, words):
    with pytest.raises(BadInput, match=words):
        batch_sizes.divide([1] * len(least), total, least, most)


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.nan, math.inf])
def test_a_speed_that_is_no_number_above_0_is_refused_with_the_workers_name(wrong):
    with pytest.raises(BadInput, match="^worker-1 measured a speed of %s samples/s" % wrong):
        follow([32, 32], [100.0, wrong])


def follow(sizes, *rounds, least=None, most=None):
    """Return the State after some rounds of speeds."""
    state, count = batch_sizes.start(sizes), len(sizes)
    for each in rounds:
        state = batch_sizes.follow(state, each, least or [1] * count, most or [sum(sizes)] * count)
    return state


def test_sizes_follow_the_speeds_at_once():
    assert follow([32, 32], [300.0, 100.0]).sizes == (48, 16)
    assert follow([32] * 4, [100, 100, 50, 25]).sizes == (47, 46, 23, 12)


def test_bounds_hold_while_sizes_follow():
    assert follow([32, 32], [900.0, 100.0], most=[40, 64]).sizes == (40, 24)
    assert follow([32, 32], [6300.0, 100.0], least=[1, 4]).sizes == (60, 4)


def test_small_differences_change_nothing():
    first = batch_sizes.start([100, 100])
    bounds = [1, 1], [200, 200]
    assert batch_sizes.follow(first, [104.9, 95.1], *bounds) is first
    assert batch_sizes.follow(first, [105.1, 94.9], *bounds).sizes == (105, 95)
    # Half a sample is more than 5 % of 8, and comes from rounding.
    small = batch_sizes.start([8, 8])
    assert batch_sizes.follow(small, [8.7, 7.3], [1, 1], [16, 16]) is small
    assert batch_sizes.follow(small, [8.8, 7.2], [1, 1], [16, 16]).sizes == (9, 7)


def test_a_size_that_turns_back_goes_half_as_far_and_recovers():
    state = follow([32, 32], [300.0, 100.0], [100.0, 100.0])
    assert state.sizes == (40, 24)  # half of the way from 48 to 32
    assert state.steps == (Fraction(1, 2),) * 2
    bounds = [1, 1], [64, 64]
    state = batch_sizes.follow(state, [100.0, 100.0], *bounds)
    assert state.sizes == (32, 32) and state.steps == (1, 1)  # on in the same direction


@settings(max_examples=50)
@given(
    some.lists(
        some.tuples(some.floats(0.0, 0.2), some.floats(0.0005, 0.01)), min_size=2, max_size=8
    )
)
def test_sizes_settle_where_all_batches_take_the_same_time(workers):
    """A batch of b samples takes a + c b seconds, as on a GPU below its saturation."""
    count, total = len(workers), 64 * len(workers)
    state = batch_sizes.start([64] * count)

    def seconds(sizes):
        return [fixed + each * size for (fixed, each), size in zip(workers, sizes)]

    def round_of(state):
        measured = [size / time for size, time in zip(state.sizes, seconds(state.sizes))]
        return batch_sizes.follow(state, measured, [1] * count, [total] * count)

    before = max(seconds(state.sizes))
    for _ in range(30):
        state = round_of(state)
    assert round_of(state).sizes == state.sizes
    assert sum(state.sizes) == total
    # A sample of a slow worker may take longer than the difference between the workers.
    assert max(seconds(state.sizes)) <= before * 1.06 + max(each for _, each in workers)


@given(some.lists(some.integers(1, 300), min_size=1, max_size=12), some.integers(1, 5000))
def test_an_epoch_has_all_samples_once_and_equal_numbers_of_batches(sizes, samples):
    try:
        ranges, (batches, *others), repeated = batch_sizes.epoch_of(
            sizes, samples, [range(len(sizes))], [1]
        )
    except BadInput as refusal:
        assert "would get none of the %d training samples" % samples in str(refusal)
        return
    assert ranges[0][0] == 0 and ranges[-1][1] == samples
    assert all(first[1] == second[0] for first, second in zip(ranges, ranges[1:]))
    assert batches == math.ceil(samples / sum(sizes)) and set(others) <= {batches}
    for (begin, end), size, more in zip(ranges, sizes, repeated):
        assert 0 < end - begin <= batches * size and more == batches * size - (end - begin)


def test_the_epoch_of_unequal_sizes():
    both = [[0, 1]], [1]
    assert batch_sizes.epoch_of([48, 16], 1437, *both) == (
        [(0, 1078), (1078, 1437)],
        [23, 23],
        [26, 9],
    )
    with pytest.raises(BadInput, match="worker 1 has 1 of the 64 samples of a step"):
        batch_sizes.epoch_of([63, 1], 20, *both)


def test_each_group_keeps_its_part_of_an_epoch():
    """Groups {0, 2} and {1, 3} have 3/4 and 1/4 of the data, whatever the sizes of the others."""
    groups = [[0, 2], [1, 3]], [Fraction(3, 4), Fraction(1, 4)]
    ranges, batches, repeated = batch_sizes.epoch_of([48, 20, 16, 44], 800, *groups)
    assert ranges == [(0, 450), (600, 663), (450, 600), (663, 800)]
    assert batches == [10, 4, 10, 4] and repeated == [30, 17, 10, 39]
    again, counts, _ = batch_sizes.epoch_of([32, 20, 32, 44], 800, *groups)
    assert counts == batches and again[1::2] == ranges[1::2] and again[0] == (0, 300)
    with pytest.raises(BadInput, match="worker 3 has 1 of the 64 samples of a step, and would"):
        batch_sizes.epoch_of([48, 63, 16, 1], 80, *groups)


@pytest.mark.parametrize("batches", [1, 2, 3, 16, 17, 18, 100, 1000])
def test_the_measured_steps_of_an_epoch(batches):
    steps = batch_sizes.measured_steps(batches)
    assert steps == sorted(set(steps)) and set(steps) <= set(range(batches))
    assert len(steps) == max(1, min(batches - 1, batch_sizes.MOST_MEASURED))
    assert batches == 1 or 0 not in steps


def test_a_speed_is_the_size_by_the_average_of_the_seconds():
    speed = batch_sizes.Speed(32)
    assert math.isnan(speed.value())
    speed.add(0.1)
    assert speed.value() == pytest.approx(320)
    speed.add(0.2)
    assert speed.value() == pytest.approx(32 / 0.12)
    speed.resize(32)
    assert speed.value() == pytest.approx(32 / 0.12)
    speed.resize(64)  # The speed of the other size counts until the first measurement.
    assert speed.value() == pytest.approx(32 / 0.12)
    speed.add(0.5)
    assert speed.value() == pytest.approx(128)


def test_under_a_quota_the_cpu_time_of_a_whole_step_counts():
    """The bursts of a worker that waits for others look four times as fast as it is."""
    speed = batch_sizes.Speed(32)
    for seconds in (0.5, 0.3):
        speed.add(0.1)
        speed.add_quota(seconds)
    assert speed.value() == pytest.approx(32 / 0.4)
    speed.add(2.0)
    assert speed.value() == pytest.approx(32 / (0.2 * 2.0 + 0.8 * 0.1)), "the longer one counts"
    speed.resize(64)
    speed.add(0.1)
    assert speed.value() == pytest.approx(640), "the steps of another size do not count"


def test_sizes_as_text():
    assert batch_sizes.shown([48, 16]) == "48/16"
    assert batch_sizes.shown([4] * 8 + [48]) == "4-48"
