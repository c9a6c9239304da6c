"""Make the lines of a worker's log about its share and its batch sizes. All functions are pure.

With balance=deadline a worker has planned samples of a step instead of a batch size. It goes on in
its shard from step to step, so it repeats no sample to fill up a batch.
"""

from mxcluster import batch_sizes
from mxcluster.model.events import Balance
from mxcluster.model.job_knobs import DEADLINE
from mxcluster.model.program_arguments import ProgramArguments
from mxcluster.training.programs.image_classification.shard import Work


def start(args: ProgramArguments, share: Work, worker: int, side: int, size: int) -> str:
    """Return the line about the network, the data and the share of a worker.

    Args: `worker` its index; `side` of a picture in pixels; `size` the batch size of the worker,
    with balance=deadline its planned samples of a step.
    """
    if args.balance == DEADLINE:
        epoch = "about %d steps, each with %d planned samples" % (share.batches, size)
    else:
        epoch = "%d batches of %d samples, with %d repeated samples" % (
            *(share.batches, size, share.repeated),
        )
    return (
        "worker %d trains %s on %s with images of %d x %d pixels. The share of this worker is "
        "samples %d to %d. An epoch has %s"
        % (worker, args.network, args.data, side, side, share.begin, share.end - 1, epoch)
    )


def small_share(args: ProgramArguments, share: Work, worker: int, size: int) -> str:
    """Return a note about a share that is smaller than a batch, "" for another share.

    Args: as for `start`.
    """
    samples = share.end - share.begin
    if args.balance == DEADLINE or samples >= size:
        return ""
    return (
        "batch_size %d is larger than the share of worker %d (%d samples), so every batch "
        "repeats samples: use a smaller batch_size" % (size, worker, samples)
    )


def change(args: ProgramArguments, share: Work, event: Balance) -> str:
    """Return the line about new sizes. Args: `share` the new one of this worker; `event` the sizes.

    The sizes and speeds are those of the workers that wait for each other.
    """
    by_deadline = args.balance == DEADLINE
    repeated = "" if by_deadline else ", %d repeated" % share.repeated
    return "epoch %d: %s %s for speeds of %s samples/s. This worker trains samples %d to %d%s" % (
        event.epoch,
        "planned samples of a step" if by_deadline else "batch sizes",
        batch_sizes.shown(event.sizes),
        batch_sizes.shown([round(speed, 1) for speed in event.speeds]),
        share.begin,
        share.end - 1,
        repeated,
    )
