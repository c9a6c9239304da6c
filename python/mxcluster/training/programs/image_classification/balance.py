"""Fit the batch size of this worker to the speeds of all workers, for `balance=batch`."""

from mxcluster.job import batch_sizes
from mxcluster.training.kvstore.assigned_key import AssignedKey


class Balance(object):
    """The batch sizes of all workers, and the measured speed of this worker.

    Args: `kv` the kv-store, with the network's `parameters` parameters; `index` of this worker;
    `sizes`, `least` and `most` as from `sizes_of`. All workers make a Balance.
    """

    def __init__(self, kv, parameters, index, sizes, least, most):
        self._state, self._least, self._most = batch_sizes.start(sizes), least, most
        self._index = index
        self._key = AssignedKey(kv, parameters, len(sizes), index)
        self.speed = batch_sizes.Speed(sizes[index])
        self.speeds = []  # of all workers, in samples per second, at the last exchange

    @property
    def sizes(self):
        """The batch size of each worker, by index (list of int)."""
        return list(self._state.sizes)

    def adapt(self):
        """Exchange the speeds with all workers. Return True if the sizes have changed.

        The method returns when all workers have called it. Raises BadInput for an invalid speed.
        """
        before = self._state.sizes
        self.speeds = self._key.exchange(self.speed.value())
        self._state = batch_sizes.follow(self._state, self.speeds, self._least, self._most)
        self.speed.resize(self._state.sizes[self._index])
        return self._state.sizes != before


def sizes_of(args, workers):
    """Return (sizes, least, most) of the job's workers, lists by index, from the arguments `args`.

    Raises BadInput if they contradict each other.
    """
    total = args.batch_size * workers
    sizes = args.batch_sizes or [args.batch_size] * workers
    least, most = args.batch_least or [1] * workers, args.batch_most or [total] * workers
    for flag, numbers in (("--batch-least", least), ("--batch-most", most)):
        batch_sizes.check_count(flag, numbers, workers)
    batch_sizes.check_bounds(total, least, most)
    batch_sizes.check_sizes(sizes, total, least, most)
    return sizes, least, most
