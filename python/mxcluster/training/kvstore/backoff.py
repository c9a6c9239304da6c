"""How long to wait between two looks (pure)."""

import collections


class Backoff(object):
    """How long to sleep before each look at a clock, in seconds.

    The first sleep is most of the shortest of the last waits, so that a long wait costs few looks, each of which queues up
    behind the pushes on the servers.  A single long wait does not count, or one late worker would make the others late in
    the next step.  After it the pauses grow from `shortest` to `longest`.
    """

    def __init__(self, shortest=0.001, longest=0.01, remembered=4):
        self._shortest, self._longest = shortest, longest
        self._waits = collections.deque([0.0] * remembered, maxlen=remembered)

    def pauses(self):
        """Yields the sleeps of one wait, for ever; the first may be 0."""
        first = 0.8 * min(self._waits)
        yield first if first > 2 * self._shortest else 0.0
        pause = self._shortest
        while True:
            yield pause
            pause = min(pause * 1.5, self._longest)

    def waited(self, seconds):
        """Remembers how long a wait took."""
        self._waits.append(seconds)
