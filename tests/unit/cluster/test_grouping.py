"""Groups, shares and placement from speeds, against brute force and against the definitions."""

import itertools
import random
import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxcluster.cluster import grouping

WHOLE = st.integers(1, 12).map(float)  # many ties
REAL = st.floats(0.001, 1e6)
SPEEDS = st.one_of(st.lists(WHOLE, min_size=1, max_size=9), st.lists(REAL, min_size=1, max_size=9))
NOISE = st.sampled_from([0, 0.05, 0.3])


def named(values):
    return {"w%d" % index: value for index, value in enumerate(values)}


def propose(values, noise=0.05):
    return grouping.propose(named(values), noise)


def by_speed(values, groups):
    return [[values[index] for index in group] for group in groups]


def squares(values):
    values = [Fraction(repr(float(value))) for value in values]
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values)


def best_by_force(values, count):
    """Return the best of all cuts of the sorted different speeds; the slowest groups are large."""
    different = sorted(set(values), reverse=True)
    found = []
    for inner in itertools.combinations(range(1, len(different)), count - 1):
        cuts = [0, *inner, len(different)]
        blocks = [different[begin:end] for begin, end in zip(cuts, cuts[1:])]
        groups = [[i for i, value in enumerate(values) if value in block] for block in blocks]
        inside = sum(squares(group) for group in by_speed(values, groups))
        found.append((inside, [-len(block) for block in reversed(blocks)], groups))
    return min(found)


@given(SPEEDS, NOISE)
def test_every_worker_is_in_one_group_and_groups_are_in_order(values, noise):
    groups, labels, _ = propose(values, noise)
    assert sorted(itertools.chain(*groups)) == list(range(len(values)))
    assert labels == ["speed%d" % number for number in range(1, len(groups) + 1)]
    assert all(group == sorted(group) and group for group in groups)
    speeds = by_speed(values, groups)
    assert all(min(fast) > max(slow) for fast, slow in zip(speeds, speeds[1:])), "ties split"


@given(st.lists(WHOLE, min_size=1, max_size=8), NOISE)
def test_the_groups_are_the_best_of_all(values, noise):
    groups = propose(values, noise).groups
    assert groups == best_by_force(values, len(groups))[2]


@pytest.mark.parametrize(
    "values, groups, reason",
    [
        ([7], [[0]], "one worker"),
        ([100, 95], [[0, 1]], "the speeds differ by 5 %, no more than the noise of 5 %"),
        ([100, 94.9], [[0], [1]], "two workers, whose speeds differ by more than the noise"),
        ([50, 100], [[1], [0]], "two workers"),
        # The range is more than the noise, but no two groups are that far apart.
        (
            [100, 98, 96, 94.9],
            [[0, 1, 2, 3]],
            "every division has groups whose means differ by at most",
        ),
        (
            [1, 1, 0.5, 0.25],
            [[0, 1], [2], [3]],
            "3 groups .* infinite, since each group has a single speed",
        ),
        # The workers of four hosts with two each: equal pairs, and two kinds of machine.
        ([100, 100, 101, 101, 50, 50, 51, 51], [[0, 1, 2, 3], [4, 5, 6, 7]], "2 groups"),
    ],
)
def test_the_written_rules(values, groups, reason):
    found = propose(values)
    assert found.groups == groups
    assert re.search(reason, found.reason), found.reason


def test_equal_machines_with_some_noise_are_not_divided():
    """Without the noise, Calinski-Harabasz divides each of the four clusters in two."""
    dice = random.Random(3)
    values = [[100, 200, 400, 700][index % 4] * dice.gauss(1, 0.01) for index in range(400)]
    assert [len(group) for group in propose(values).groups] == [100] * 4
    assert len(propose(values, 0).groups) == grouping.MOST_GROUPS


def test_there_are_at_most_most_groups():
    values = [2.0**power for power in range(20)] * 2
    assert len(propose(values).groups) == grouping.MOST_GROUPS


def test_shares_are_those_of_the_slowest_worker_of_each_group():
    found = grouping.shares(named([1, 4, 3, 2]), [[1, 2], [0, 3]])
    assert found == [Fraction(1, 8), Fraction(3, 8), Fraction(3, 8), Fraction(1, 8)]


@pytest.mark.parametrize(
    "sizes, speeds, expected",
    [
        ([10, 10, 10, 10], [1, 3], [1, 1, 1, 0]),
        ([10, 10, 10, 10], [1, 1], [0, 0, 1, 1]),
        ([5, 5], [1], [0, 0]),
    ],
)
def test_placement_of_some_networks(sizes, speeds, expected):
    assert grouping.placement(sizes, named(speeds)) == expected
