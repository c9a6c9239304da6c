"""Use a kv-store in ways that training programs do not, and check each pulled weight.

Argument: kv. Workers 0 and 1 push the same numbers, so their order does not matter. Under
dist_gsync worker 2 is a separate group that never pushes, and blocks no other worker. (Under
dist_ssync it would block all workers, as a straggler does.)
"""

import os
import sys

import mxnet as mx
import numpy as np
from refusing import refused

kv = mx.kv.create(sys.argv[1])
me = int(os.environ["MXCLUSTER_INDEX"])
WORKERS, MEMBERS, RATE = 3, 2, 0.5


def step(gradient):
    """Return the change of a weight by a push of `gradient` from both workers.

    dist_gsync scales to all workers; dist_ssync adds each push.
    """
    return -RATE * gradient * (WORKERS if sys.argv[1] == "dist_gsync" else MEMBERS)


def settled():
    """Wait until no push is pending."""
    mx.nd.waitall()
    kv._barrier()


def pulled(key, shape=(2,)):
    out = mx.nd.zeros(shape)
    kv.pull(key, out=out)
    return out.asnumpy()


def check(what, key, expected):
    settled()
    if me == MEMBERS and hasattr(kv, "refresh"):
        kv.refresh()
    found = pulled(key)
    assert np.allclose(found, expected, atol=1e-6), "%s: %s is %s, not %s" % (
        what,
        key,
        found,
        expected,
    )
    settled()


def pushing(function, *arguments):
    if me < MEMBERS:
        function(*arguments)


def train(keys, gradient=1.0):
    """Run one step of Module: all pushes, then all pulls, each into the array of its gradient."""
    arrays = [mx.nd.ones((2,)) * gradient for _ in keys]
    for key, array in zip(keys, arrays):
        kv.push(key, array)
    for key, array in zip(keys, arrays):
        kv.pull(key, out=array)


kv.init([0, 1, 2], [mx.nd.zeros((2,))] * 3)
kv.set_optimizer(mx.optimizer.SGD(learning_rate=RATE, wd=0, rescale_grad=1.0))
weight = mx.nd.zeros((2,))

# Steps with fewer keys than the step before, and then more.
for keys in ([0, 1, 2], [0, 1], [0, 1], [1], [0, 1, 2]):
    pushing(train, keys)
check("a key of four steps", 0, 4 * step(1.0))
check("a key of all steps", 1, 5 * step(1.0))
check("a key of two steps", 2, 2 * step(1.0))


def one_by_one():
    for key in (0, 1, 2):
        kv.push(key, mx.nd.ones((2,)))
        kv.pull(key, out=weight)
        weight.wait_to_read()


pushing(one_by_one)
check("key by key, read at once", 2, 3 * step(1.0))

# The members push the keys of a step in different orders, including the first common step.
kv.init([3, 4], [mx.nd.zeros((2,))] * 2)
pushing(train, [3, 4] if me else [4, 3])
check("another order", 3, step(1.0))
check("another order", 4, step(1.0))

# A key that is initialized after training has begun; a pull before any push; several arrays in one
# call.
kv.init([10, 11], [mx.nd.ones((2,)) * 7] * 2)
check("before a push", 10, 7)
pushing(lambda: kv.push([10, 11], [mx.nd.ones((2,))] * 2))
pushing(lambda: kv.pull([10, 11], out=[weight, mx.nd.zeros((2,))]))
check("in one call", 11, 7 + step(1.0))

# Gradients of several devices are summed.
pushing(lambda: kv.push(10, [mx.nd.ones((2,)), mx.nd.ones((2,)) * 2]))
pushing(lambda: kv.pull(10, out=[weight, mx.nd.zeros((2,))]))
check("two devices", 10, 7 + step(1.0) + step(3.0))

pushing(lambda: kv.pushpull(11, mx.nd.ones((2,)), out=weight))
check("pushed and pulled in one", 11, 7 + 2 * step(1.0))

# A second optimizer has new states.
settled()
kv.set_optimizer(mx.optimizer.SGD(learning_rate=RATE / 5, wd=0, rescale_grad=1.0, momentum=0.5))
pushing(train, [0])
pushing(train, [0])
check(
    "a second optimizer",
    0,
    5 * step(1.0) + step(1.0) / 5 * (1 + 1.5)
    if sys.argv[1] == "dist_gsync"
    else 5 * step(1.0) + step(1.0) / 5 / 2 * (1 + 1.5 + 1.75 + 1.875),
)

# MXNet's servers ignore a learning rate that is set on a worker.
kv._optimizer.set_learning_rate(0.25)
pushing(train, [3])
check(
    "a learning rate of a worker",
    3,
    step(1.0) + step(1.0) / 5
    if sys.argv[1] == "dist_gsync"
    else step(1.0) + step(1.0) / 5 / 2 * (1 + 1.5),
)

if sys.argv[1] == "dist_ssync":
    for _ in range(2):
        kv.push(4, mx.nd.ones((2,)))
    check("two updates of each worker", 4, step(1.0) + step(1.0) / 5 / 2 * (1 + 1.5 + 1.75 + 1.875))

refused(ValueError, ["the key 0 a second time", "Trainer"], kv.init, 0, mx.nd.zeros((2,)))
net = mx.gluon.nn.Dense(1, in_units=2)
net.initialize()
with mx.autograd.record():
    loss = net(mx.nd.ones((1, 2)))
loss.backward()
refused(
    ValueError,
    ["a second time", "Trainer"],
    mx.gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": RATE}, kvstore=kv).step,
    1,
)
if sys.argv[1] == "dist_gsync" and me < MEMBERS:
    settled_key = 4
    kv.push(settled_key, mx.nd.ones((2,)))
    refused(ValueError, ["pushed parameter 4 twice"], kv.push, settled_key, mx.nd.ones((2,)))
    kv.pull(settled_key, out=weight)
    refused(ValueError, ["pushed parameter 4 twice"], kv.push, [4, 4], [mx.nd.ones((2,))] * 2)
print("all uses are right")
