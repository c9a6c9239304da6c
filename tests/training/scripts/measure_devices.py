"""The program that measures, on two devices of MXNet on the CPU that stand in for GPUs.

The devices need 10 and 30 ms for a sample. They work at the same time, as GPUs do.
"""

import sys

import mxnet as mx

from mxcluster import work_load
from mxcluster.training.programs.image_classification import pace, training
from mxcluster.training.programs.profile import main

SECONDS = {0: 0.01, 1: 0.03}  # for a sample
run = pace.Pace.run


def as_slow_as_the_devices(self, batch, samples):
    module = self._module
    contexts, loads = module._context, module._work_load_list or [1] * len(module._context)
    parts = work_load.split(samples, loads)
    slowest = max(SECONDS[one.device_id] * part for one, part in zip(contexts, parts))
    self._sample_seconds = slowest / samples
    return run(self, batch, samples)


training.contexts_of = lambda gpus: [mx.cpu(0), mx.cpu(1)]
pace.Pace.run = as_slow_as_the_devices
sys.exit(main(sys.argv[1:]))
