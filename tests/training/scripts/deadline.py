"""The training program with balance=deadline on a clock that only its passes advance.

A pass takes the seconds of `step_ms` and `slowdown`, and nothing else takes time. So the counts of
each step follow from the arguments alone. Arguments: those of the program. Variables of a worker:
SLOWDOWN is its slowdown; SLOW_PHASE is "begin,end,factor", seconds of its clock with a further
factor; DIES_AT is "step,point", a point of an exchange at which the worker kills itself.

The script writes the samples of each small batch, the numbers that the workers exchange, the
deadline and seconds of each step, and the final weights. Between two steps its clock advances by
REPORT_S seconds, as for a long report or a copy of weights for an evaluation. With LOG_WEIGHTS it
writes the sums of the gradients and the weights of each step, as `replay` reads them.
"""

import functools
import json
import os
import signal
import sys

import mxnet as mx
import numpy as np

from mxcluster.node import quota
from mxcluster.training.kvstore import assigned_key
from mxcluster.training.programs import main
from mxcluster.training.programs.image_classification import (
    deadline,
    gradients,
    meter,
    pace,
    training,
)
from mxcluster.training.programs.image_classification.data import arrays

index, folder = os.environ["MXCLUSTER_INDEX"], os.environ["MXCLUSTER_JOB_DIR"]
phase = [float(part) for part in os.environ.get("SLOW_PHASE", "0,0,1").split(",")]
dies_at = os.environ.get("DIES_AT", ",").split(",")


class Clock:
    """The module time for `pace`."""

    now = 0.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        begin, end, factor = phase
        self.now += seconds * (factor if begin <= self.now < end else 1)


class Log:
    """What this worker has done."""

    def __init__(self):
        self.told, self.steps, self.arrays, self.step = [], [], {}, 0
        self.samples, self.passes = {}, []  # of each read batch, and of each trained one

    def at(self, point):
        if dies_at == [str(self.step), point]:
            os.kill(os.getpid(), signal.SIGKILL)


log, clock = Log(), Clock()
push, pull = assigned_key.AssignedKey.push, assigned_key.AssignedKey.pull
close, step, run = gradients.Gradients.close, deadline.Deadline._step, training.Training.run
copy_weights = training.Training._copy_weights
read, passes = arrays.Images.read, pace.Pace.run


def logged_push(self, *numbers):
    log.at("before the count")
    push(self, *numbers)
    log.at("after the count")


def logged_pull(self):
    log.at("before the pull")
    numbers = pull(self)
    log.told.append(numbers)
    log.at("before the update")
    return numbers


def logged_close(self, factor):
    """Log the sums of the gradients before they get their factor."""
    if "LOG_WEIGHTS" in os.environ:
        close(self, 1.0)
        for number, arrays_ in enumerate(self._arrays()):
            log.arrays["gradient_%d_%d" % (log.step, number)] = arrays_[0].asnumpy()
    close(self, factor)


def weights_of(module):
    return [arrays_[0].asnumpy() for arrays_ in module._exec_group.param_arrays]


def logged_step(self, reader):
    module = self._worker.module
    if "LOG_WEIGHTS" in os.environ and not log.step:
        module._exec_group.param_arrays[0][0].wait_to_read()
        log.arrays.update(
            ("initial_%d" % number, array) for number, array in enumerate(weights_of(module))
        )
        log.arrays["names"] = np.array(module._param_names)
    deadline_s, began = self.seconds, clock.now
    taken = step(self, reader)
    log.steps.append({"deadline": deadline_s, "begin": began, "seconds": clock.now - began})
    if "LOG_WEIGHTS" in os.environ:
        for number, array in enumerate(weights_of(module)):
            log.arrays["history_%d_%d" % (log.step, number)] = array
    log.step += 1
    log.at("after the update")
    return taken


def logged_read(self, indices, side, rng=None):
    images, labels = read(self, indices, side, rng)
    log.samples[images.astype(np.float32).tobytes()] = np.asarray(indices).tolist()
    return images, labels


def logged_pass(self, batch, samples):
    """Log the samples that this worker trains. Readers are ahead of it."""
    log.passes.append(log.samples[batch.data[0].asnumpy().tobytes()])
    return passes(self, batch, samples)


def slow_copy(self, epochs):
    copy_weights(self, epochs)
    clock.now += float(os.environ.get("REPORT_S", "0"))


def run_and_save(self):
    run(self)
    mx.nd.save(os.path.join(folder, "weights-%s.params" % index), self.module.get_params()[0])
    with open(os.path.join(folder, "told-%s.json" % index), "w") as stream:
        json.dump({"told": log.told, "passes": log.passes, "steps": log.steps}, stream)
    if log.arrays:
        count = len(log.arrays["names"])
        np.savez(
            os.path.join(folder, "log-%s.npz" % index),
            started=np.zeros(log.step),
            lr_mult=np.ones(count),
            wd_mult=np.array([float(name.endswith("_weight")) for name in log.arrays["names"]]),
            **dict(
                log.arrays, **{"weight_%d" % i: a for i, a in enumerate(weights_of(self.module))}
            ),
        )


assigned_key.AssignedKey.push, assigned_key.AssignedKey.pull = logged_push, logged_pull
gradients.Gradients.close, deadline.Deadline._step = logged_close, logged_step
arrays.Images.read, pace.Pace.run, pace.time = logged_read, logged_pass, clock
training.Training.run, training.Training._copy_weights = run_and_save, slow_copy
meter.Meter = functools.partial(meter.Meter, clock=clock.monotonic)
quota.tightest = lambda: None  # A quota of this machine counts other seconds.
arguments = dict(json.loads(sys.argv[1]), slowdown=float(os.environ.get("SLOWDOWN", "1")))
sys.exit(main("image_classification", [json.dumps(arguments)]))
