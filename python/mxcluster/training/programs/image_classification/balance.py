"""Fit the batch sizes of workers to the workers' speeds (`balance=batch`).

The sizes change only among workers that wait for each other. These workers are all workers of the
job, or the members of a group.
"""

from typing import List, NamedTuple, Sequence, TypeVar

from mxcluster import batch_sizes
from mxcluster.model.program_arguments import ProgramArguments
from mxcluster.node.mxnet_types import KVStore
from mxcluster.training.kvstore.assigned_key import AssignedKey
from mxcluster.training.programs.image_classification.shard import Shards

Number = TypeVar("Number", int, float)


class Sizes(NamedTuple):
    """The batch sizes of the job's workers, each a list by index."""

    first: Sequence[int]
    least: Sequence[int]
    most: Sequence[int]


class Balance(object):
    """The batch sizes of the workers that wait for each other, and the speed of this worker.

    All workers of the job must make a Balance.

    Args:
        kv: the kv-store, which holds the network's parameters.
        parameters: the number of parameters.
        shards: the shards of the workers.
        sizes: the batch sizes from `sizes_of`.
    """

    def __init__(self, kv: KVStore, parameters: int, shards: Shards, sizes: Sizes) -> None:
        index, self._all = shards.index, list(sizes.first)
        self.members = next(members for members in shards.waiting if index in members)
        self._state = batch_sizes.start(self._own(sizes.first))
        self._least, self._most = self._own(sizes.least), self._own(sizes.most)
        self._place = self.members.index(index)
        self._key = AssignedKey(kv, parameters, len(self._all), index)
        self.speed = batch_sizes.Speed(self._all[index])
        # samples per second of each member at the last exchange
        self.speeds: List[float] = []

    @property
    def sizes(self) -> List[int]:
        """The batch size of each worker, by index.

        A worker of another group has its first batch size here, because groups do not report
        changes to each other.
        """
        sizes = list(self._all)
        for member, size in zip(self.members, self._state.sizes):
            sizes[member] = size
        return sizes

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


def sizes_of(args: ProgramArguments, shards: Shards) -> Sizes:
    """Return the batch sizes of the job's workers.

    Raises BadInput if the sizes contradict each other.

    Args:
        args: the arguments of the program.
        shards: the shards of the workers.
    """
    sizes = args.batch_sizes or [args.batch_size] * shards.workers
    least, most = args.batch_least or [1] * shards.workers, args.batch_most
    if not most:
        of_worker = {
            worker: args.batch_size * len(members)
            for members in shards.waiting
            for worker in members
        }
        most = [of_worker[worker] for worker in range(shards.workers)]
    for name, numbers in (
        ("the batch sizes", sizes),
        ("batch_least", least),
        ("batch_most", most),
    ):
        batch_sizes.check_count(name, numbers, shards.workers)
    for members in shards.waiting:
        total = args.batch_size * len(members)
        of_set = [[numbers[worker] for worker in members] for numbers in (sizes, least, most)]
        batch_sizes.check_bounds(total, *of_set[1:])
        batch_sizes.check_sizes(of_set[0], total, *of_set[1:])
    return Sizes(sizes, least, most)
