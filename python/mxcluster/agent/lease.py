"""The lease of a job. The agent ends the job if the controller does not renew the lease.

The module reads no clock and no file.
"""

from typing import Optional

from mxcluster.model.status import Expiry

MOST = 2  # limit for a slow controller, as a multiple of the lease
MARGIN = 2  # limit as a multiple of the longest measured gap between two renewals
# A controller counts as lost after this many seconds without a renewal, even if the controller's
# process lives on this node.
HANGS = 180.0


class Lease:
    """Decides when a lease of `seconds` expires. A lease of 0 or None never expires.

    The lease expires if the time since the last renewal exceeds a limit. A healthy controller on a
    busy host renews the lease late. The limit therefore depends on the controller's process:

    - If the process ran on this node and has ended, the limit is `seconds`.
    - If the process runs on this node, the limit is MOST times `seconds`, at least HANGS. The agent
      would see the end of the process.
    - If the process is not visible on this node, the limit is MARGIN times the longest gap between
      two renewals, at least `seconds` and at most MOST times `seconds`. Before the first renewal
      the limit is MOST times `seconds`. No gap is known yet, and a busy controller starts all nodes
      before its first poll.

    A renewal is a change of the lease file's mtime. When the agent sees the change, it computes the
    renewal's age once, by the wall clock. From then on the monotonic clock counts. A change of the
    wall clock while the job runs therefore neither ends nor extends a job. An mtime in the future
    counts as a renewal now. An mtime that goes back cancels no renewal.

    The controller of a batch job renews the lease with the clock of the submit host. This clock may
    differ from the clock of the node that checks the lease. The caller then gives no wall clock,
    and each change of the mtime counts as a renewal now.
    """

    def __init__(self, seconds: Optional[float]) -> None:
        self.seconds = seconds or 0
        self.gap = None  # type: Optional[float]  # longest gap between two renewals, seconds
        self.mtime = None  # type: Optional[float]
        self._renewed = None  # type: Optional[float]

    def limit(self, controller: Optional[bool] = None) -> float:
        """Return the longest time in seconds that may pass without a renewal.

        `controller`: True if the controller's process lives on this node, False if the process has
        ended, None if the process is not visible on this node.
        """
        most = MOST * self.seconds
        if controller is None:
            return most if self.gap is None else min(most, max(self.seconds, MARGIN * self.gap))
        return max(most, HANGS) if controller else self.seconds

    def expired(
        self,
        mtime: Optional[float],
        wall: Optional[float],
        ticks: float,
        controller: Optional[bool] = None,
    ) -> Optional[Expiry]:
        """Return None while the lease holds, else the measurements of the lease.

        `mtime` is the mtime of the lease file (None without a
        file), `wall` is time.time() (None if the mtime comes from the clock of another machine),
        `ticks` is time.monotonic(). See `limit` for `controller`.
        """
        if mtime is not None and mtime != self.mtime:
            renewed = ticks if wall is None else ticks - max(0.0, wall - mtime)
            if self.mtime is not None:
                assert self._renewed is not None  # set together with the mtime
                self.gap = max(self.gap or 0.0, renewed - self._renewed)
            self._renewed = renewed if self._renewed is None else max(self._renewed, renewed)
            self.mtime = mtime
        elif self._renewed is None:  # no file seen yet: the lease begins now
            self._renewed = ticks
        age, limit = ticks - self._renewed, self.limit(controller)
        if self.seconds and age > limit:
            return Expiry(age=age, limit=limit, gap=self.gap)
        return None
