"""Train a few steps for the benchmark `start`, which runs this script with both launchers.

A worker prints the time when its first step has ended. Arguments: the number of steps, and the
minimum seconds of a step.
"""

import sys
import time

import mxnet as mx

kv = mx.kv.create("dist_sync")
weight = mx.nd.zeros((1000, 100))
kv.init(0, weight)
kv.set_optimizer(mx.optimizer.SGD(learning_rate=0.1))
for step in range(int(sys.argv[1])):
    kv.push(0, mx.nd.ones((1000, 100)))
    kv.pull(0, out=weight)
    weight.wait_to_read()
    if step == 0:
        print("first step %.3f" % time.time(), flush=True)
    time.sleep(float(sys.argv[2]))
