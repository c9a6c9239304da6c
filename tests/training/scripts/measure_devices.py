"""The program that measures, on two devices of MXNet on the CPU that stand in for GPUs.

The devices need 1 and 3 s for a sample. They work at the same time, as GPUs do.
"""

import functools
import sys

import mxnet as mx
from exact_clock import Clock

from mxcluster import work_load
from mxcluster.node import quota
from mxcluster.training import timing
from mxcluster.training.programs import main
from mxcluster.training.programs.image_classification import pace, training

SECONDS = {0: 1.0, 1: 3.0}  # for a sample
run = pace.Pace.run


def as_slow_as_the_devices(self, batch, samples):
    module = self._module
    contexts, loads = module._context, module._work_load_list or [1] * len(module._context)
    parts = work_load.split(samples, loads)
    slowest = max(SECONDS[one.device_id] * part for one, part in zip(contexts, parts))
    self._sample_seconds = slowest / samples
    return run(self, batch, samples)


quota.tightest = lambda: None  # A quota of this machine would change the measured speeds.
training.contexts_of = lambda gpus: [mx.cpu(0), mx.cpu(1)]
pace.Pace.run, pace.time = as_slow_as_the_devices, Clock()
timing.repeat = functools.partial(timing.repeat, clock=pace.time.monotonic)
sys.exit(main("profile", sys.argv[1:]))
