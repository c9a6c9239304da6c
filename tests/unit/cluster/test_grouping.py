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


def cuts_of(values):
    """Yield every division of the sorted values, as lists of neighbouring values."""
    ranked = sorted(values, reverse=True)
    for inner in itertools.product([False, True], repeat=len(ranked) - 1):
        places = [0, *(place for place, cut in enumerate(inner, 1) if cut), len(ranked)]
        yield [ranked[begin:end] for begin, end in zip(places, places[1:])]


def speed_of(division):
    return sum(len(group) * min(group) for group in division)


def value_of(division, noise):
    """Return the value of a division by the definition: sum |g| min_g(s), minus the prices."""
    total, price = sum(map(sum, division)), 0.0
    for faster, slower in zip(division, division[1:]):
        difference = (min(faster) - max(slower)) / min(faster)
        price += 0.05 * total * (2 if difference <= noise else 1 + noise / difference)
    return speed_of(division) - price


@pytest.mark.slow
@given(SPEEDS, NOISE)
def test_every_worker_is_in_one_group_and_groups_are_in_order(values, noise):
    groups, labels, _ = propose(values, noise)
    assert sorted(itertools.chain(*groups)) == list(range(len(values)))
    assert labels == ["speed%d" % number for number in range(1, len(groups) + 1)]
    assert all(group == sorted(group) and group for group in groups)
    speeds = by_speed(values, groups)
    assert all(min(fast) > max(slow) for fast, slow in zip(speeds, speeds[1:])), "ties split"


@pytest.mark.slow
@given(SPEEDS, NOISE)
def test_no_division_has_a_larger_value(values, noise):
    """Divisions with less than 15 % more than one group do not count."""
    found = by_speed(values, propose(values, noise).groups)
    one = len(values) * min(values)
    best = max(cuts_of(values), key=lambda division: (value_of(division, noise), -len(division)))
    gain = speed_of(best) / one - 1
    if abs(gain - 0.15) < 1e-9:
        return  # rounding decides
    if gain < 0.15:
        assert len(found) == 1
    else:
        assert value_of(found, noise) == pytest.approx(value_of(best, noise), rel=1e-9)


@pytest.mark.parametrize(
    "values, groups, reason",
    [
        ([7], [[0]], "^one worker$"),
        ([100, 96], [[0, 1]], "the speeds differ by 4 %, no more than the noise of 5 %"),
        (
            [100, 94],
            [[0, 1]],
            "two groups would compute only 3 % more samples/s, .* balance=batch gives faster",
        ),
        ([100, 78], [[0, 1]], "only 14 % more"),
        ([76, 100], [[1], [0]], "^2 groups would compute 16 % more samples/s than one group$"),
        ([1, 1, 0.5, 0.25], [[0, 1], [2], [3]], "^3 groups would compute 175 % more"),
        ([1, 0.25, 0.5], [[0], [2], [1]], "^3 groups would compute 133 % more"),
        ([100, 98, 96, 94.9], [[0, 1, 2, 3]], "only 2 % more"),
        # The workers of four hosts with two each: equal pairs, and two kinds of machine.
        ([100, 100, 101, 101, 50, 50, 51, 51], [[0, 1, 2, 3], [4, 5, 6, 7]], "^2 groups .* 50 %"),
        # No two neighbours differ by more than the noise, but all speeds together do.
        ([100 * 0.97**step for step in range(60)], None, "^[2-5] groups"),
    ],
)
def test_the_written_rules(values, groups, reason):
    found = propose(values)
    assert groups is None or found.groups == groups
    assert re.search(reason, found.reason), found.reason


# (speed, number of machines) of each kind of machine.
CLUSTERS = (
    [(1, 4)],
    [(1, 16)],
    [(1, 100)],
    [(1, 2), (0.94, 2)],  # counts as equal machines: two groups would gain 3 %
    [(1, 1), (0.5, 1), (0.25, 1)],
    [(1, 2), (0.5, 1), (0.25, 1)],
    [(1, 3), (0.5, 4), (0.25, 5)],
    [(1, 2), (0.6, 2), (0.3, 2)],
    [(1, 8), (0.7, 8)],
    [(1, 16), (0.5, 16)],
    [(1, 7), (0.5, 1)],
    [(1, 60), (0.4, 40)],
)


@pytest.mark.parametrize("draw", ["gauss", "uniform"])
def test_a_spread_between_equal_machines_rarely_changes_the_groups(draw):
    """Draw each machine's speed with a spread of 5 %, and count the groups of equal machines."""
    dice, right, draws = random.Random(37), 0, 100
    spread = {"gauss": lambda: dice.gauss(1, 0.05), "uniform": lambda: dice.uniform(0.95, 1.05)}
    for kinds in CLUSTERS:
        sizes = [number for _, number in kinds]
        wanted = [sum(sizes)] if kinds[-1][0] > 0.9 else sizes
        for _ in range(draws):
            values = [speed * spread[draw]() for speed, number in kinds for _ in range(number)]
            found = propose(values).groups
            # The machines are in the order of their kinds.
            members = [sorted(group) for group in found]
            places = [0, *itertools.accumulate(wanted)]
            right += members == [list(range(*ends)) for ends in zip(places, places[1:])]
    part = right / (draws * len(CLUSTERS))
    print("right groups in %.1f %% of %d draws" % (100 * part, draws * len(CLUSTERS)))
    assert part >= 0.95


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
