"""Make a kv-store and push once; argument: its name."""

import sys

import mxnet as mx

kv = mx.kv.create(sys.argv[1])
kv.init(0, mx.nd.zeros((3,)))
kv.set_optimizer(mx.optimizer.SGD(learning_rate=1.0))
kv._barrier()
kv.push(0, mx.nd.ones((3,)))
kv.pull(0, out=mx.nd.zeros((3,)))
mx.nd.waitall()
print("TRAINED", kv.type)
