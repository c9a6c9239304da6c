"""Whether a job has learned anything, by the losses that its workers told. Pure."""
import math
from typing import Any, Dict, List, Optional

from mxcluster.datasets import DATASETS

Json = Dict[str, Any]

LATE = 0.25  # the part of the later epochs, the last ones, whose losses count
SMALLEST = 0.01  # of the first loss: a fall by less is none
ENOUGH = 5  # later epochs from which on the noise of their losses can be told from a trend
GUESSING = 3.0  # times the accuracy of a guess: a network with more has learned something


def problem(plan: Json, events: List[Json], accuracy: Optional[float]) -> Optional[str]:
    """Why the job's loss says that it learned nothing; None if it fell, or if nobody can say.

    The loss of an epoch is the mean of all that its workers told. The first epoch's is compared with the mean of the last
    ones; a loss above that of a guess, as after a first step that was far too large, counts as that of a guess. A fall counts
    if it is larger than the noise, twice the standard error of an epoch's loss. accuracy: on held-out samples at the end.
    """
    losses = by_epoch(events)
    if len(losses) < 2:
        return None
    guess, first = _classes(plan["options"]), losses[0]
    if guess and accuracy is not None and accuracy >= GUESSING / guess:
        return None
    start = min(first, math.log(guess)) if guess else first
    later = losses[1:]
    late = later[-max(1, int(len(later) * LATE)):]
    level = sum(late) / len(late)
    if start - level > max(_noise(later), SMALLEST * start):
        return None
    return ("the job learned nothing: its loss was %.3g in the first epoch and %.3g at the end%s"
            % (first, level, "" if accuracy is None else ", its accuracy %.3g" % accuracy))


def cannot_tell(plan: Json, events: List[Json], accuracy: Optional[float]) -> Optional[str]:
    """What is worth a warning of a job of the program that told the losses of less than two epochs."""
    guess = _classes(plan["options"])
    if guess is None or accuracy is None or len(by_epoch(events)) > 1 or accuracy >= GUESSING / guess:
        return None
    return "an accuracy of %.3g is little more than a guess, and one epoch does not tell whether the job learns" % accuracy


def _classes(options: Json) -> Optional[int]:
    """Of how many classes the program chooses one; None for a script, of which nobody knows."""
    return None if options.get("script") or options.get("data") not in DATASETS else DATASETS[options["data"]].classes


def _noise(losses: List[float]) -> float:
    """Twice the standard error of a loss, from the differences of neighbours, which a trend hardly changes."""
    steps = [after - before for before, after in zip(losses, losses[1:])]
    if len(losses) < ENOUGH or not all(map(math.isfinite, losses)):
        return 0.0
    return 2 * math.sqrt(sum(step * step for step in steps) / len(steps) / 2)


def by_epoch(events: List[Json]) -> List[float]:
    """The mean loss of every epoch, in their order; infinite where one was no number."""
    told = {}  # type: Dict[int, List[float]]
    for event in events:
        epoch, loss = event.get("epoch"), event.get("loss")
        if event.get("event") == "batch" and isinstance(epoch, int) and isinstance(loss, (int, float)):
            told.setdefault(epoch, []).append(loss if math.isfinite(loss) else math.inf)
    return [sum(told[epoch]) / len(told[epoch]) for epoch in sorted(told)]
