"""Decide from the losses that the workers reported whether a job learned anything. Pure."""

import math
from typing import Any, Dict, List, Optional

from mxcluster.datasets import DATASETS

Json = Dict[str, Any]

LATE = 0.25  # the last part of the later epochs, whose mean loss counts
SMALLEST = 0.01  # part of the first loss; a smaller fall does not count
ENOUGH = 5  # later epochs needed to tell the noise of their losses from a trend
GUESSING = 3.0  # times the accuracy of a guess; a higher accuracy proves that the network learned


def problem(plan: Json, events: List[Json], accuracy: Optional[float]) -> Optional[str]:
    """Return the reason why the losses show that the job learned nothing, else None.

    The loss of an epoch is the mean of all losses that the workers reported. The first epoch's loss
    is compared with the mean of the last ones. A first loss above that of a guess, as after a first
    step that was far too large, counts as that of a guess. A fall counts if it is larger than the
    noise, which is twice the standard error of an epoch's loss.

    Args: `accuracy` on held-out samples at the end, None if unknown. Returns None as well if fewer
    than two epochs have losses.
    """
    losses = by_epoch(events)
    if len(losses) < 2:
        return None
    guess, first = _classes(plan["options"]), losses[0]
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


def cannot_tell(plan: Json, events: List[Json], accuracy: Optional[float]) -> Optional[str]:
    """Return a warning if the program reported losses of less than two epochs, else None.

    The warning needs an accuracy that is close to a guess. Scripts get none.
    """
    guess = _classes(plan["options"])
    if (
        guess is None
        or accuracy is None
        or len(by_epoch(events)) > 1
        or accuracy >= GUESSING / guess
    ):
        return None
    return (
        "an accuracy of %.3g is close to a guess, and one epoch is too short to tell whether the "
        "job learns: train more epochs" % accuracy
    )


def _classes(options: Json) -> Optional[int]:
    """Return the number of classes of the program's data set; None for a script or unknown data."""
    return (
        None
        if options.get("script") or options.get("data") not in DATASETS
        else DATASETS[options["data"]].classes
    )


def _noise(losses: List[float]) -> float:
    """Return twice the standard error of a loss, from the differences of neighbouring losses.

    A trend hardly changes these differences.
    """
    steps = [after - before for before, after in zip(losses, losses[1:])]
    if len(losses) < ENOUGH or not all(map(math.isfinite, losses)):
        return 0.0
    return 2 * math.sqrt(sum(step * step for step in steps) / len(steps) / 2)


def by_epoch(events: List[Json]) -> List[float]:
    """Return the mean loss of each epoch, in order; infinite where a loss was not finite."""
    told = {}  # type: Dict[int, List[float]]
    for event in events:
        epoch, loss = event.get("epoch"), event.get("loss")
        if (
            event.get("event") == "batch"
            and isinstance(epoch, int)
            and isinstance(loss, (int, float))
        ):
            told.setdefault(epoch, []).append(loss if math.isfinite(loss) else math.inf)
    return [sum(told[epoch]) / len(told[epoch]) for epoch in sorted(told)]
