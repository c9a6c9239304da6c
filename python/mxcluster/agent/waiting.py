"""Wait for a condition."""

import time
from typing import Callable


def until(test: Callable[[], bool], seconds: float, pause: float) -> bool:
    """Wait for at most `seconds` until `test` returns True. Return the last result of `test`.

    Args: `pause` between two calls of `test` in seconds.
    """
    deadline = time.monotonic() + seconds
    while not test():
        if time.monotonic() >= deadline:
            return False
        time.sleep(pause)
    return True
