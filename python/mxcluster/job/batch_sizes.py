"""Fit the batch sizes of the workers to their speeds, for `balance=batch`. Pure.

Source: LB-BSP, arXiv 1806.02508, and SoCC 2020, doi 10.1145/3419111.3421299. The sizes of the
workers that wait for each other always add up to the knob batch_size times the number of these
workers. Under dist_sync these are all workers, under dist_gsync those of a group. A worker's
gradient is the sum over its samples, so the sum of the pushes does not depend on the sizes.

Each worker computes the sizes by itself, from the same speeds. Sums and quotients are exact
(fractions), so that all workers get the same sizes on any machine.
"""

import math
from fractions import Fraction
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from mxcluster.cluster.files import largest_remainder
from mxcluster.errors import BadInput, refuse

# Dead band, so that noise changes no size. Sizes change only if, for at least one worker, the size
# that fits its speed differs by more than this part of its size and by more than this number of
# samples.
DEAD_BAND, LEAST_MOVE = Fraction(1, 20), Fraction(3, 4)
SMOOTHING = 0.2  # weight of the newest step in the moving average of a worker's seconds
MOST_MEASURED = 16  # steps of an epoch that a worker measures


class State(NamedTuple):
    """The batch sizes of all workers, and the last change of each size."""

    sizes: Tuple[int, ...]
    directions: Tuple[int, ...]  # of each size's last change: 1 up, -1 down, 0 without a change
    steps: Tuple[Fraction, ...]  # the part of its distance to the target by which a size changes


def start(sizes: Sequence[int]) -> State:
    """Return the State of workers that begin with the batch `sizes`."""
    return State(tuple(sizes), (0,) * len(sizes), (Fraction(1),) * len(sizes))


