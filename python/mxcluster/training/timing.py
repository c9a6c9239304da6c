"""Repeat a step until the error of the median time is small.

All functions are pure, except for the clock.
"""

import time

LEAST_STEPS = 7
MOST_STEPS = 1000
TIGHT = 0.01  # error of the median at which the measurement ends, relative to the median


def repeat(step, seconds, whole=False, clock=time.monotonic):
    """Call `step()` repeatedly, and return the seconds of each call (list of float).

    The function makes at least LEAST_STEPS calls. After these calls the function stops when the
    error of the median is below TIGHT, after `seconds`, or after MOST_STEPS calls.

    Args:
        step: a function without arguments.
        seconds: the time after which the function stops (float).
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


def _is_known(times):
    return error(times) < TIGHT or len(times) >= MOST_STEPS


def quantile(values, part):
    """Return the quantile `part` (0 to 1) of `values` (list of float), interpolated linearly."""
    ordered = sorted(values)
    place = part * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def median(values):
    """Return the median (float) of `values` (list of float)."""
    return quantile(values, 0.5)


def spread(values):
    """Return the interquartile range of `values` (list of float), divided by the median."""
    return (quantile(values, 0.75) - quantile(values, 0.25)) / median(values)


def error(values):
    """Return the relative standard error of the median of `values` (list of float).

    For a normal distribution the standard error of the median is 0.93 times the interquartile range
    divided by the root of the number of values (McGill, Tukey and Larsen 1978, 1.25 IQR / 1.35).
    """
    return 0.93 * spread(values) / len(values) ** 0.5
