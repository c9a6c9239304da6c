"""Choose the samples of each batch of an epoch, and read the samples ahead of the training."""

import collections
import concurrent.futures

import numpy as np


def order(begin, end, batches, batch_size, seed):
    """Return the sample numbers of an epoch in random order, int (batches, batch_size).

    Each of the samples begin .. end - 1 comes once. Then some samples come again to fill the last
    batches. MXNet's Module needs batches of equal size, and workers that wait for each other need
    equal numbers of batches.

    `seed` is a sequence of ints, and all other arguments are ints. Raises ValueError if the
    batches have too few places for the samples.
    """
    if batches * batch_size < end - begin:
        raise ValueError(
            "%d samples do not fit into %d batches of %d: use more or larger batches"
            % (end - begin, batches, batch_size)
        )
    shuffled = begin + np.random.RandomState(list(seed)).permutation(end - begin)
    return np.resize(shuffled, (batches, batch_size))


def in_file_order(samples, batch_size):
    """Return the numbers 0 .. samples - 1 in order, int (batches, batch_size).

    The first samples come again to fill the last batch.
    """
    return np.resize(np.arange(samples), (-(-samples // batch_size), batch_size))


def ahead(read, items, threads, waiting=None):
    """Yield read(item) for each of `items` in order, while `threads` threads read the next items.

    The generator reads at most `waiting` items ahead (default: threads + 1). An exception of `read`
    reaches the caller.
    """
    queue = collections.deque()
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        try:
            for item in items:
                queue.append(pool.submit(read, item))
                if len(queue) > (threads + 1 if waiting is None else waiting):
                    yield queue.popleft().result()
            while queue:
                yield queue.popleft().result()
        finally:
            for future in queue:
                future.cancel()
