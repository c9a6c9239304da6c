"""Decide whether a job learned, from the losses that its workers reported."""

import math
from typing import List, Optional, Sequence, Tuple

from mxcluster.datasets import DATASETS
from mxcluster.job import script_figures
from mxcluster.lists import grouped
from mxcluster.model.events import Batch, Event
from mxcluster.model.job_knobs import Options
from mxcluster.model.plan import Plan

# The later epochs are all epochs after the first epoch.
LATE = 0.25  # this fraction of the later epochs, at the end of the job, gives the final loss
SMALLEST = 0.01  # fraction of the first loss by which the loss must fall
ENOUGH = 5  # number of later epochs from which the noise of a loss can be estimated
GUESSING = 3.0  # an accuracy of at least this number times that of a guess proves learning


def judge(plan: Plan, events: Sequence[Event], accuracy: Optional[float]) -> Tuple[str, str]:
    """Return (problem, warning) about the learning of a job, each "" without one.

    The problem is that the job learned nothing, with the first and last loss. A job learned if its
    mean loss fell from the first epoch to the last epochs. The fall must exceed the noise and 1 %
    of the first loss. The noise is twice the standard deviation of an epoch's loss. A far too large
    first step can raise the first loss above the loss of a guess. In this case the loss of a guess
    replaces the first loss.

    The warning is that the losses cover fewer than two epochs. A job with an unknown accuracy gets
    no warning, nor does a job with a script, whose number of classes is unknown.

    A job with an accuracy far above that of a guess has neither.

    Args: `plan` of the job; `events` of all nodes; `accuracy` on held-out samples at the end (0 to
    1), None if unknown.
    """
    losses, guess = by_epoch(events), _classes(plan.options)
    if guess and accuracy is not None and accuracy >= GUESSING / guess:
        return "", ""
    if len(losses) < 2:
        if guess is None or accuracy is None:
            return "", ""
        return "", (
            "the accuracy of %.3g is close to a guess, and one epoch is too short to show whether "
            "the job learns: train more epochs" % accuracy
        )
    start = min(losses[0], math.log(guess)) if guess else losses[0]
    later = losses[1:]
    late = later[-max(1, int(len(later) * LATE)) :]
    level = sum(late) / len(late)
    if start - level > max(_noise(later), SMALLEST * start):
        return "", ""
    known = "" if accuracy is None else ", its accuracy %.3g" % accuracy
    return (
        "the job learned nothing: its loss was %.3g in the first epoch and %.3g at the end%s"
        % (losses[0], level, known),
        "",
    )


def missed(options: Options, accuracy: Optional[float]) -> str:
    """Return the problem that a job misses its knob `expect_accuracy`, "" without one.

    Args: `accuracy` on held-out samples at the end (0 to 1), None if unknown.
    """
    expected = options.expect_accuracy
    if not expected:
        return ""
    if accuracy is None:
        return "the job reported no accuracy, and expect_accuracy=%g needs one: %s" % (
            expected,
            script_figures.HELP,
        )
    if accuracy >= expected:  # False for NaN
        return ""
    return (
        "the accuracy of %.4g on held-out samples is below expect_accuracy=%g: train for more "
        "epochs or with another lr, or lower expect_accuracy" % (accuracy, expected)
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
