"""Fit the batch sizes of the workers to the workers' speeds, for `balance=batch`.

With `balance=deadline` the sizes are the planned samples of a step (`mxcluster.deadline`).

Source: LB-BSP, arXiv 1806.02508, and SoCC 2020, doi 10.1145/3419111.3421299.

Under dist_sync all workers wait for each other. Under dist_gsync the workers of a group wait for
each other. The batch sizes of such a set of workers always add up to the knob batch_size times the
number of workers in the set. A worker's gradient is the sum over the samples of its batch, so the
sum of the pushes does not depend on the sizes.

Each worker computes the sizes of all workers by itself, from the same speeds. Sums and quotients
are exact fractions, so all workers get the same sizes on any node. The functions do no I/O.
"""

import math
from fractions import Fraction
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from mxcluster.cluster_files import largest_remainder
from mxcluster.errors import BadInput, refuse

# The dead band, so that noise changes no size. The sizes change only if the size of one worker is
# far from the size that fits its speed. The distance must exceed DEAD_BAND times the size, and
# LEAST_MOVE samples.
DEAD_BAND, LEAST_MOVE = Fraction(1, 20), Fraction(3, 4)
SMOOTHING = 0.2  # weight of the newest step in the moving average of a worker's seconds per step
Weight = Union[float, Fraction]
MOST_MEASURED = 16  # maximum number of steps that a worker measures in an epoch


class State(NamedTuple):
    """The batch sizes of all workers, between two calls of `follow`.

    `follow` reads `directions` and `steps`, so that the sizes do not swing around their targets.
    """

    sizes: Tuple[int, ...]  # in samples
    directions: Tuple[int, ...]  # the last change of each size: 1 up, -1 down, 0 before any change
    steps: Tuple[Fraction, ...]  # each size moves by this fraction of the distance to its target


def start(sizes: Sequence[int]) -> State:
    """Return the first State of the workers, with the batch sizes `sizes` in samples."""
    return State(tuple(sizes), (0,) * len(sizes), (Fraction(1),) * len(sizes))


def follow(
    state: State,
    speeds: Sequence[float],
    least: Sequence[int],
    most: Sequence[int],
    workers: Sequence[int] = (),
) -> State:
    """Return the next State, with batch sizes that fit the workers' measured `speeds` better.

    With the target sizes, all workers take the same time for a batch, as far as `least` and `most`
    allow. If every size is near its target (DEAD_BAND, LEAST_MOVE), the function returns `state`.
    Otherwise each size moves by a fraction of the distance to its target. `follow` halves the
    fraction if the size changes its direction, and doubles the fraction, up to 1, if the size keeps
    its direction. So the sizes also converge if the speed of a worker depends on its batch size.

    Args: `speeds` in samples per second; `least` and `most` the bounds of each worker's size, in
    samples; `workers` the indices of the workers for messages (default: 0, 1, ...). Raises BadInput
    with the worker's name for a speed that is not a finite number above 0.
    """
    _check_speeds(dict(zip(workers or range(len(speeds)), speeds)))
    sizes, total = state.sizes, sum(state.sizes)
    fitting = _quotas(speeds, total, least, most)
    if all(
        abs(quota - size) <= max(DEAD_BAND * size, LEAST_MOVE)
        for quota, size in zip(fitting, sizes)
    ):
        return state
    targets = divide(speeds, total, least, most)
    directions, steps = list(state.directions), list(state.steps)
    wanted: List[Fraction] = []
    for worker, (target, size) in enumerate(zip(targets, sizes)):
        direction = (target > size) - (target < size)
        if direction:
            before = directions[worker]
            if before:
                steps[worker] = (
                    min(Fraction(1), 2 * steps[worker])
                    if direction == before
                    else steps[worker] / 2
                )
            directions[worker] = direction
        wanted.append(size + steps[worker] * (target - size))
    return State(tuple(divide(wanted, total, least, most)), tuple(directions), tuple(steps))


def divide(
    weights: Sequence[Weight], total: int, least: Sequence[int], most: Sequence[int]
) -> List[int]:
    """Return batch sizes in proportion to `weights`, with the sum `total`, in samples.

    The largest remainder method rounds the sizes. If a bound limits the size of a worker, the other
    workers share the difference.

    Args: `weights` numbers above 0 (int, float or Fraction), one for each worker; `least` and
    `most` the bounds of each worker's size, in samples. Raises BadInput if no sizes within the
    bounds have the sum `total`.
    """
    check_bounds(total, least, most)
    return largest_remainder(_quotas(weights, total, least, most), total)