def follow(
    state: State,
    speeds: Sequence[float],
    least: Sequence[int],
    most: Sequence[int],
    workers: Sequence[int] = (),
) -> State:
    """Return the State after the workers have measured `speeds`. In the dead band it is `state`.

    Under the new sizes all workers need the same time for a batch, as far as `least` and `most`
    allow. A size changes by a part of its distance to the target. This part is halved if the size
    changes its direction, and doubled, at most to the whole distance, if the size keeps its
    direction. So sizes also converge if the speed of a worker depends on its batch size.

    Args: `speeds` in samples per second; `least` and `most` the bounds of each worker's size;
    `workers` the workers' indices for messages, 0, 1 and so on by default. Raises BadInput for a
    speed that is not a number above 0, with the worker's name.
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
    weights: Sequence[Any], total: int, least: Sequence[int], most: Sequence[int]
) -> List[int]:
    """Return batch sizes in proportion to `weights`, with the sum `total`.

    The largest remainder method rounds the sizes. A size stays within its bounds, and the other
    workers share the difference.

    Args: `weights` numbers above 0 (int, float or Fraction); `least` and `most` the bounds. Raises
    BadInput if no sizes within the bounds have the sum `total`.
    """
    check_bounds(total, least, most)
    return largest_remainder(_quotas(weights, total, least, most), total)


def check_bounds(total: int, least: Sequence[int], most: Sequence[int]) -> None:
    """Raise BadInput unless some sizes from `least` to `most` of each worker add up to `total`."""
    if total < len(least):
        raise BadInput(
            "a step has %d samples for %d workers, but each worker needs at least one: use a "
            "larger batch_size, or fewer workers" % (total, len(least))
        )
    refuse(
        "worker %d has the lower bound %d and the upper bound %d for its batch size: the lower "
        "bound must be at least 1, and the upper bound (worker_batch_max) at least as large"
        % (worker, low, high)
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
    """Raise BadInput unless `sizes` are batch sizes within the bounds, with the sum `total`.

    The bounds are those of `divide`.
    """
    check_count("the batch sizes", sizes, len(least))
    refuse(
        "the batch size %d of worker %d is not from %d to %d: give a size within these bounds"
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
    """Raise BadInput unless `sizes`, called `name` in the message, has an entry for each worker."""
    if len(sizes) != workers:
        raise BadInput(
            "%s (%s) are for %d workers, but the job has %d: give one size for each worker"
            % (name, shown(sizes), len(sizes), workers)
        )


def shown(sizes: Sequence[float], most: int = 8) -> str:
    """Return `sizes` as text: "48/16", or "4-48" for more than `most` workers."""
    if len(sizes) > most:
        return "%d-%d" % (min(sizes), max(sizes))
    return "/".join(map(str, sizes))


def epoch_of(
    sizes: Sequence[int],
    samples: int,
    waiting: Sequence[Sequence[int]],
    weights: Sequence[Fraction],
) -> Tuple[List[Tuple[int, int]], List[int], List[int]]:
    """Return ([range of samples (first, last + 1)], [batches], [repeated samples]), by worker.

    The ranges cover the `samples` samples of an epoch once. A set of workers gets samples in
    proportion to its weight, and shares them in proportion to the batch `sizes`. The workers of a
    set have the same number of batches: the samples of the set / sum(sizes), rounded up. A worker
    whose range has too few samples for these batches repeats some. The ranges and batches of a set
    do not depend on the sizes of other sets. Raises BadInput if a worker would get no sample.

    Args: `waiting` the sets of workers that wait for each other, as from `schemes.waiting_sets`;
    `weights` of the sets.
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
            "worker %d, with %d of the %d samples of a step, would get none of the %d training "
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
    """Return the steps of an epoch of `batches` batches that a worker measures, in rising order.

    A measurement waits for the end of the backward pass, which otherwise overlaps with the pushes.
    So a worker measures at most MOST_MEASURED steps, evenly over the epoch. It leaves out the first
    step, in which MXNet may allocate memory and choose algorithms for a new batch size. In an epoch
    of one batch the worker measures the first step.
    """
    if batches == 1:
        return [0]
    count = min(MOST_MEASURED, batches - 1)
    return [1 + number * (batches - 1) // count for number in range(count)]


class Speed:
    """The speed of one worker: batch size divided by the moving average of seconds for a batch."""

    def __init__(self, size: int):
        self._size = size
        self._seconds: Optional[float] = None
        self._last = math.nan

    def resize(self, size: int) -> None:
        """Begin a new average for the batch size `size`, unless the size is already `size`."""
        if size != self._size:
            self._last = self.value()
            self._size, self._seconds = size, None

    def add(self, seconds: float) -> None:
        """Add the `seconds` of one batch."""
        seconds = max(seconds, 1e-9)  # the resolution of the clock
        before = seconds if self._seconds is None else self._seconds
        self._seconds = SMOOTHING * seconds + (1 - SMOOTHING) * before

    def value(self) -> float:
        """Return the speed in samples per second, or NaN before the first measurement.

        Between `resize` and the next measurement, the speed is that of the previous size.
        """
        return self._last if self._seconds is None else self._size / self._seconds


def _check_speeds(speeds: Dict[int, float]) -> None:
    refuse(
        "worker-%d measured a speed of %r samples/s, which is not a number above 0: read the "
        "worker's log. If the clock of its node is wrong, train with balance=none" % (worker, speed)
        for worker, speed in speeds.items()
        if not (math.isfinite(speed) and speed > 0)
    )


def _quotas(
    weights: Sequence[Any], total: int, least: Sequence[int], most: Sequence[int]
) -> List[Fraction]:
    """Return exact shares of `total` in proportion to `weights`, within the bounds.

    A share is a common factor times the weight, raised or cut to the worker's bounds. Each round
    computes the factor of the workers without a final share. If raising adds more than cutting
    removes, this factor is too large. A smaller factor leaves the raised shares below their lower
    bounds, so these bounds are final. In the opposite case the upper bounds of the cut shares are
    final.
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
