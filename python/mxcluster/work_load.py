"""Split a batch among the GPUs of one worker, as MXNet's Module does. All functions are pure."""

import math
from typing import List, Sequence


def split(batch_size: int, loads: Sequence[float]) -> List[int]:
    """Return the number of samples of a batch for each GPU, in proportion to `loads`.

    MXNet's executor_manager._split_input_slice has the same result, but raises an error if a GPU
    gets no sample. The function rounds each number, half to even. The last GPU gets the remaining
    samples. If the rounded numbers add up to too many samples, the last GPUs get fewer samples.

    Args: `batch_size` at least 1; `loads` above 0, one for each GPU.
    """
    total = sum(loads)
    rounded = [round(load * batch_size / total) for load in loads]
    rounded[-1] += max(0, batch_size - sum(rounded))
    sizes, left = [], batch_size
    for size in rounded:
        sizes.append(min(size, left))
        left -= sizes[-1]
    return sizes


def least(loads: Sequence[float]) -> int:
    """Return the least batch size that gives every GPU a sample.

    Every larger batch also gives every GPU a sample. Args: `loads` as in `split`.
    """
    # `enough` is an upper bound of the result.
    enough = len(loads) * math.ceil(sum(loads) / min(loads))
    return next(size for size in range(enough, 0, -1) if size == 1 or 0 in split(size - 1, loads))
