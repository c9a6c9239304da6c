"""Time the forward and backward passes of a Module. A sleep can emulate a slower machine."""

import time

from mxcluster.node.mxnet_types import DataBatch, Module
from mxcluster.training.programs.image_classification.meter import wait


class Pace(object):
    """Runs the forward and backward pass of `module`, padded with a sleep.

    The minimum time of a pass is `slowdown` times `sample_seconds` for each sample of the batch. If
    `sample_seconds` is 0, the minimum is `slowdown` times the pass's own time. `slowdown` is at
    least 1.

    ``passes`` counts all passes. ``late`` counts the passes that took longer than the minimum.
    `run` adds no sleep to a late pass, so the pass is slower than on the emulated machine.
    """

    def __init__(self, module: Module, slowdown: float = 1.0, sample_seconds: float = 0.0) -> None:
        self._module, self._slowdown, self._sample_seconds = module, slowdown, sample_seconds
        self.passes = self.late = 0

    @property
    def pads(self) -> bool:
        """True if `run` must pad the passes with a sleep."""
        return self._slowdown > 1 or self._sample_seconds > 0

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
        self._module.forward_backward(batch)
        wait([self._module.get_outputs(), *group.grad_arrays])
        own = time.monotonic() - began
        least = self._slowdown * (self._sample_seconds * samples or own)
        if own < least:
            time.sleep(least - own)
        elif own > least:
            self.late += 1
        self.passes += 1
        return time.monotonic() - began
