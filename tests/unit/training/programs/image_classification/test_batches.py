import threading
import time

import numpy as np
import pytest

from mxcluster.deadline import Walk, walked
from mxcluster.training.programs.image_classification.data import batches
from tests.waiting import until


def test_an_epoch_has_every_sample_of_the_share_and_no_other():
    order = batches.order(100, 203, 5, 32, [0, 0, 0])
    assert order.shape == (5, 32)
    assert sorted(set(order.ravel())) == list(range(100, 203))
    # 57 samples come a second time, none a third.
    assert np.bincount(order.ravel() - 100).max() == 2


def test_a_share_smaller_than_a_batch_is_repeated():
    order = batches.order(5, 8, 2, 8, [0, 0, 0])
    assert sorted(np.bincount(order.ravel() - 5)) == [5, 5, 6]


def test_order_depends_on_seed_epoch_and_worker_only():
    first = batches.order(0, 100, 4, 25, [1, 2, 3])
    assert np.array_equal(first, batches.order(0, 100, 4, 25, [1, 2, 3]))
    for other in ([0, 2, 3], [1, 0, 3], [1, 2, 0]):
        assert not np.array_equal(first, batches.order(0, 100, 4, 25, other)), other


def test_too_many_samples_are_refused():
    with pytest.raises(ValueError, match="65 samples do not fit into 2 batches of 32"):
        batches.order(0, 65, 2, 32, [0])


def test_validation_reads_all_samples_once():
    order = batches.in_file_order(10, 4)
    assert order.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 0, 1]]


def test_ahead_keeps_the_order():
    def read(number):
        time.sleep(0.01 if number % 3 == 0 else 0)
        return number * number

    assert list(batches.ahead(read, range(20), 4)) == [number * number for number in range(20)]


def test_ahead_reads_in_the_background_up_to_a_limit():
    begun, lock = [], threading.Lock()

    def read(number):
        with lock:
            begun.append(number)
        return number

    taken = []
    results = batches.ahead(read, (taken.append(number) or number for number in range(100)), 2)
    assert next(results) == 0
    until(lambda: len(begun) >= 4)
    assert taken == [0, 1, 2, 3], "no other item can be read before the next call"
    assert sorted(begun) == [0, 1, 2, 3], begun
    results.close()


def test_ahead_raises_the_error_of_read():
    def read(number):
        if number == 3:
            raise KeyError("sample 3")
        return number

    results = batches.ahead(read, range(10), 2)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(KeyError, match="sample 3"):
        next(results)


def test_a_walk_has_each_sample_once_in_each_pass():
    walk = batches.walk(10, 17, 3, Walk(2, 0), seed=1, index=0)
    taken = np.concatenate([next(walk) for _ in range(14)]).tolist()  # 42 samples: 6 passes
    passes = [taken[first : first + 7] for first in range(0, 42, 7)]
    assert all(sorted(one) == list(range(10, 17)) for one in passes)
    assert len(set(map(tuple, passes))) > 1, "each pass has another order"
    # From any place on, with batches of any size, the samples are the same.
    for size, done in ((3, 9), (2, 16), (20, 5)):
        walk = batches.walk(10, 17, size, walked(Walk(2, 0), done, 7), seed=1, index=0)
        assert (
            np.concatenate([next(walk) for _ in range(5)]).tolist()[: 42 - done]
            == (taken[done : done + 5 * size])
        )
    other = batches.walk(10, 17, 3, Walk(2, 0), seed=1, index=1)
    assert np.concatenate([next(other) for _ in range(14)]).tolist() != taken
    # The first pass has the order of an epoch with whole batches.
    walk = batches.walk(10, 17, 7, Walk(4, 0), seed=1, index=0)
    assert next(walk).tolist() == batches.order(10, 17, 1, 7, [1, 4, 0])[0].tolist()
