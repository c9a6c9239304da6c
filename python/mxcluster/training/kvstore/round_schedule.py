"""The learning rate where weights are updated more often than once a round."""

from mxnet.lr_scheduler import LRScheduler


class RoundScheduler(LRScheduler):
    """Shows the user's schedule the number of rounds instead of the number of updates.

    A round is W batches, one step of dist_sync. Servers see more updates than that when groups or workers update on their own,
    and a schedule in updates would lower the learning rate that many times too early. Attributes: ``round``, counted from 1;
    ``divisor`` of what the schedule says.
    """

    def __init__(self, schedule):
        super(RoundScheduler, self).__init__(schedule.base_lr)
        self.schedule = schedule
        self.round = 0
        self.divisor = 1

    def __call__(self, num_update):
        return self.schedule(self.round) / self.divisor
