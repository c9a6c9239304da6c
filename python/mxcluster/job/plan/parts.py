"""Divide the GPUs and the cores of a host among processes."""

from typing import List, Sequence, TypeVar

from mxcluster import batch_sizes

T = TypeVar("T")


def parts(items: Sequence[T], weights: Sequence[int]) -> List[List[T]]:
    """Return a list of consecutive `items` for each of `weights`, in proportion to the weights.

    Each part has an item, unless `items` is empty. Of equal weights, the first ones get one more.

    Args: `items` none, or at least as many as `weights`.
    """
    if not items:
        return [[] for _ in weights]
    count = len(weights)
    sizes = batch_sizes.divide(weights, len(items), [1] * count, [len(items)] * count)
    ends = [sum(sizes[: number + 1]) for number in range(count)]
    return [list(items[end - size : end]) for size, end in zip(sizes, ends)]
