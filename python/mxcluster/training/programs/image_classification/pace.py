"""Measure the forward and backward pass of a Module, and pad it to emulate a slower machine."""

import time

from mxcluster.training.programs.image_classification.meter import wait


class Pace(object):
    """Runs the forward and backward pass of `module`, and pads it with a sleep.

    A pass takes at least `slowdown` (at least 1) times `sample_seconds` for each sample of the
    batch. If `sample_seconds` is 0, a pass takes `slowdown` times its own time.

    ``late`` counts the passes that took longer than wanted. `run` adds no sleep to such a pass, and
    the pass is slower than on the emulated machine.
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
        """Run the pass on the DataBatch `batch` of `samples` samples. Return the pass's seconds.

        The time begins when the weights of the previous step have arrived. It ends when all
        gradients are computed and the sleep is over. So the time excludes waits for the kv-store
        and for other workers.
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
