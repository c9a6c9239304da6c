"""Compare the speed of a scheme with the absolute limit: the sum of the workers' own speeds.

All functions are pure. The own speed of a worker is its speed while it trains alone, with no worker
to wait for. A scheme reaches the limit if each worker trains all the time at its own speed. A ratio
to another scheme instead flatters: it hides what both of them lose.
"""

from typing import Iterable, Optional


def absolute(solo: Iterable[Optional[float]]) -> Optional[float]:
    """Return the sum of the `solo` speeds in samples/s, None without all of them.

    Args: `solo` the speed of each worker of the cluster, None for an unknown speed.
    """
    speeds = list(solo)
    known = [speed for speed in speeds if speed is not None and speed > 0]
    return sum(known) if known and len(known) == len(speeds) else None


def part(samples_per_s: Optional[float], limit: Optional[float]) -> Optional[float]:
    """Return the speed of all workers as a part of the limit, None if one of them is unknown."""
    return samples_per_s / limit if samples_per_s is not None and limit else None
