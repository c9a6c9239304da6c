"""Train one array with an optimizer that fails in one server process; argument: kv."""

import sys
import time

import mxnet as mx
from fails_on_server_1 import Failing

kv = mx.kv.create(sys.argv[1])
kv.init(3, mx.nd.ones((2, 2)))
kv.set_optimizer(Failing())
weight = mx.nd.zeros((2, 2))


def train():
    kv.push(3, mx.nd.ones((2, 2)))
    kv.pull(3, out=weight)
    weight.wait_to_read()


train()
# All servers have the optimizer of every worker: a message to a dead server would wait for ever.
kv._barrier()
while True:
    train()
    time.sleep(0.2)
