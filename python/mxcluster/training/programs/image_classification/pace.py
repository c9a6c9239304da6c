"""Measure the forward and backward pass of a Module, and pad it to emulate a slower machine."""

import time

from mxcluster.training.programs.image_classification.meter import wait


class Pace(object):
    """Runs the forward and backward passes of `module` whose time counts.

    Args: `slowdown` multiplies the time of a pass, at least 1; `sample_seconds` is the least time
    for each sample of a batch, before this multiplication. 0 is none.

    ``late`` counts the passes that took longer than the least time: their pads were 0, and the
    emulated speed was not reached.
    """

    def __init__(self, module, slowdown=1.0, sample_seconds=0.0):
        self._module, self._slowdown, self._sample_seconds = module, slowdown, sample_seconds
        self.late = 0

    @property
    def pads(self):
        """True if every pass must take longer than it does by itself."""
        return self._slowdown > 1 or self._sample_seconds > 0

    def run(self, batch, samples):
        """Run the passes on the DataBatch `batch` of `samples` samples. Return their seconds.

        The time begins when the weights of the step before have arrived, and ends when all
        gradients are there. So it holds no wait for the kv-store, nor for other workers.
        """
        group = self._module._exec_group
        wait(group.param_arrays)
        began = time.monotonic()
        self._module.forward_backward(batch)
        wait([self._module.get_outputs(), *group.grad_arrays])
        own = time.monotonic() - began
        wanted = self._slowdown * (self._sample_seconds * samples or own)
        if own < wanted:
            time.sleep(wanted - own)
        elif own > wanted:
            self.late += 1
        return time.monotonic() - began
