"""Train a few steps for the benchmark `start`, which runs this script with both launchers.

Each worker prints the time (unix seconds) at the end of its first step. Arguments: the number of
steps, and the seconds of sleep after each step.
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
