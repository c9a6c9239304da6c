"""Find the figures in the lines that a worker prints, and make events of them, without I/O.

MXNet prints such lines in `Speedometer`, `Module.fit` and `FeedForward.fit`. The second part of the
list has the forms of its examples for Gluon. Any text may stand before and after the figures:

    Epoch[3] Batch [20-40]    Speed: 5123.40 samples/sec    accuracy=0.910000
    Iter[3] Batch [40]        Speed: 5123.40 samples/sec
    Epoch[3] Train-accuracy=0.912000
    Epoch[3] Time cost=4.211
    Epoch[3] Validation-accuracy=0.934000

    [Epoch 3 Batch 40] Training: accuracy=0.910000
    [Epoch 3] training: accuracy=0.912000
    [Epoch 3] speed: 5123 samples/sec    time cost: 4.211
    [Epoch 3] validation: accuracy=0.934000
"""

import math
import re
from typing import Dict, List, Optional, Tuple

from mxcluster.model.events import LINES, Batch, Epoch, Event, Metric

LONGEST = 1000  # the characters of a line that count
MOST = 200  # events of each kind in one pass: a script may print thousands of epochs a second
LARGEST = 1e100  # an event takes no larger figure
LOSSES = ("loss", "cross-entropy", "nll-loss", "negativeloglikelihood")
ACCURACIES = ("accuracy", "acc", "acc-top1")

_NUMBER = r"([-+]?(?:[0-9]+\.?[0-9]*(?:[eE][-+]?[0-9]+)?|nan|inf))(?![\w.%])"
_PLACE = re.compile(
    r"(?:Epoch|Iter) ?\[([0-9]{1,9})\](?:,? Batch ?\[(?:[0-9]+-)?([0-9]{1,12})\])?"
    r"|\[Epoch ([0-9]{1,9})(?:,? Batch ([0-9]{1,12}))?\]"
)
_SPEED = re.compile(r"[Ss]peed[:=] ?%s samples/s" % _NUMBER)
_SECONDS = re.compile(r"[Tt]ime cost[:=] ?%s" % _NUMBER)
_PAIR = re.compile(r"([A-Za-z][\w.@-]{0,59}) ?= ?%s" % _NUMBER)
_VALIDATION = re.compile(r"\b[Vv]alidation\b")
_PART = re.compile("(Train|Validation)-")


class WorkerLines:
    """The figures in the lines of one worker since the last call of `take`."""

    def __init__(self) -> None:
        self._batches: Dict[Optional[int], Dict[str, float]] = {}  # {epoch: {field: value}}
        self._epochs: Dict[Optional[int], Dict[str, float]] = {}
        self._metrics: Dict[Tuple[str, Optional[int]], float] = {}
        # {epoch: number of the speeds, sum of their reciprocal values}
        self._speeds: Dict[Optional[int], Tuple[int, float]] = {}
        self._epoch: Optional[int] = None  # of the latest line with one
        self._seconds: Optional[Tuple[int, float]] = None  # the latest epoch and its duration

    def read(self, line: str) -> None:
        """Take over the figures of a line in a form of MXNet."""
        place = _PLACE.search(line)
        if place is None:
            return
        epoch, batch, other_epoch, other_batch = place.groups()
        self._epoch = int(epoch or other_epoch)
        rest = line[place.end() :]
        speed, seconds = _SPEED.search(rest), _SECONDS.search(rest)
        if speed:
            self._speed(float(speed.group(1)))
        if seconds:
            self._seconds = self._epoch, float(seconds.group(1))
        is_validation = bool(_VALIDATION.search(rest))
        pairs = [one for one in _PAIR.findall(rest) if one[0] != "cost"]
        for name, value in pairs:
            self._pair(name, float(value), is_validation)
        if (batch or other_batch) and (speed or pairs):
            self._of_batch("batch", int(batch or other_batch))

    def metric(self, name: str, value: float, epoch: Optional[int] = None) -> None:
        """Take over a metric of the knob `metrics`. Some names are figures of mxcluster itself.

        Args: `epoch` None for the epoch of the latest line with one.
        """
        self._epoch = self._epoch if epoch is None else epoch
        if name == "epoch":
            self._epoch = int(value) if 0 <= value < 1e9 else self._epoch
        elif name == "loss":
            self._of_batch(name, value)
        elif name == "samples_per_s":
            self._speed(value)
        elif name == "accuracy" and 0 <= value <= 1:
            self._accuracy(value)
        else:
            self._named(name, value)

    def take(self) -> List[Event]:
        """Return the events of all figures since the last call.

        There is at most one event of each kind, name and epoch: the mean speed and the latest other
        figures count.
        """
        found: List[Event] = [
            Batch(epoch=epoch, source=LINES).replaced(**values)
            for epoch, values in list(self._batches.items())[-MOST:]
        ]
        found += [
            Epoch(epoch=epoch, source=LINES).replaced(**values)
            for epoch, values in list(self._epochs.items())[-MOST:]
        ]
        found += [
            Metric(name=name, value=value, epoch=epoch, source=LINES)
            for (name, epoch), value in list(self._metrics.items())[-MOST:]
        ]
        self._batches, self._epochs, self._metrics, self._speeds = {}, {}, {}, {}
        return found

    def _pair(self, name: str, value: float, is_validation: bool) -> None:
        part = _PART.match(name)
        if part:
            is_validation, name = part.group(1) == "Validation", name[part.end() :]
        if name in ("lr", "learning_rate"):
            self._named("lr", value)
        elif is_validation and name in ACCURACIES and 0 <= value <= 1:
            self._accuracy(value)
        elif is_validation:
            self._named("validation " + name, value)
        elif name.lower() in LOSSES:
            self._of_batch("loss", value)
        else:
            if name in ACCURACIES and 0 <= value <= 1:
                self._of_batch("train_accuracy", value)
            self._named("training " + name, value)

    def _accuracy(self, value: float) -> None:
        values = self._epochs.setdefault(self._epoch, {})
        values["accuracy"] = value
        if self._seconds and self._seconds[0] == self._epoch and _fits(self._seconds[1]):
            values["seconds"] = self._seconds[1]

    def _speed(self, value: float) -> None:
        """Take over a speed. The mean is harmonic: each reading is of equally many samples."""
        if 0 < value <= LARGEST:
            number, seconds = self._speeds.get(self._epoch, (0, 0.0))
            number, seconds = number + 1, seconds + 1.0 / value
            self._speeds[self._epoch] = number, seconds
            self._of_batch("samples_per_s", round(number / seconds, 3))

    def _of_batch(self, name: str, value: float) -> None:
        if _fits(value):
            self._batches.setdefault(self._epoch, {})[name] = value

    def _named(self, name: str, value: float) -> None:
        if _fits(value):
            self._metrics[name, self._epoch] = value


def _fits(value: float) -> bool:
    """Return True for a value that an event can have. NaN and infinity become null there."""
    return abs(value) <= LARGEST or not math.isfinite(value)
