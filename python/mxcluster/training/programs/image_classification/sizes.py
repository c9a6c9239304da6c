"""Check the first batch sizes of a job's workers, and their bounds.

With `balance=deadline` the sizes are the planned samples of a step, and the bounds are those of the
small batches.
"""

from typing import NamedTuple, Sequence

from mxcluster import batch_sizes
from mxcluster.model.job_knobs import DEADLINE
from mxcluster.model.program_arguments import ProgramArguments
from mxcluster.training.programs.image_classification.shard import Shards


class Sizes(NamedTuple):
    """The batch sizes of the job's workers, each a list by index."""

    first: Sequence[int]
    least: Sequence[int]
    most: Sequence[int]


def sizes_of(args: ProgramArguments, shards: Shards) -> Sizes:
    """Return the batch sizes of the job's workers.

    Raises BadInput if the sizes contradict each other.

    Args:
        args: the arguments of the program.
        shards: the shards of the workers.
    """
    sizes = args.batch_sizes or [args.batch_size] * shards.workers
    by_deadline = args.balance == DEADLINE
    usual = args.least_batch if by_deadline else 1
    least, most = args.batch_least or [usual] * shards.workers, args.batch_most
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
        own, low, high = (
            [numbers[worker] for worker in members] for numbers in (sizes, least, most)
        )
        if by_deadline:  # The bounds are those of small batches. A step has at least one of them.
            high = [total] * len(members)
            batch_sizes.check_bounds(total, low, high)
            low = [1] * len(members)
        batch_sizes.check_bounds(total, low, high)
        batch_sizes.check_sizes(own, total, low, high)
    return Sizes(sizes, least, most)
