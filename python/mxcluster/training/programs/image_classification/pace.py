"""Measure the forward and backward pass of a Module, and pad it to emulate a slower machine."""

import time

from mxcluster.training.programs.image_classification.meter import wait


class Pace(object):
    """Runs the forward and backward pass of `module`, and pads it with a sleep.

    Args: `slowdown` (at least 1) multiplies the time of a pass; `sample_seconds` is the least time
    for each sample of a batch, before this multiplication. 0 means no least time.

    ``late`` counts the passes that took longer than the wanted time. `run` adds no sleep to such a
    pass, and the pass is slower than on the emulated machine.
    """

    def __init__(self, module, slowdown=1.0, sample_seconds=0.0):
        self._module, self._slowdown, self._sample_seconds = module, slowdown, sample_seconds
        self.late = 0

    @property
    def pads(self):
        """True if `run` must pad the passes."""
        return self._slowdown > 1 or self._sample_seconds > 0

    def figures(self, steps):
        """Return the fields of the event `end` about late passes, {} if `run` pads nothing.

        Args: `steps` of this worker so far. The fields are `steps` and `late_steps`, both int.
        """
        return {"steps": steps, "late_steps": self.late} if self.pads else {}

    def run(self, batch, samples):
        """Run the passes on the DataBatch `batch` of `samples` samples. Return their seconds.

        The time begins when the weights of the step before have arrived, and ends when all
        gradients are computed. So the time excludes waits for the kv-store and for other workers.
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
