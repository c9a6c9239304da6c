"""Workers exchange two numbers each between updates of two parameters; worker 0 writes all.

Arguments: kv, the number of parameters in the message to the servers (2 is right), a result file.
"""

import json
import os
import sys

import mxnet as mx

from mxcluster.training.kvstore.assigned_key import AssignedKey

kind, parameters, path = sys.argv[1:]
index = int(os.environ["MXCLUSTER_INDEX"])
kv = mx.kv.create(kind)
kv.init("a", mx.nd.ones((3, 4)))
kv.init("b", mx.nd.ones((5,)))
kv.set_optimizer(mx.optimizer.SGD(learning_rate=0.5, momentum=0.9, wd=0.1))
key = AssignedKey(kv, int(parameters), kv.num_workers, index, each=2)
exchanged, others, weights = [], mx.nd.zeros((3, 4)), mx.nd.zeros((5,))
for step in range(3):
    kv.push("a", mx.nd.ones((3, 4)))
    kv.push("b", mx.nd.ones((5,)) * (index + 1))
    number = 1.1 * (index + 1) + 100 * step
    key.push(number, -number)
    mx.nd.dot(mx.nd.ones((99, 99)), mx.nd.ones((99, 99))).wait_to_read()  # work of its own
    exchanged.append(key.pull())
    # MXNet counts pushes, not workers: no push may overtake one of the step before.
    kv.pull("a", out=others)
    kv.pull("b", out=weights)
    mx.nd.waitall()
if index == 0:
    with open(path, "w") as stream:
        json.dump({"exchanged": exchanged, "b": weights.asnumpy().tolist()}, stream)
