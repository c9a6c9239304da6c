"""Time the forward and backward passes of a Module. A sleep can emulate a slower machine."""

import time
from typing import Optional, Sequence

from mxcluster.model.program_arguments import ProgramArguments
from mxcluster.node.mxnet_types import DataBatch, Module
from mxcluster.training.programs.image_classification.meter import wait

GOLDEN = 0.6180339887498949  # (sqrt(5) - 1) / 2: its multiples spread evenly modulo 1


class Slowdown(object):
    """The factor by which the machine of a worker is emulated to be slower, at each time.

    The factor is `factor` times one of `changes`, which count in turn, each for `every` seconds.
    Each worker begins at another place of this cycle, so that the workers' speeds change at
    different times. The place depends only on the index of the worker, so every job has the same
    changes.

    Args:
        factor: at least 1.
        changes: factors of at least 1, () for a constant speed.
        every: seconds, above 0.
        worker: the index of the worker.
    """

    def __init__(
        self,
        factor: float = 1.0,
        changes: Sequence[float] = (),
        every: float = 10.0,
        worker: int = 0,
    ) -> None:
        self._factor, self._every = factor, every
        self._changes = list(changes) or [1.0]
        self._begin = worker * GOLDEN % 1 * len(self._changes) * every

    @property
    def slows(self) -> bool:
        """True if the factor is ever above 1."""
        return self._factor > 1 or max(self._changes) > 1

    def at(self, seconds: float) -> float:
        """Return the factor at the time `seconds` after the first pass."""
        place = int((self._begin + seconds) / self._every)
        return self._factor * self._changes[place % len(self._changes)]


def slowdown_of(args: ProgramArguments, worker: int) -> Slowdown:
    """Return the Slowdown of the worker with the index `worker`."""
    return Slowdown(args.slowdown, args.slowdown_changes, args.slowdown_every, worker)


class Pace(object):
    """Runs the forward and backward pass of `module`, padded with a sleep.

    The minimum time of a pass is the factor of `slowdown` at its begin, times `sample_seconds` for
    each sample of the batch. If `sample_seconds` is 0, the minimum is this factor times the pass's
    own time.

    ``passes`` counts all passes. ``late`` counts the passes that took longer than the minimum.
    `run` adds no sleep to a late pass, so the pass is slower than on the emulated machine.
    """

    def __init__(
        self, module: Module, slowdown: Optional[Slowdown] = None, sample_seconds: float = 0.0
    ) -> None:
        self._module, self._slowdown = module, slowdown or Slowdown()
        self._sample_seconds = sample_seconds
        self._first: Optional[float] = None  # the begin of the first pass
        self.passes = self.late = 0

    @property
    def pads(self) -> bool:
        """True if `run` must pad the passes with a sleep."""
        return self._slowdown.slows or self._sample_seconds > 0

    @staticmethod
    def now() -> float:
        """Return the seconds of the clock that measures the passes."""
        return time.monotonic()

    def run(self, batch: DataBatch, samples: int) -> float:
        """Run a pass on `batch`. Return the duration in seconds.

        `samples` is the number of samples in the batch. The measurement begins when the weights of
        the previous step have arrived. The measurement ends when all gradients are computed and the
        sleep is over. So the duration excludes waits for the kv-store and for other workers.
        """
        group = self._module._exec_group
        wait(group.param_arrays)
        began = time.monotonic()
        self._first = began if self._first is None else self._first
        self._module.forward_backward(batch)
        wait([self._module.get_outputs(), *group.grad_arrays])
        own = time.monotonic() - began
        factor = self._slowdown.at(began - self._first)
        least = factor * (self._sample_seconds * samples or own)
        if own < least:
            time.sleep(least - own)
        elif own > least:
            self.late += 1
        self.passes += 1
        return time.monotonic() - began
