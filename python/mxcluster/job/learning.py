"""Decide whether a job learned, from the losses that its workers reported."""

import math
from typing import List, Optional, Sequence

from mxcluster.datasets import DATASETS
from mxcluster.lists import grouped
from mxcluster.model.events import Batch, Event
from mxcluster.model.job_knobs import Options
from mxcluster.model.plan import Plan

# The later epochs are all epochs after the first epoch.
LATE = 0.25  # this fraction of the later epochs, at the end of the job, gives the final loss
SMALLEST = 0.01  # fraction of the first loss by which the loss must fall
ENOUGH = 5  # number of later epochs from which the noise of a loss can be estimated
GUESSING = 3.0  # an accuracy of at least this number times that of a guess proves learning


def problem(plan: Plan, events: Sequence[Event], accuracy: Optional[float]) -> Optional[str]:
    """Return a message with the first and last loss if the job learned nothing, else None.

    A job learned if its mean loss fell from the first epoch to the last epochs. The fall must
    exceed the noise and 1 % of the first loss. The noise is twice the standard deviation of an
    epoch's loss. A far too large first step can raise the first loss above the loss of a guess. In
    this case the loss of a guess replaces the first loss.

    The result is also None if fewer than two epochs have losses, or if the accuracy is far above
    the accuracy of a guess.

    Args: `plan` of the job; `events` of all nodes; `accuracy` on held-out samples at the end (0 to
    1), None if unknown.
    """
    losses = by_epoch(events)
    if len(losses) < 2:
        return None
    guess, first = _classes(plan.options), losses[0]
    if guess and accuracy is not None and accuracy >= GUESSING / guess:
        return None
    start = min(first, math.log(guess)) if guess else first
    later = losses[1:]
    late = later[-max(1, int(len(later) * LATE)) :]
    level = sum(late) / len(late)
    if start - level > max(_noise(later), SMALLEST * start):
        return None
    return "the job learned nothing: its loss was %.3g in the first epoch and %.3g at the end%s" % (
        first,
        level,
        "" if accuracy is None else ", its accuracy %.3g" % accuracy,
    )


def cannot_tell(plan: Plan, events: Sequence[Event], accuracy: Optional[float]) -> Optional[str]:
    """Return a warning if a job was too short for a judgement of its learning, else None.

    A job is too short if its losses cover fewer than two epochs. A job with an unknown accuracy, or
    an accuracy far above the accuracy of a guess, gets no warning. A job with a script gets no
    warning, because the number of classes is unknown.

    Args: the same as for `problem`.
    """
    guess = _classes(plan.options)
    if (
        guess is None
        or accuracy is None
        or len(by_epoch(events)) > 1
        or accuracy >= GUESSING / guess
    ):
        return None
    return (
        "the accuracy of %.3g is close to a guess, and one epoch is too short to show "
        "whether the job learns: train more epochs" % accuracy
    )


def _classes(options: Options) -> Optional[int]:
    """Return the number of classes of the data set, or None for a script or an unknown data set."""
    return (
        None if options.script or options.data not in DATASETS else DATASETS[options.data].classes
    )


def _noise(losses: List[float]) -> float:
    """Return twice the standard deviation of an epoch's loss, estimated from `losses`.

    The estimate uses the differences of neighbouring losses, because a trend hardly changes these
    differences. The result is 0.0 for fewer than ENOUGH losses.

    Args: `losses` the mean loss of each epoch.
    """
    if len(losses) < ENOUGH:
        return 0.0
    steps = [after - before for before, after in zip(losses, losses[1:])]
    return 2 * math.sqrt(sum(step * step for step in steps) / len(steps) / 2)


def by_epoch(events: Sequence[Event]) -> List[float]:
    """Return the mean loss of each epoch, in the order of the epochs. `events` of all nodes."""
    losses = grouped(
        (event.epoch, event.loss)
        for event in events
        if isinstance(event, Batch) and event.epoch is not None and event.loss is not None
    )
    return [sum(losses[epoch]) / len(losses[epoch]) for epoch in sorted(losses)]
