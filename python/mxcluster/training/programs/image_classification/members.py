"""Keep what workers that wait for each other know of each other under `balance=deadline`.

Each of them computes all of it from the same numbers, so nothing here is sent.
"""

from typing import List, Optional, Sequence, TypeVar

from mxcluster import batch_sizes, deadline
from mxcluster.model.checkpoint import MOST_IN_PROGRESS, Progress
from mxcluster.model.events import Balance
from mxcluster.training.programs.image_classification.shard import Shards
from mxcluster.training.programs.image_classification.sizes import Sizes

T = TypeVar("T")


class Members(object):
    """The workers of the job, or the members of a group, by the order of their indices.

    Attributes:
        members: their indices.
        place: the place of this worker in `members`.
        of_step: the samples of a step of all of them, as planned.
        of_epoch: the samples of an epoch of all of them.
        small: the size of the small batches of each of them, in samples.
        state: their speeds, and the deadline T.
        walks: the place of each of them in its shard.

    Args:
        shards: the shards of the workers.
        sizes: the planned samples of each worker in a step, and the bounds of its small batches.
        batch_size: the knob.
        progress: of the checkpoint from which the job resumes, None for a new job.
    """

    def __init__(
        self, shards: Shards, sizes: Sizes, batch_size: int, progress: Optional[Progress] = None
    ) -> None:
        self._shards, self._all = shards, list(sizes.first)
        self.members = next(those for those in shards.waiting if shards.index in those)
        self.place = self.members.index(shards.index)
        self._least, self._most = self._own(sizes.least), self._own(sizes.most)
        self.of_step = batch_size * len(self.members)
        self._planned = batch_sizes.start(self._own(sizes.first))
        self.small = deadline.small_sizes(self._planned.sizes, self._least, self._most)
        self.state = deadline.start(len(self.members))
        self.walks = [deadline.Walk(0, 0)] * len(self.members)
        self._cut()
        self.of_epoch = sum(self.lengths)
        if progress and self.is_of_all and len(progress.speeds) == len(self.members):
            self._restore(progress)

    @property
    def sizes(self) -> List[int]:
        """The planned samples of each worker in a step, by index.

        A worker of another group has its first number here, because groups do not report changes
        to each other.
        """
        sizes = list(self._all)
        for member, size in zip(self.members, self._planned.sizes):
            sizes[member] = size
        return sizes

    @property
    def own_sizes(self) -> List[int]:
        """The planned samples of each worker in `members`."""
        return list(self._planned.sizes)

    @property
    def speeds(self) -> List[float]:
        """The smoothed speed of each worker in `members`, in samples per second."""
        return list(self.state.speeds)

    @property
    def is_of_all(self) -> bool:
        """True if all workers of the job wait for each other."""
        return len(self.members) == len(self._all)

    @property
    def own_small(self) -> int:
        """The size of this worker's small batches, in samples."""
        return self.small[self.place]

    @property
    def own_most(self) -> int:
        """The largest batch that this worker may take, in samples."""
        return self._most[self.place]

    @property
    def planned_batches(self) -> int:
        """The number of this worker's small batches in a step without a deadline."""
        return deadline.planned_batches(self._planned.sizes[self.place], self.own_small)

    def heard(self, counts: Sequence[int], per_sample: Sequence[float]) -> None:
        """Take over the samples of each member in a step, and its seconds for a sample."""
        self.state = deadline.heard(self.state, self.of_step, per_sample, self.members)
        self.walks = [
            deadline.walked(walk, count, length)
            for walk, count, length in zip(self.walks, counts, self.lengths)
        ]

    def fit_small(self) -> bool:
        """Fit the small batches to the speeds, but not the shards. Return True if they change.

        In a new job without a profile the planned samples are equal until the end of the epoch.
        """
        before, fitting = self.small, self._fitting()
        self.small = deadline.small_sizes(fitting.sizes, self._least, self._most)
        return self.small != before

    def adapt(self) -> bool:
        """Fit shards and small batches to the speeds. Return True if they change.

        All members call this method at the end of an epoch. New shards begin new passes.
        """
        before, self._planned = self._planned, self._fitting()
        # `follow` may take note of a direction, and round to the sizes before.
        if self._planned.sizes == before.sizes:
            return False
        self.small = deadline.small_sizes(self._planned.sizes, self._least, self._most)
        self._cut()
        self.walks = [deadline.anew(walk) for walk in self.walks]
        return True

    def event(self, epoch: int) -> Balance:
        """Return the event about the present sizes, which hold from the epoch `epoch` on."""
        return Balance(
            epoch=epoch,
            workers=self.members,
            sizes=self.own_sizes,
            speeds=self.speeds,
            small=self.small,
            deadline_s=self.state.seconds,
        )

    def progress(self) -> Optional[Progress]:
        """Return the state for a checkpoint of worker 0.

        The result is None for the members of a group, because worker 0 knows its own group only,
        and for more than MOST_IN_PROGRESS workers.
        """
        if not self.is_of_all or len(self.members) > MOST_IN_PROGRESS:
            return None
        return Progress(
            samples=self.of_epoch,
            seconds=self.state.seconds,
            speeds=self.speeds,
            passes=[walk.number for walk in self.walks],
            positions=[walk.position for walk in self.walks],
        )

    def _restore(self, progress: Progress) -> None:
        self.state = deadline.State(tuple(progress.speeds), progress.seconds)
        walks = [deadline.Walk(*pair) for pair in zip(progress.passes, progress.positions)]
        # Another number of samples makes other shards, which begin new passes.
        is_same = progress.samples == self.of_epoch
        self.walks = walks if is_same else [deadline.anew(walk) for walk in walks]

    def _fitting(self) -> batch_sizes.State:
        """Return planned samples of a step that fit the speeds, the present ones near them."""
        if self.state.seconds is None:
            return self._planned
        count = len(self.members)
        return batch_sizes.follow(
            self._planned, self.state.speeds, [1] * count, [self.of_step] * count, self.members
        )

    def _cut(self) -> None:
        ranges = self._own(self._shards.ranges_of_sizes(self.sizes))
        self.lengths = [end - begin for begin, end in ranges]

    def _own(self, items: Sequence[T]) -> List[T]:
        return [items[member] for member in self.members]
