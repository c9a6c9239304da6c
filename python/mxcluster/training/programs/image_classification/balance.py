"""Fit the batch sizes of workers to the workers' speeds (`balance=batch`).

The sizes change only among workers that wait for each other. These workers are all workers of the
job, or the members of a group.
"""

from typing import List, Sequence, Tuple, TypeVar

from mxcluster import batch_sizes
from mxcluster.model.program_arguments import ProgramArguments
from mxcluster.node.mxnet_types import KVStore
from mxcluster.training.kvstore.assigned_key import AssignedKey

Number = TypeVar("Number", int, float)


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

    def __init__(
        self,
        kv: KVStore,
        parameters: int,
        index: int,
        members: Sequence[int],
        sizes: Sequence[int],
        least: Sequence[int],
        most: Sequence[int],
    ) -> None:
        self._all, self.members = list(sizes), list(members)
        self._state = batch_sizes.start(self._own(sizes))
        self._least, self._most = self._own(least), self._own(most)
        self._place = self.members.index(index)
        self._key = AssignedKey(kv, parameters, len(sizes), index)
        self.speed = batch_sizes.Speed(sizes[index])
        # samples per second of each member at the last exchange
        self.speeds: List[float] = []

    @property
    def sizes(self) -> List[int]:
        """The batch size of each worker, by index.

        A worker of another group has its first batch size here, because groups do not report
        changes to each other.
        """
        found = list(self._all)
        for member, size in zip(self.members, self._state.sizes):
            found[member] = size
        return found

    @property
    def own_sizes(self) -> List[int]:
        """The batch size of each worker in `members`."""
        return list(self._state.sizes)

    @property
    def is_of_all(self) -> bool:
        """True if all workers of the job wait for each other."""
        return len(self.members) == len(self._all)

    def adapt(self) -> bool:
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

    def _own(self, numbers: Sequence[Number]) -> List[Number]:
        return [numbers[member] for member in self.members]


def sizes_of(
    args: ProgramArguments, workers: int, waiting: Sequence[Sequence[int]]
) -> Tuple[Sequence[int], Sequence[int], Sequence[int]]:
    """Return the (first, least, largest) batch sizes of the job's workers: three lists by index.

    Raises BadInput if the sizes contradict each other.

    Args:
        args: the arguments of the program.
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
        ("batch_least", least),
        ("batch_most", most),
    ):
        batch_sizes.check_count(flag, numbers, workers)
    for members in waiting:
        total = args.batch_size * len(members)
        of_set = [[numbers[worker] for worker in members] for numbers in (sizes, least, most)]
        batch_sizes.check_bounds(total, *of_set[1:])
        batch_sizes.check_sizes(of_set[0], total, *of_set[1:])
    return sizes, least, most
