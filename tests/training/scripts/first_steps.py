"""Print the start time of each step in JSON; the first steps of the workers have different keys.

The first step of worker 0 has three keys, that of the others one; all later steps have three. Under
dist_ssync a step of plain calls begins with the push of a key that was pushed before.
"""

import json
import os
import random
import time

import mxnet as mx

index = int(os.environ["MXCLUSTER_INDEX"])
kv = mx.kv.create("dist_ssync")
kv.init([0, 1, 2], [mx.nd.ones((2,))] * 3)
kv.set_optimizer(mx.optimizer.SGD(learning_rate=0.1))
weights, started = [mx.nd.zeros((2,)) for _ in range(3)], []
delays = random.Random(index)
for step in range(60):
    keys = [0] if index and step == 0 else [0, 1, 2]
    for key in keys:
        kv.push(key, mx.nd.ones((2,)))
        if key == 0:
            started.append(time.monotonic())
        kv.pull(key, out=weights[key])
        weights[key].wait_to_read()
    time.sleep(delays.random() * (0.03 if index else 0.01))
print(json.dumps(started))
