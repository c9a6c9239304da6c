"""Train an array with each of several optimizers, one after the other; argument: kv.

Prints {optimizer: [the array at the end, the array after the same steps of a local updater]}.
"""

import json
import sys

import mxnet as mx
import my_optimizers
import numpy as np

STEPS, TARGET = 30, np.array([[1.0, -2.0], [0.5, 3.0]], dtype="float32")


def optimizers():
    """Return {name: a new optimizer}. Each takes the mean of the gradients of two workers."""
    common = {
        "rescale_grad": np.float32(0.5),
        "wd": 0,
        "param_idx2name": {key: "layer%d_weight" % key for key in range(5)},
    }
    halved = mx.lr_scheduler.FactorScheduler(10, np.float64(0.5))
    return {
        "momentum": mx.optimizer.SGD(learning_rate=0.1, momentum=0.5, **common),
        "adam": mx.optimizer.Adam(learning_rate=0.3, **common),
        "dcasgd": mx.optimizer.DCASGD(learning_rate=0.2, **common),
        "schedule": mx.optimizer.SGD(learning_rate=0.3, lr_scheduler=halved, **common),
        "declared": my_optimizers.Stateful(learning_rate=0.2, **common),
    }


kv = mx.kv.create(sys.argv[1])
weight, alone, found = mx.nd.zeros(TARGET.shape), mx.nd.zeros(TARGET.shape), {}
goal, local = mx.nd.array(TARGET), optimizers()
kv.init(list(range(len(local))), [weight] * len(local))
for key, (name, optimizer) in enumerate(optimizers().items()):
    kv.set_optimizer(optimizer)
    kv._barrier()
    kv.pull(key, out=weight)
    update = mx.optimizer.get_updater(local[name])
    alone[:] = 0
    for _ in range(STEPS):
        kv.push(key, weight - goal)
        kv.pull(key, out=weight)
        update(key, 2 * (alone - goal), alone)
    weight.wait_to_read()
    kv._barrier()
    if hasattr(kv, "refresh"):
        kv.refresh()
    kv.pull(key, out=weight)
    found[name] = [weight.asnumpy().tolist(), alone.asnumpy().tolist()]
    kv._barrier()

if sys.argv[1] in ("dist_sync", "dist_async"):  # The others train float32 only.
    half, goal = mx.nd.zeros(TARGET.shape, dtype="float16"), goal.astype("float16")
    kv.init(5, half)
    kv.set_optimizer(mx.optimizer.SGD(learning_rate=0.1, wd=0, multi_precision=True))
    kv._barrier()
    for _ in range(STEPS):
        kv.push(5, half - goal)
        kv.pull(5, out=half)
    found["multi-precision"] = [half.asnumpy().tolist(), TARGET.tolist()]
print("FOUND " + json.dumps(found))