def check_bounds(total: int, least: Sequence[int], most: Sequence[int]) -> None:
    """Raise BadInput unless the bounds of the workers allow batch sizes with the sum `total`.

    Args: `total` the samples of a step; `least` and `most` the bounds of each worker's size, in
    samples.
    """
    if total < len(least):
        raise BadInput(
            "a step has %d samples for %d workers, but each worker needs at least one sample: use "
            "a larger batch_size, or fewer workers" % (total, len(least))
        )
    refuse(
        "the batch size of worker %d has the lower bound %d and the upper bound %d: the lower "
        "bound must be at least 1, and the upper bound (worker_batch_max) must be at least the "
        "lower bound" % (worker, low, high)
        for worker, (low, high) in enumerate(zip(least, most))
        if not 1 <= low <= high
    )
    if sum(least) > total or sum(most) < total:
        raise BadInput(
            "a step has %d samples, but all workers together take at least %d and at most %d: use "
            "%s batch_size"
            % (
                total,
                sum(least),
                sum(most),
                "a larger" if sum(least) > total else "a larger worker_batch_max, or a smaller",
            )
        )


def check_sizes(
    sizes: Sequence[int], total: int, least: Sequence[int], most: Sequence[int]
) -> None:
    """Raise BadInput unless `sizes` has a valid batch size for each worker, and the sum `total`.

    The sizes come from the command line of a worker, which a user may start by hand.

    Args: `least` and `most` the bounds of each worker's size, in samples.
    """
    check_count("the batch sizes", sizes, len(least))
    refuse(
        "the batch size %d of worker %d is outside the bounds %d to %d: correct this size"
        % (size, worker, low, high)
        for worker, (size, low, high) in enumerate(zip(sizes, least, most))
        if not low <= size <= high
    )
    if sum(sizes) != total:
        raise BadInput(
            "the batch sizes %s add up to %d, but a step has %d samples (batch_size times the "
            "number of workers): give sizes with this sum" % (shown(sizes), sum(sizes), total)
        )


def check_count(name: str, sizes: Sequence[int], workers: int) -> None:
    """Raise BadInput unless `sizes` has one batch size for each of the `workers` workers.

    Args: `name` the subject of the message, such as "the batch sizes".
    """
    if len(sizes) != workers:
        raise BadInput(
            "%s (%s) are for %d workers, but the job has %d workers: give one size for each worker"
            % (name, shown(sizes), len(sizes), workers)
        )


def shown(sizes: Sequence[float], most: int = 8) -> str:
    """Return `sizes` as text, such as "48/16", or "4-48" for more than `most` sizes."""
    if len(sizes) > most:
        return "%d-%d" % (min(sizes), max(sizes))
    return "/".join(map(str, sizes))


