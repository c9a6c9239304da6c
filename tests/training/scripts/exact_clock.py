"""A clock for emulated slowness on a busy machine."""

import time


class Clock(object):
    """The module time for a program that sleeps to be slow.

    By this clock a sleep takes exactly the given time. A sleep of a second or more is skipped.
    """

    ahead = 0.0

    def monotonic(self):
        return time.monotonic() + self.ahead

    def sleep(self, seconds):
        began = time.monotonic()
        time.sleep(seconds if seconds < 1 else 0)
        self.ahead += seconds - (time.monotonic() - began)
