"""Keep what a task knows from one of its attempts to the next.

A task with `until` runs its action plugin again and again in one process. Ansible makes a new
plugin object for each attempt, for the same task object.
"""

from typing import Dict, Optional

from mxcluster.job.report.checkpoint_arrivals import Arrivals
from mxcluster.job.report.exports import LiveCurves


class Lasting:
    """What the attempts of a task with `mxcluster_node` share.

    Attributes: `curves` for TensorBoard, None before the first figure; `may_draw` False after an
    error of `curves`; `offsets` {log: bytes} of the logs that the task follows, None before the
    first answer; `has_asked` True once the node has been asked for the login user; `reader` the
    uid of this user before become, None if unknown.
    """

    def __init__(self) -> None:
        self.curves: Optional[LiveCurves] = None
        self.may_draw = True
        self.offsets: Optional[Dict[str, int]] = None
        self.has_asked = False
        self.reader: Optional[int] = None
        self._arrivals: Optional[Arrivals] = None

    @classmethod
    def of(cls, task: object) -> "Lasting":
        """Return the object of `task`, which the first call makes."""
        found: Lasting = vars(task).setdefault("mxcluster_lasting", cls())
        return found

    def arrivals(self, made: Arrivals) -> Arrivals:
        """Return the Arrivals of the first attempt, with the connection of this one.

        Args: `made` by this attempt.
        """
        self._arrivals = self._arrivals or made
        self._arrivals.fetch = made.fetch
        return self._arrivals