def epoch_of(
    sizes: Sequence[int],
    samples: int,
    waiting: Sequence[Sequence[int]],
    weights: Sequence[Fraction],
) -> Tuple[List[Tuple[int, int]], List[int], List[int]]:
    """Divide the samples of an epoch among the workers, and count the batches of each worker.

    The workers in a set of `waiting` wait for each other. Each set gets samples in proportion to
    its weight, and each worker of a set gets samples in proportion to its batch size. All workers
    of a set have the same number of batches: the samples of the set divided by the sum of the
    workers' sizes, rounded up. A worker with too few samples for these batches repeats some
    samples. The ranges and batches of a set do not depend on the sizes of other sets.

    Args: `sizes` the batch size of each worker; `samples` the number of samples of an epoch;
    `waiting` the sets, as from `schemes.waiting_sets`; `weights` the weight of each set.

    Returns three lists with an entry for each worker: the range (first, last + 1) of its samples,
    the number of its batches, and the number of samples that it repeats. Raises BadInput if a
    worker would get no sample.
    """
    ranges, batches, repeated = [(0, 0)] * len(sizes), [0] * len(sizes), [0] * len(sizes)
    of_sets = largest_remainder([weight * samples / sum(weights) for weight in weights], samples)
    first = 0
    for members, of_set in zip(waiting, of_sets):
        total = sum(sizes[worker] for worker in members)
        counts = largest_remainder(
            [Fraction(sizes[worker] * of_set, total) for worker in members], of_set
        )
        refuse(
            "worker %d has %d of the %d samples of a step, and would get none of the %d training "
            "samples: use fewer workers (num_workers)" % (worker, sizes[worker], total, of_set)
            for worker, count in zip(members, counts)
            if not count
        )
        for worker, count in zip(members, counts):
            ranges[worker], batches[worker] = (first, first + count), -(-of_set // total)
            repeated[worker] = batches[worker] * sizes[worker] - count
            first += count
    return ranges, batches, repeated


def measured_steps(batches: int) -> List[int]:
    """Return the numbers of the steps that a worker measures in an epoch, in rising order.

    A measurement waits for the end of the backward pass, which otherwise overlaps with the pushes.
    So a worker measures at most MOST_MEASURED steps, evenly over the epoch. The worker skips step
    0, in which MXNet may allocate memory and choose algorithms for a new batch size. If the epoch
    has one batch, the worker measures step 0.

    Args: `batches` the number of batches of the epoch.
    """
    if batches == 1:
        return [0]
    count = min(MOST_MEASURED, batches - 1)
    return [1 + number * (batches - 1) // count for number in range(count)]


class Speed:
    """The speed of one worker: its batch size divided by its average seconds for a batch.

    The average is a moving average with the weight SMOOTHING. Under a quota of CPU time a worker
    computes a batch in a burst at full speed, if it has waited for other workers before. In the
    long run a batch then takes as long as the quota needs for the CPU time of a whole step. So the
    longer of both times counts.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._seconds: Optional[float] = None
        self._of_quota, self._steps = 0.0, 0
        self._last = math.nan

    def resize(self, size: int) -> None:
        """Set the batch size to `size` samples, and begin a new average if the size changes."""
        if size != self._size:
            self._last = self.value()
            self._size, self._seconds = size, None
            self._of_quota, self._steps = 0.0, 0

    def add(self, seconds: float) -> None:
        """Add the `seconds` of one batch to the moving average."""
        seconds = max(seconds, 1e-9)  # the resolution of the clock
        before = seconds if self._seconds is None else self._seconds
        self._seconds = SMOOTHING * seconds + (1 - SMOOTHING) * before

    def add_quota(self, seconds: float) -> None:
        """Add the `seconds` that the quota needs for the CPU time of one step, 0 without a quota.

        The average of all steps counts, because other programs under the quota run now and then.
        """
        self._of_quota += seconds
        self._steps += 1

    def value(self) -> float:
        """Return the speed in samples per second, or NaN before the first measurement.

        Between `resize` and the next `add`, the method returns the speed with the previous size.
        """
        if self._seconds is None:
            return self._last
        return self._size / max(self._seconds, self._of_quota / max(1, self._steps))


def _check_speeds(speeds: Dict[int, float]) -> None:
    refuse(
        "worker-%d measured a speed of %r samples/s, but a speed must be a number above 0: read "
        "the worker's log. If the clock of the worker's node is wrong, train with balance=none"
        % (worker, speed)
        for worker, speed in speeds.items()
        if not (math.isfinite(speed) and speed > 0)
    )


def _quotas(
    weights: Sequence[Weight], total: int, least: Sequence[int], most: Sequence[int]
) -> List[Fraction]:
    """Return exact parts of `total` in proportion to `weights`, within `least` and `most`.

    A part is a common factor times the weight of the worker, raised or cut to the worker's bounds.
    Each round computes the factor for the workers whose parts are not final yet. If the raised
    parts gain more than the cut parts lose, this factor is too large. A smaller factor keeps the
    raised parts at their lower bounds, so these parts are final. In the opposite case the cut parts
    are final, at their upper bounds.
    """
    exact = [Fraction(weight) for weight in weights]
    fixed: Dict[int, Fraction] = {}
    while len(fixed) < len(exact):
        free = [worker for worker in range(len(exact)) if worker not in fixed]
        factor = Fraction(total - sum(fixed.values())) / sum(exact[worker] for worker in free)
        below = {i: Fraction(least[i]) for i in free if exact[i] * factor < least[i]}
        above = {i: Fraction(most[i]) for i in free if exact[i] * factor > most[i]}
        if not below and not above:
            fixed.update({worker: exact[worker] * factor for worker in free})
            break
        cut_below = sum(least[i] - exact[i] * factor for i in below)
        cut_above = sum(exact[i] * factor - most[i] for i in above)
        if cut_below >= cut_above:
            fixed.update(below)
        if cut_below <= cut_above:
            fixed.update(above)
    return [fixed[worker] for worker in range(len(exact))]
