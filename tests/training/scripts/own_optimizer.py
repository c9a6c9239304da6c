"""Train one array with a user's own optimizer and schedule; argument: kv."""

import sys

import mxnet as mx
import my_optimizers

kv = mx.kv.create(sys.argv[1])
kv.init(3, mx.nd.ones((2, 2)))
kv.set_optimizer(
    my_optimizers.Halving(learning_rate=0.5, wd=0, lr_scheduler=my_optimizers.Constant(0.5))
)
kv._barrier()
weight = mx.nd.zeros((2, 2))
kv.push(3, mx.nd.ones((2, 2)))
kv.pull(3, out=weight)
print("weight %g" % weight.asnumpy()[0, 0])
