"""The lease of a job: somebody must ask for it now and then, or it ends. Pure."""
from typing import Optional


class Lease:
    """Runs out `seconds` after the last renewal; 0 or None never runs out.

    The first renewal may take longer, `first`: a loaded controller starts on all nodes before it waits for any. Not if it is
    known to be gone.

    A renewal is a change of the lease file's mtime. Its age is taken once, by the wall clock, when the change is
    seen, and counted on by the monotonic clock from there: a clock that is set while the job runs neither ends a job
    nor keeps it, and an mtime in the future is a renewal of now.
    """

    def __init__(self, seconds: Optional[float], first: float = 0):
        self.seconds = seconds or 0
        self._first = max(first, self.seconds)
        self._mtime = None  # type: Optional[float]
        self._renewed = None  # type: Optional[float]

    def starter_is_gone(self) -> None:
        """Who has started the job is seen to be there no more: the first renewal may take no longer than any."""
        self._first = self.seconds

    def expired(self, mtime: Optional[float], wall: float, ticks: float) -> bool:
        """Whether it has run out, given the file's mtime (None: no file), time.time() and time.monotonic()."""
        if mtime is not None and mtime != self._mtime:
            if self._mtime is not None:
                self._first = self.seconds
            self._mtime, self._renewed = mtime, ticks - max(0.0, wall - mtime)
        elif self._renewed is None:  # never seen a file: the lease begins now
            self._renewed = ticks
        return bool(self.seconds) and ticks - self._renewed > self._first
