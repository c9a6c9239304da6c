"""Decide when each worker ends its step, for `balance=deadline`.

Source: Anytime Minibatch, Ferdinand et al., ICLR 2019. There, workers of unequal speed compute for
the same time, and the update is the mean over all samples that they have computed.

A step of a worker consists of small batches of one size. The worker begins small batches until the
deadline T, in seconds since the begin of its step. The workers that wait for each other tell each
other their counts of samples and their seconds a sample. All of them compute the next T from the
same numbers, with operations that give the same bits on any node. The functions do no I/O.
"""

import math
from typing import List, NamedTuple, Optional, Sequence, Tuple

from mxcluster.batch_sizes import SMOOTHING
from mxcluster.errors import refuse

PIECES = 16  # small batches in the step of a worker, as far as the bounds of their size allow
FIRST_STEPS = 4  # the size of the small batches follows the measured speeds after these steps
MOST_CHANGE = 2.0  # largest factor between the deadlines of two steps
NEWEST = 0.5  # weight of the newest small batch in the expected time of the next one
FEW = 8  # samples; BatchNorm takes mean and variance of fewer samples with much noise


class State(NamedTuple):
    """What all workers that wait for each other know before a step."""

    speeds: Tuple[float, ...]  # the smoothed speed of each worker in samples/s, 0 if unknown
    seconds: Optional[float]  # the deadline T, None before all speeds are known


def start(workers: int) -> State:
    """Return the State of `workers` workers before their first step."""
    return State((0.0,) * workers, None)


def heard(
    state: State, samples: int, per_sample: Sequence[float], workers: Sequence[int] = ()
) -> State:
    """Return the State after a step: new speeds, and T = `samples` / (sum of the speeds).

    T is at most MOST_CHANGE times the T before, and at least T before / MOST_CHANGE.

    Args: `samples` of a step as planned, batch_size times the number of workers; `per_sample` the
    seconds a sample of each worker in its last small batches, 0 if unknown; `workers` the indices
    of the workers for messages. Raises BadInput with the worker's name for an impossible number.
    """
    refuse(
        "worker-%d measured %r seconds for a sample: read the worker's log. If the clock of the "
        "worker's node is wrong, train with balance=none" % (worker, seconds)
        for worker, seconds in zip(workers or range(len(per_sample)), per_sample)
        if not (math.isfinite(seconds) and seconds >= 0)
    )
    speeds = tuple(
        _smoothed(before, 1 / seconds) if seconds else before
        for before, seconds in zip(state.speeds, per_sample)
    )
    if not all(speeds):
        return State(speeds, None)
    # fsum() rounds once on any Python. sum() has other roundings from Python 3.12 on.
    seconds = samples / math.fsum(speeds)
    if state.seconds is not None:
        seconds = max(seconds, state.seconds / MOST_CHANGE)
        seconds = min(seconds, state.seconds * MOST_CHANGE)
    return State(speeds, seconds)


def _smoothed(before: float, newest: float) -> float:
    return SMOOTHING * newest + (1 - SMOOTHING) * before if before else newest


def goes_on(
    done: int, elapsed: float, expected: float, deadline: Optional[float], planned: int
) -> bool:
    """Return True if a worker begins another small batch in its step.

    A worker runs at least one. It begins another one if this one is expected to end nearer to the
    deadline than stopping now. Without a deadline it runs `planned` small batches.

    Args: `done` the small batches of the step so far; `elapsed` the seconds since the begin of the
    step; `expected` the seconds of the next small batch; `deadline` T.
    """
    if not done:
        return True
    if deadline is None:
        return done < planned
    return elapsed + expected / 2 < deadline


def small_sizes(planned: Sequence[int], least: Sequence[int], most: Sequence[int]) -> List[int]:
    """Return the size of the small batches of each worker, in samples.

    A small batch is a sixteenth (PIECES) of the samples of a step that are planned for its worker,
    within the bounds `least` and `most` of the worker.
    """
    return [
        min(max(low, (2 * size + PIECES) // (2 * PIECES)), high)
        for size, low, high in zip(planned, least, most)
    ]


def planned_batches(planned: int, small: int) -> int:
    """Return the number of small batches with about `planned` samples, at least 1."""
    return max(1, (2 * planned + small) // (2 * small))


def remainder(counts: Sequence[int], per_sample: Sequence[float], place: int) -> float:
    """Return the seconds between the end of a worker's small batches and the last worker's end.

    All workers begin a step at about the same time. A worker's small batches take its seconds a
    sample times its count. No clocks are compared.

    Args: `counts` the samples of each worker in the step; `per_sample` as told in the step;
    `place` of the worker in these lists.
    """
    ends = [count * seconds for count, seconds in zip(counts, per_sample)]
    return max(ends) - ends[place]


class Cost(object):
    """The seconds that a worker needs for a sample in its small batches.

    The first small batch of a size does not count: MXNet may allocate memory for it and choose
    algorithms.

    Args:
        per_sample: the seconds a sample of an earlier training, 0 if unknown.
    """

    def __init__(self, per_sample: float = 0.0) -> None:
        self._average, self._is_first = per_sample, True
        self._seconds, self._samples = 0.0, 0  # since the last call of `take`

    def resize(self) -> None:
        """Skip the next small batch, which has another size."""
        self._is_first = True

    def add(self, seconds: float, samples: int) -> None:
        """Add a small batch of `samples` samples that took `seconds`."""
        if self._is_first:
            self._is_first = False
            return
        seconds = max(seconds, 1e-9)  # the resolution of the clock
        newest, before = seconds / samples, self._average
        self._average = NEWEST * newest + (1 - NEWEST) * before if before else newest
        self._seconds += seconds
        self._samples += samples

    def of(self, samples: int) -> float:
        """Return the expected seconds of a small batch of `samples` samples, 0 if unknown."""
        return samples * self._average

    def take(self) -> float:
        """Return the mean seconds a sample since the last call, 0 before any measurement.

        Without a measurement since the last call, the method returns the expected seconds.
        """
        mean = self._seconds / self._samples if self._samples else self._average
        self._seconds, self._samples = 0.0, 0
        return mean


class Walk(NamedTuple):
    """The place of a worker in its shard, which it trains in passes, each in another order."""

    number: int  # of the pass, from 0
    position: int  # the samples of this pass that the worker has trained


def walked(walk: Walk, samples: int, length: int) -> Walk:
    """Return the Walk after `samples` more samples of a shard of `length` samples."""
    passes, position = divmod(walk.position + samples, length)
    return Walk(walk.number + passes, position)


def anew(walk: Walk) -> Walk:
    """Return the Walk at the begin of the first pass that the worker has not begun."""
    return Walk(walk.number + (walk.position > 0), 0)
