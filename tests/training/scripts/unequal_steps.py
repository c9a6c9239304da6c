"""Worker 0 trains 5 steps, worker 1 trains 30."""

import os

import mxnet as mx

index = int(os.environ["MXCLUSTER_INDEX"])
kv = mx.kv.create("dist_ssync")
kv.set_optimizer(mx.optimizer.SGD(learning_rate=0.1))
kv.init(3, mx.nd.ones((2, 2)))
weight = mx.nd.zeros((2, 2))
steps = (5, 30)[index]
for _ in range(steps):
    kv.push(3, mx.nd.ones((2, 2)))
    kv.pull(3, out=weight)
print("worker %d did %d steps" % (index, steps))
