"""Make a learning rate schedule count rounds where servers update several times in a round."""

from mxnet.lr_scheduler import LRScheduler


class RoundScheduler(LRScheduler):
    """Calls the user's schedule with the number of rounds in place of the number of updates.

    A round is W batches, one step of dist_sync. Servers count more updates than rounds when groups
    or workers update on their own. So a schedule that counts updates would lower the learning rate
    too early. Attributes: ``round``, counted from 1; ``divisor`` of the learning rate.
    """

    def __init__(self, schedule):
        super(RoundScheduler, self).__init__(schedule.base_lr)
        self.schedule = schedule
        self.round = 0
        self.divisor = 1

    def __call__(self, num_update):
        """Return the learning rate of the current round; `num_update` has no effect."""
        return self.schedule(self.round) / self.divisor
