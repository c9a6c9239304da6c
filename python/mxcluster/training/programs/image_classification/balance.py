"""Fit the batch sizes of workers to the workers' speeds (`balance=batch`).

The sizes change only among workers that wait for each other. These workers are all workers of the
job, or the members of a group.
"""

from typing import List, Sequence, TypeVar

from mxcluster import batch_sizes
from mxcluster.model import events
from mxcluster.node.mxnet_types import KVStore
from mxcluster.training.kvstore.assigned_key import AssignedKey
from mxcluster.training.programs.image_classification.shard import Shards
from mxcluster.training.programs.image_classification.sizes import Sizes

Number = TypeVar("Number", int, float)


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
        self.speeds = self._own([speed for (speed,) in self._key.exchange(self.speed.value())])
        self._state = batch_sizes.follow(
            self._state, self.speeds, self._least, self._most, self.members
        )
        self.speed.resize(self._state.sizes[self._place])
        return self._state.sizes != before

    def event(self, epoch: int) -> events.Balance:
        """Return the event about the present sizes, which hold from the epoch `epoch` on."""
        return events.Balance(
            epoch=epoch, workers=self.members, sizes=self.own_sizes, speeds=self.speeds
        )

    def _own(self, numbers: Sequence[Number]) -> List[Number]:
        return [numbers[member] for member in self.members]
