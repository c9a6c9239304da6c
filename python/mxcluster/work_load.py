"""Split a batch among the GPUs of one worker, as MXNet's Module does. Pure."""

from typing import List, Sequence


def split(batch_size: int, loads: Sequence[float]) -> List[int]:
    """Return the number of samples of a batch that each GPU gets, in proportion to `loads`.

    The result is that of MXNet's executor_manager._split_input_slice, which refuses a 0 in it.
    Each number is rounded, half to even. The last GPU gets what is left, or what is missing is
    taken from the last GPUs.

    Args: `batch_size` at least 1; `loads` above 0, one for each GPU.
    """
    total = sum(loads)
    wanted = [round(load * batch_size / total) for load in loads]
    wanted[-1] += max(0, batch_size - sum(wanted))
    found, left = [], batch_size
    for number in wanted:
        found.append(min(number, left))
        left -= found[-1]
    return found
