"""Compute a worker's shard of the data, number of batches and learning rate drops.

The functions have no side effects. Some functions read the job's file data_sharding.
"""

import math
import os
from fractions import Fraction
from typing import List, Mapping, NamedTuple, Sequence, Tuple

from mxcluster import batch_sizes, cluster_files, schemes
from mxcluster.errors import BadInput


class Work(NamedTuple):
    """The epoch of a worker."""

    begin: int
    end: int
    """The worker trains the samples begin .. end - 1 of the data set."""
    batches: int
    repeated: int
    """The number of places in the batches that repeat a sample."""
    updates: float
    """The number of updates that a learning rate schedule counts in an epoch."""


class Shards(object):
    """The shards of the data set among the workers of a job.

    Raises BadInput if an environment variable or the file data_sharding does not fit the job.

    Args:
        environ: the environment. MXCLUSTER_INDEX is this worker's index (default: `rank`).
        kv: the name of the scheme, such as "dist_sync".
        workers: the number of workers of the job.
        rank: this worker's rank in ps-lite.
        samples: the number of samples of all workers in an epoch.
        allocate: 1 for the shares in the job's file data_sharding, 0 for equal shares.

    Attributes:
        index: the index of this worker.
        shares: the begin and end of each worker's share, as fractions of the data set.
        waiting: the worker indices of each set of workers that wait for each other.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        kv: str,
        workers: int,
        rank: int,
        samples: int,
        allocate: int,
    ) -> None:
        self.index, self.workers = int(environ.get("MXCLUSTER_INDEX", rank)), workers
        if not 0 <= self.index < workers:
            raise BadInput(
                "MXCLUSTER_INDEX=%d, but the job has %d workers: use an index from 0 to %d"
                % (self.index, workers, workers - 1)
            )
        self._kv, self._samples = kv, samples
        self.shares = _shares(environ, workers, allocate)
        names = environ.get("MXCLUSTER_GROUPS", "")
        self.waiting = schemes.waiting_sets(kv, groups(names, workers))

    def of_batch_size(self, batch_size: int) -> Work:
        """Return the Work of this worker for an epoch, with the same batch size for all workers.

        Raises BadInput if a shard is empty.
        """
        ranges = cluster_files.cut(self.shares, self._samples)
        batches, repeated = cluster_files.batches_per_epoch(ranges, batch_size, self.waiting)
        return self._work(ranges, batches, repeated)

    def of_sizes(self, sizes: Sequence[int]) -> Work:
        """Return the Work of this worker for an epoch with the batch `sizes` of all workers.

        Each set of workers that wait for each other keeps the sum of the set's shares. All workers
        of a set have the same number of batches. This number depends only on the sum of the set's
        batch sizes. Raises BadInput if a worker would have no sample.
        """
        return self._work(*self._epoch_of(sizes))

    def ranges_of_sizes(self, sizes: Sequence[int]) -> List[Tuple[int, int]]:
        """Return the range (first, last + 1) of the samples of each worker, as `of_sizes` does."""
        return self._epoch_of(sizes)[0]

    def _epoch_of(self, sizes: Sequence[int]) -> Tuple[List[Tuple[int, int]], List[int], List[int]]:
        lengths = [cluster_files.length(share) for share in self.shares]
        weights = [sum((lengths[one] for one in members), Fraction()) for members in self.waiting]
        return batch_sizes.epoch_of(sizes, self._samples, self.waiting, weights)

    def _work(
        self, ranges: Sequence[Tuple[int, int]], batches: Sequence[int], repeated: Sequence[int]
    ) -> Work:
        begin, end = ranges[self.index]
        counted = updates(self._kv, batches)
        return Work(begin, end, batches[self.index], repeated[self.index], counted)


def _shares(environ: Mapping[str, str], workers: int, allocate: int) -> List[cluster_files.Share]:
    """Return the share of each worker as a list of (begin, end), fractions of the data set.

    With `allocate` the shares come from the job's file data_sharding, else all shares are equal. A
    process outside a job always gets equal shares.
    """
    if not allocate or not environ.get("MXCLUSTER_JOB_DIR"):
        return [(number / workers, (number + 1) / workers) for number in range(workers)]
    path = os.path.join(environ["MXCLUSTER_JOB_DIR"], "data_sharding")
    try:
        with open(path) as stream:
            return cluster_files.parse_data_sharding(stream.read(), workers, path)
    except OSError as error:
        raise BadInput(
            "data_allocator=1 takes the shares of all workers from %s, but reading failed: %s. "
            "Start the job again with train.yml, which writes this file, or leave --data-allocator "
            "out" % (path, error.strerror)
        ) from None


def groups(text: str, workers: int) -> List[List[int]]:
    """Return the worker indices of each group, such as [[0, 1], [2, 3]] for "0,0,1,1".

    `text` (the value of MXCLUSTER_GROUPS) has the group of each worker. An empty `text` means one
    group of all workers. Raises BadInput if `text` does not have `workers` entries.
    """
    labels = text.split(",") if text else ["0"] * workers
    if len(labels) != workers:
        raise BadInput(
            "MXCLUSTER_GROUPS=%r names the groups of %d workers, but the job has %d workers: "
            "name one group for each worker" % (text, len(labels), workers)
        )
    return [
        [index for index in range(workers) if labels[index] == label]
        for label in sorted(set(labels))
    ]


def updates(kv: str, batches: Sequence[int]) -> float:
    """Return the number of updates of a weight that the servers count in an epoch (int or float).

    Under some schemes every push is an update, so the result is the sum of `batches`. Under the
    other schemes an update is a round of one push from each worker, so the result is the mean of
    `batches`. The result is the same for all workers, so the servers can get the optimizer of any
    worker.

    Args:
        kv: the name of the scheme, such as "dist_sync".
        batches: the number of batches of each worker.
    """
    return sum(batches) if schemes.of(kv).counts_pushes else sum(batches) / len(batches)


def lr_drops(
    updates_per_epoch: float, every: float, first_epoch: int, epochs: int
) -> Tuple[int, List[int]]:
    """Return (number of drops before this run, [updates before a drop, ...] for this run).

    The list has, for each drop of the learning rate in this run, the number of this run's updates
    before the drop. The learning rate drops every `every` epochs, counted from epoch 0. This run
    trains the epochs first_epoch .. epochs - 1. `updates_per_epoch` is the result of `updates`.
    Raises BadInput if the learning rate would drop more than once per update.
    """
    if every * updates_per_epoch < 1:
        raise BadInput(
            "lr_factor_epoch=%g is shorter than one update of the weights (an epoch has %g "
            "updates): use a larger value" % (every, updates_per_epoch)
        )
    times = [number * every for number in range(1, int(epochs / every) + 1)]
    # floor(x + 0.5), because round() takes both 1.5 and 2.5 to 2.
    drops = [math.floor((time - first_epoch) * updates_per_epoch + 0.5) for time in times]
    return sum(drop < 1 for drop in drops), [drop for drop in drops if drop >= 1]
