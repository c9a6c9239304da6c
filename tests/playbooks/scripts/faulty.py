"""Train one array without end. Arguments: the kv-store, and the fault of worker 1, if any.

This is a user's script without code of mxcluster.
"""

import itertools
import os
import sys
import time

import faulty_optimizers
import mxnet as mx

kind, fault = sys.argv[1:]
mine = os.environ["MXCLUSTER_INDEX"] == "1"


def strike():
    print("fault at %f" % time.time(), flush=True)


if fault == "never starts" and mine:
    strike()
    time.sleep(3600)

kv = mx.kv.create(kind)
optimizer = {
    "updater raises": faulty_optimizers.Raising,
    "updater hangs": faulty_optimizers.Hanging,
}.get(fault, mx.optimizer.SGD)
kv.set_optimizer(optimizer(learning_rate=0.1))
kv.init([3, 4], [mx.nd.ones((2, 2))] * 2)
weight, keys = mx.nd.zeros((2, 2)), [3, 4]
for step in itertools.count():
    for key in keys:
        kv.push(key, mx.nd.ones((2, 2)))
        kv.pull(key, out=weight)
    weight.wait_to_read()
    if step % 10 == 0:
        print("step %d" % step, flush=True)
    if step == 30 and mine and fault in ("exits", "hangs", "has fewer batches", "leaves out a key"):
        strike()
        if fault == "exits":
            sys.exit("out of luck")
        if fault == "hangs":
            time.sleep(3600)
        if fault == "has fewer batches":
            break
        if fault == "leaves out a key":
            keys.remove(4)
    time.sleep(0.02)
print("done", flush=True)
