"""The pure parts of the kv-stores: when a step is complete, how long to sleep, and what Y is."""

import itertools

import pytest

from mxcluster.kvstore.keys import MAX_KEY, KeyLayout, merges_per_server
from mxcluster.kvstore.step import Backoff, Staleness, StepPattern


def play(pattern, calls):
    """The answers to a step like "+a a +b b": + pushes, a bare name pulls."""
    return [pattern.push(call[1:]) if call[0] == "+" else pattern.pull(call) for call in calls.split()]


def test_the_first_step_serves_every_pull_and_the_next_only_the_last():
    pattern = StepPattern()
    assert play(pattern, "a b") == [True, True]  # before any push: the initial weights
    assert play(pattern, "+a a +b b +c c") == [False, True, False, True, False, True]
    assert play(pattern, "+a a +b b +c c") == [True, False, False, False, False, True]


def test_pushes_first_and_pulls_afterwards():
    pattern = StepPattern()
    play(pattern, "+a +b a b")
    assert play(pattern, "+a +b a b") == [True, False, False, True]


def test_a_step_that_pulls_less_is_noticed_at_the_next_and_learnt():
    pattern = StepPattern()
    play(pattern, "+a a +b b +a a +b b")
    assert play(pattern, "+a a") == [True, False]   # b is frozen now: the pull of a is still waiting for it
    assert play(pattern, "+a a") == [True, True]    # served at the latest here, and from now on at once


def test_a_step_that_pulls_more_serves_what_is_new_at_once():
    pattern = StepPattern()
    play(pattern, "+a a")
    assert play(pattern, "+a a +b b") == [True, True, False, True]
    assert play(pattern, "+a a +b b") == [True, False, False, True]


def test_pauses_grow_to_the_longest():
    pauses = list(itertools.islice(Backoff(0.001, 0.01).pauses(), 10))
    assert pauses[:2] == [0.0, 0.001] and pauses == sorted(pauses) and pauses[-1] == 0.01


def test_one_long_wait_does_not_make_the_next_first_pause_long():
    backoff = Backoff()
    for seconds in (0.2, 0.2, 0.2, 0.2):
        backoff.waited(seconds)
    assert next(backoff.pauses()) == pytest.approx(0.16)
    backoff.waited(0.001)
    backoff.waited(5.0)
    assert next(backoff.pauses()) == 0.0


def test_y_counts_the_updates_of_others():
    staleness = Staleness()
    assert [staleness.update(group, 0) for group in (0, 0, 1, 0, 0, 1)] == [1, 1, 3, 2, 1, 3]
    assert staleness.update(1, 7) == 1  # another parameter


def test_y_is_the_mean_of_the_rates():
    """R / r_g on average (facts of the algorithm): a group three times as fast as the other."""
    staleness = Staleness()
    found = {0: [], 1: []}
    for group in [0, 0, 0, 1] * 50:
        found[group].append(staleness.update(group, 0))
    assert sum(found[0]) / 150 == pytest.approx(4 / 3, rel=0.02) and sum(found[1]) / 50 == pytest.approx(4, rel=0.02)


@pytest.mark.parametrize("groups,servers", [(1, 1), (1, 3), (2, 2), (7, 4), (100, 8), (500, 3)])
def test_keys_of_a_parameter_share_a_server_and_none_overflows(groups, servers):
    layout = KeyLayout(groups, servers)
    for index in (0, 1, layout.capacity - 1):
        keys = [layout.key(group, index) for group in range(groups)]
        assert len({layout.server_of(key) for key in keys}) == 1 and max(keys) <= MAX_KEY
        assert [layout.split(key) for key in keys] == [(group, index) for group in range(groups)]
        assert all(key * 9973 < 2 ** 31 for key in keys)
    for group in range(groups):
        clocks = layout.clocks(group)
        assert [layout.server_of(key) for key in clocks] == list(range(servers)) and max(clocks) <= MAX_KEY
        assert {layout.split(key) for key in clocks} == {(group, None)}


def test_a_key_outside_is_refused_with_what_would_fit():
    with pytest.raises(ValueError, match="107663.*fewer groups"):
        KeyLayout(2, 1).key(0, 107664)
    with pytest.raises(ValueError, match="no key for a parameter"):
        KeyLayout(MAX_KEY, 2)


def test_big_arrays_are_merged_on_every_server():
    layout = KeyLayout(1, 3)
    small = merges_per_server(layout, 4, 99, 100)
    assert sum(small) == 1 and small[layout.server_of(4)] == 1
    assert merges_per_server(layout, 4, 100, 100) == [1, 1, 1]
