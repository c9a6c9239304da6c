"""Tests of the ratio of two jobs that train in turns."""

import random

from bench import kvstore


def test_a_change_of_the_machine_leaves_the_ratio_as_it_is():
    speeds = [1.0 + 0.1 * index for index in range(15)]
    assert kvstore.ratio([[[1.5 * one for one in speeds], speeds]]) == (1.5, 1.5, 1.5)


def test_the_interval_contains_the_ratio_and_shrinks_with_the_noise():
    draws, widths = random.Random(1), []
    for noise in (0.2, 0.02):
        sides = [[1 + draws.uniform(-noise, noise) for _ in range(30)] for _ in range(2)]
        found, begin, end = kvstore.ratio([sides])
        assert begin <= found <= end and begin < 1 < end
        widths.append(end - begin)
    assert widths[0] > 5 * widths[1]


def test_the_interval_knows_that_starts_differ():
    """Each start is exact, but two of the same code differ by a tenth."""
    starts = [[[1.0 + 0.1 * (number % 2)] * 6, [1.0] * 6] for number in range(8)]
    _, begin, end = kvstore.ratio(starts)
    assert begin == 1.0 and end == 1.1
