"""The lease of a job: the controller renews it, or the job ends. Pure."""
from typing import Dict, Optional

MOST = 2  # a slow controller gets at most so many times the lease
MARGIN = 2  # and at least so many times the longest gap that was measured between two renewals
HANGS = 180.0  # seconds after which a controller counts as gone though its process lives on this machine


class Lease:
    """Runs out some time after the last renewal; a lease of 0 or None seconds never does.

    A healthy controller on a busy machine polls late. The lease therefore follows what the agent measures:

    - The controller runs on this machine, and has ended: `seconds`.
    - The controller runs on this machine, and lives: MOST times `seconds`, at least HANGS. Its end would be seen here.
    - No process of the controller can be seen from here: MARGIN times the longest gap between two renewals so far,
      at least `seconds` and at most MOST times as much. MOST times `seconds` before the first renewal, since no gap
      has been measured yet and a busy controller starts all nodes before it polls one.

    A renewal is a change of the lease file's mtime. Its age is taken once, by the wall clock, when the change is
    seen, and counted on by the monotonic clock from there: a clock that is set while the job runs neither ends a job
    nor keeps it, and an mtime in the future is a renewal of now. A file that becomes older takes no renewal back.
    """

    def __init__(self, seconds: Optional[float]):
        self.seconds = seconds or 0
        self.gap = None  # type: Optional[float]  # the longest between two renewals, in seconds; None before the second
        self.mtime = None  # type: Optional[float]
        self._renewed = None  # type: Optional[float]

    def limit(self, controller: Optional[bool] = None) -> float:
        """Seconds that may pass without a renewal. `controller`: whether it lives; None if this machine cannot tell."""
        most = MOST * self.seconds
        if controller is None:
            return most if self.gap is None else min(most, max(self.seconds, MARGIN * self.gap))
        return max(most, HANGS) if controller else self.seconds

    def expired(self, mtime: Optional[float], wall: float, ticks: float,
                controller: Optional[bool] = None) -> Optional[Dict[str, Optional[float]]]:
        """None while the lease holds, else what was seen: {"age", "limit", "gap"}, in seconds.

        `mtime` is the lease file's (None: no file), `wall` time.time(), `ticks` time.monotonic(); `controller`: see `limit`.
        """
        if mtime is not None and mtime != self.mtime:
            renewed = ticks - max(0.0, wall - mtime)
            if self.mtime is not None:
                self.gap = max(self.gap or 0.0, renewed - self._renewed)
            self._renewed = renewed if self._renewed is None else max(self._renewed, renewed)
            self.mtime = mtime
        elif self._renewed is None:  # never seen a file: the lease begins now
            self._renewed = ticks
        age, limit = ticks - self._renewed, self.limit(controller)
        return {"age": age, "limit": limit, "gap": self.gap} if self.seconds and age > limit else None
