"""Fit the batch sizes of workers to the workers' speeds (`balance=batch`).

The sizes change only among workers that wait for each other. These workers are all workers of the
job, or the members of a group.
"""

from mxcluster.job import batch_sizes
from mxcluster.training.kvstore.assigned_key import AssignedKey


class Balance(object):
    """The batch sizes of the workers that wait for each other, and the speed of this worker.

    All workers of the job must make a Balance.

    Args:
        kv: the kv-store, which holds the network's parameters.
        parameters: the number of parameters.
        index: the index of this worker.
        members: the indices of the workers that wait for each other, including this worker.
        sizes: the first batch size of each worker, as from `sizes_of`.
        least: the least batch size of each worker.
        most: the largest batch size of each worker.
    """

    def __init__(self, kv, parameters, index, members, sizes, least, most):
        self._all, self.members = list(sizes), list(members)
        self._state = batch_sizes.start(self._own(sizes))
        self._least, self._most = self._own(least), self._own(most)
        self._place = self.members.index(index)
        self._key = AssignedKey(kv, parameters, len(sizes), index)
        self.speed = batch_sizes.Speed(sizes[index])
        self.speeds = []  # samples per second of each member at the last exchange

    @property
    def sizes(self):
        """The batch size of each worker, by index (list of int).

        A worker of another group has its first batch size here, because groups do not report
        changes to each other.
        """
        found = list(self._all)
        for member, size in zip(self.members, self._state.sizes):
            found[member] = size
        return found

    @property
    def own_sizes(self):
        """The batch size of each worker in `members` (list of int)."""
        return list(self._state.sizes)

    @property
    def is_of_all(self):
        """True if all workers of the job wait for each other."""
        return len(self.members) == len(self._all)

    def adapt(self):
        """Exchange speeds with the other members, and fit the batch sizes to the speeds.

        The method returns when all members have called the method. Returns True if a size has
        changed. Raises BadInput for an invalid speed.
        """
        before = self._state.sizes
        self.speeds = self._own(self._key.exchange(self.speed.value()))
        self._state = batch_sizes.follow(
            self._state, self.speeds, self._least, self._most, self.members
        )
        self.speed.resize(self._state.sizes[self._place])
        return self._state.sizes != before

    def _own(self, numbers):
        return [numbers[member] for member in self.members]


def sizes_of(args, workers, waiting):
    """Return the (first, least, largest) batch sizes of the job's workers: three lists by index.

    Raises BadInput if the sizes contradict each other.

    Args:
        args: the result of args.parse().
        workers: the number of workers.
        waiting: a list of worker indices for each set of workers that wait for each other.
    """
    sizes = args.batch_sizes or [args.batch_size] * workers
    least, most = args.batch_least or [1] * workers, args.batch_most
    if not most:
        most = [0] * workers
        for members in waiting:
            for worker in members:
                most[worker] = args.batch_size * len(members)
    for flag, numbers in (
        ("the batch sizes", sizes),
        ("--batch-least", least),
        ("--batch-most", most),
    ):
        batch_sizes.check_count(flag, numbers, workers)
    for members in waiting:
        total = args.batch_size * len(members)
        of_set = [[numbers[worker] for worker in members] for numbers in (sizes, least, most)]
        batch_sizes.check_bounds(total, *of_set[1:])
        batch_sizes.check_sizes(of_set[0], total, *of_set[1:])
    return sizes, least, most
