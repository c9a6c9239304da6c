"""Choose the seconds between two reads of the clock of SSP (`ssync_server`). Pure."""

import collections


class Backoff(object):
    """Computes the seconds that a waiting worker sleeps before each read of the clock.

    The first sleep is 80 % of the shortest of the last `remembered` waits. So a long wait costs few
    reads. Each read queues behind the pushes on the servers. The shortest wait counts, because
    otherwise one late worker would make the other workers late in the next step. After the first
    sleep the pauses grow from `shortest` to `longest` seconds.
    """

    def __init__(self, shortest=0.001, longest=0.01, remembered=4):
        self._shortest, self._longest = shortest, longest
        self._waits = collections.deque([0.0] * remembered, maxlen=remembered)

    def pauses(self):
        """Yield the sleeps of one wait in seconds, without end. The first sleep may be 0."""
        first = 0.8 * min(self._waits)
        yield first if first > 2 * self._shortest else 0.0
        pause = self._shortest
        while True:
            yield pause
            pause = min(pause * 1.5, self._longest)

    def waited(self, seconds):
        """Record `seconds`, the length of the wait that has just ended."""
        self._waits.append(seconds)
