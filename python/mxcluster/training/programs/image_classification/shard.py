"""Pure: which part of the data is a worker's own, how many batches it trains, and when the learning rate drops."""
import collections
import math
import os

from mxcluster import clusterfiles
from mxcluster.errors import BadInput

Work = collections.namedtuple("Work", "index begin end batches repeated updates")
Work.__doc__ = """What worker `index` does in an epoch: so many batches of the samples begin .. end - 1 (numbers in the
data set), `repeated` samples again to fill them. `updates`: what an epoch counts for the lr schedule."""


def from_env(environ, kv, workers, rank, samples, batch_size, allocate):
    """The Work of this process, one of `workers`, of an epoch of so many samples. Raises BadInput if there is none.

    environ: its MXCLUSTER_* variables; without them it is worker `rank`. allocate: shares of the job's file
    data_sharding instead of equal ones.
    """
    index = int(environ.get("MXCLUSTER_INDEX", rank))
    if not 0 <= index < workers:
        raise BadInput("MXCLUSTER_INDEX=%d, but the job has %d workers, counted from 0" % (index, workers))
    shares = [(number / workers, (number + 1) / workers) for number in range(workers)]
    if allocate and environ.get("MXCLUSTER_JOB_DIR"):
        shares = _read_shares(os.path.join(environ["MXCLUSTER_JOB_DIR"], "data_sharding"), workers)
    ranges = clusterfiles.cut(shares, samples)
    waiting = clusterfiles.waiting_sets(kv, groups(environ.get("MXCLUSTER_GROUPS", ""), workers))
    batches, repeated = clusterfiles.batches_per_epoch(ranges, batch_size, waiting)
    begin, end = ranges[index]
    return Work(index, begin, end, batches[index], repeated[index], updates(kv, batches))


def _read_shares(path, workers):
    try:
        with open(path) as stream:
            return clusterfiles.parse_data_sharding(stream.read(), workers, path)
    except OSError as error:
        raise BadInput("%s, from which --data-allocator 1 takes the shares of all workers, cannot be read: %s"
                       % (path, error.strerror)) from None


def groups(text, workers):
    """Lists of worker indices from MXCLUSTER_GROUPS ("0,0,1,1": the group of each worker); if empty, one of all."""
    labels = text.split(",") if text else ["0"] * workers
    if len(labels) != workers:
        raise BadInput("MXCLUSTER_GROUPS=%r names the groups of %d workers, but the job has %d"
                       % (text, len(labels), workers))
    return [[index for index in range(workers) if labels[index] == label] for label in sorted(set(labels))]


def updates(kv, batches):
    """Updates of a weight that the servers count in an epoch, given the batches of every worker (list of int).

    dist_async counts every push of every worker. In all other schemes one update is a round in which every worker has
    pushed once (the stores of dist_gsync and dist_ssync count like that), so an epoch has as many as the workers have
    batches on average. The figure is the same for all workers, as it is not defined whose optimizer the servers get.
    """
    return sum(batches) if kv == "dist_async" else sum(batches) / len(batches)


def lr_drops(updates_per_epoch, every, first_epoch, epochs):
    """When the learning rate drops: (drops before this run, [updates of this run after which it drops, rising]).

    It drops every `every` epochs (a fraction is allowed), counted from epoch 0; this run trains the epochs
    first_epoch .. epochs - 1. Raises BadInput if it dropped more than once per update.
    """
    if every * updates_per_epoch < 1:
        raise BadInput("--lr-factor-epoch %g is less than a single batch: an epoch has %g" % (every, updates_per_epoch))
    times = [number * every for number in range(1, int(epochs / every) + 1)]
    # floor(x + 0.5), since round() takes 1.5 and 2.5 both to 2.
    drops = [math.floor((time - first_epoch) * updates_per_epoch + 0.5) for time in times]
    return sum(drop < 1 for drop in drops), [drop for drop in drops if drop >= 1]
