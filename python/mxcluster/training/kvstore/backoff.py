"""Choose the pauses between reads of the SSP clock (`ssync_server`). Pure."""

import collections
from typing import Iterator


class Backoff(object):
    """The pauses of a waiting worker, in seconds. A read of the clock follows each pause.

    The first pause is 80 % of the shortest of the last `remembered` waits. This pause saves reads
    of the clock, which queue behind the pushes on the servers. A single long wait for one late
    worker does not lengthen the first pause. The later pauses grow from `shortest` to `longest`.

    Args:
        shortest, longest: seconds.
        remembered: the number of waits.
    """

    def __init__(self, shortest: float = 0.001, longest: float = 0.01, remembered: int = 4) -> None:
        self._shortest, self._longest = shortest, longest
        self._waits = collections.deque([0.0] * remembered, maxlen=remembered)

    def pauses(self) -> Iterator[float]:
        """Yield the pauses of one wait in seconds, without end. The first pause may be 0."""
        first = 0.8 * min(self._waits)
        yield first if first > 2 * self._shortest else 0.0
        pause = self._shortest
        while True:
            yield pause
            pause = min(pause * 1.5, self._longest)

    def waited(self, seconds: float) -> None:
        """Record `seconds`, the length of the wait that has just ended."""
        self._waits.append(seconds)
