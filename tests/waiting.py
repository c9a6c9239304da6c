"""Waiting for a condition in tests, with the evidence of a wait that ends without it."""

import time

from tests import machine


def until(condition, seconds=60.0, evidence="", pause=0.05):
    """Wait until `condition()` is true, and return its value.

    Args: `seconds` after which the test fails: no measure of the product, so it is many times what
    a busy machine needs; `evidence`, a text or a function that returns it, for the message;
    `pause` in seconds between two calls. A condition may raise AssertionError to end the wait.

    A condition that takes long, such as a command in a container, is asked less often: the machine
    that it waits for has five sixths of the time.
    """
    began = time.monotonic()
    while True:
        called = time.monotonic()
        value = condition()
        if value:
            return value
        if time.monotonic() - began > seconds:
            raise AssertionError(
                "%s is not true after %.1f s\n%s\n%s"
                % (
                    getattr(condition, "__qualname__", condition),
                    time.monotonic() - began,
                    evidence() if callable(evidence) else evidence,
                    machine.described(),
                )
            )
        time.sleep(max(pause, min(1.0, 5 * (time.monotonic() - called))))
