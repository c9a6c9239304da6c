"""Choose the samples of each batch of an epoch, and read the samples ahead of the training."""

import collections
import concurrent.futures
from typing import Callable, Deque, Generator, Iterable, Iterator, Optional, Sequence, TypeVar

import numpy as np

from mxcluster import deadline

Item = TypeVar("Item")
Result = TypeVar("Result")


def order(begin: int, end: int, batches: int, batch_size: int, seed: Sequence[int]) -> np.ndarray:
    """Return the sample numbers of an epoch in random order, int (batches, batch_size).

    Each of the samples begin .. end - 1 comes once. Then some samples come again to fill the last
    batches. MXNet's Module needs batches of equal size, and workers that wait for each other need
    equal numbers of batches.

    Raises ValueError if the batches have too few places for the samples.
    """
    if batches * batch_size < end - begin:
        raise ValueError(
            "%d samples do not fit into %d batches of %d: use more or larger batches"
            % (end - begin, batches, batch_size)
        )
    shuffled = begin + np.random.RandomState(list(seed)).permutation(end - begin)
    return np.resize(shuffled, (batches, batch_size))


def walk(
    begin: int, end: int, size: int, walked: deadline.Walk, seed: int, index: int
) -> Iterator[np.ndarray]:
    """Yield the sample numbers of small batches without end, int (size,), from `walked` on.

    Each pass has each of the samples begin .. end - 1 once, in a random order of its own. A small
    batch that begins in a pass may end in the next one.

    Args: `seed` of the job; `index` of the worker, which has its own orders.
    """
    number = walked.number
    rest: np.ndarray = np.empty((0,), int)
    while True:
        while len(rest) < size:
            shuffled = np.random.RandomState([seed, number, index]).permutation(end - begin)
            first = walked.position if number == walked.number else 0
            rest = np.concatenate([rest, begin + shuffled[first:]])
            number += 1
        yield rest[:size]
        rest = rest[size:]


def in_file_order(samples: int, batch_size: int) -> np.ndarray:
    """Return the numbers 0 .. samples - 1 in order, int (batches, batch_size).

    The first samples come again to fill the last batch.
    """
    return np.resize(np.arange(samples), (-(-samples // batch_size), batch_size))


def ahead(
    read: Callable[[Item], Result],
    items: Iterable[Item],
    threads: int,
    waiting: Optional[int] = None,
) -> Generator[Result, None, None]:
    """Yield read(item) for each of `items` in order, while `threads` threads read the next items.

    The generator reads at most `waiting` items ahead (default: threads + 1). An exception of `read`
    reaches the caller.
    """
    # the results of the items that the threads read
    queue: "Deque[concurrent.futures.Future[Result]]" = collections.deque()
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
