"""The pauses of a worker that waits for a clock."""

import itertools

import pytest

from mxcluster.training.kvstore.backoff import Backoff


def test_pauses_grow_to_the_limit():
    pauses = list(itertools.islice(Backoff(0.001, 0.01).pauses(), 10))
    assert pauses[:2] == [0.0, 0.001] and pauses == sorted(pauses) and pauses[-1] == 0.01


def test_one_long_wait_does_not_lengthen_the_next_first_pause():
    backoff = Backoff()
    for seconds in (0.2, 0.2, 0.2, 0.2):
        backoff.waited(seconds)
    assert next(backoff.pauses()) == pytest.approx(0.16)
    backoff.waited(0.001)
    backoff.waited(5.0)
    assert next(backoff.pauses()) == 0.0
