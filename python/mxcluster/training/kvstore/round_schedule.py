"""Make a learning rate schedule count rounds in place of the servers' single updates."""

from mxnet.lr_scheduler import LRScheduler

from mxcluster.node.mxnet_types import Optimizer


class RoundScheduler(LRScheduler):
    """A schedule that calls the user's schedule with the number of rounds in place of updates.

    A round is W batches for W workers, as in one step of dist_sync. Servers count more updates than
    rounds if each group or worker updates separately. A schedule that counts updates would then
    lower the learning rate too early.

    Attributes:
        round: the current round from 1.
        divisor: the number that divides the learning rate.
    """

    def __init__(self, schedule: LRScheduler) -> None:
        super(RoundScheduler, self).__init__(schedule.base_lr)
        self.schedule = schedule
        self.round = 0
        self.divisor = 1

    @classmethod
    def inside(cls, optimizer: Optimizer) -> Optimizer:
        """Return `optimizer` with a RoundScheduler of its schedule, if it has a schedule."""
        if optimizer.lr_scheduler is not None:
            optimizer.lr_scheduler = cls(optimizer.lr_scheduler)
        return optimizer

    def __call__(self, num_update: int) -> float:
        """Return the learning rate of the current round. `num_update` has no effect."""
        return self.schedule(self.round) / self.divisor
