"""Choose the time between two reads of the clock. Pure."""

import collections


class Backoff(object):
    """The sleep before each read of the clock, in seconds.

    The first sleep is 80 % of the shortest of the last waits. So a long wait costs few reads, each
    of which queues behind the pushes on the servers. A single long wait does not count, because one
    late worker would then make the others late in the next step. After the first sleep the pauses
    grow from `shortest` to `longest`.
    """

    def __init__(self, shortest=0.001, longest=0.01, remembered=4):
        self._shortest, self._longest = shortest, longest
        self._waits = collections.deque([0.0] * remembered, maxlen=remembered)

    def pauses(self):
        """Yield the sleeps of one wait, for ever; the first may be 0."""
        first = 0.8 * min(self._waits)
        yield first if first > 2 * self._shortest else 0.0
        pause = self._shortest
        while True:
            yield pause
            pause = min(pause * 1.5, self._longest)

    def waited(self, seconds):
        """Record `seconds`, the length of the wait that has just ended."""
        self._waits.append(seconds)
