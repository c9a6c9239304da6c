"""Repeat a step until the error of the median time is small.

All functions are pure, except for the clock.
"""

import time
from typing import Callable, List, Sequence

from mxcluster.lists import quantile

LEAST_STEPS = 7
MOST_STEPS = 1000
TIGHT = 0.01  # error of the median at which the measurement ends, relative to the median


def repeat(
    step: Callable[[], object],
    seconds: float,
    whole: bool = False,
    clock: Callable[[], float] = time.monotonic,
) -> List[float]:
    """Call `step()` repeatedly, and return the seconds of each call.

    The function makes at least LEAST_STEPS calls. After these calls the function stops when the
    error of the median is below TIGHT, after `seconds`, or after MOST_STEPS calls.

    Args:
        step: the function that `repeat` measures.
        seconds: the time after which `repeat` stops.
        whole: True to stop only after `seconds`. Processes that measure at the same time then end
            together.
        clock: a function that returns the time in seconds.
    """
    times, begin = [], clock()
    while True:
        before = clock()
        step()
        after = clock()
        times.append(after - before)
        if len(times) < LEAST_STEPS:
            continue
        if after - begin > seconds or not whole and _is_known(times):
            return times


def _is_known(times: Sequence[float]) -> bool:
    return error(times) < TIGHT or len(times) >= MOST_STEPS


def median(values: Sequence[float]) -> float:
    """Return the median of `values`."""
    return quantile(values, 0.5)


def spread(values: Sequence[float]) -> float:
    """Return the interquartile range of `values`, divided by the median."""
    return (quantile(values, 0.75) - quantile(values, 0.25)) / median(values)


def error(values: Sequence[float]) -> float:
    """Return the relative standard error of the median of `values`.

    For a normal distribution the standard error of the median is 0.93 times the interquartile range
    divided by the root of the number of values (McGill, Tukey and Larsen 1978, 1.25 IQR / 1.35).
    """
    return 0.93 * spread(values) / len(values) ** 0.5
