"""Uses of a kv-store that each need a new store.

Arguments: kv, and the use: name, modules, sparse, numpy or rank_0.
"""

import sys

import mxnet as mx
from refusing import refused

kind, which = sys.argv[1:]


def name():
    """Trainer creates the store itself."""
    net = mx.gluon.nn.Dense(2, in_units=2, use_bias=False)
    net.initialize(mx.init.One())
    trainer = mx.gluon.Trainer(
        net.collect_params(), "sgd", {"learning_rate": 0.1, "wd": 0}, kvstore=kind
    )
    for _ in range(2):
        with mx.autograd.record():
            loss = net(mx.nd.ones((1, 2))).sum()
        loss.backward()
        trainer.step(1)
    assert (net.weight.data().asnumpy() < 1).all(), net.weight.data()


def modules():
    """The optimizer of a second Module on one store numbers its own parameters from 0."""
    kv = mx.kv.create(kind)
    kv.init(["a_weight", "b_weight"], [mx.nd.ones((2,))] * 2)
    kv.set_optimizer(mx.optimizer.SGD(param_idx2name={0: "b_weight"}))
    refused(
        ValueError,
        ["the number 0 for the parameter 'b_weight'", "number 1", "all Modules"],
        kv.push,
        "a_weight",
        mx.nd.ones((2,)),
    )


def sparse():
    """The gradient of a dense weight is sparse, as of an Embedding with sparse_grad.

    Once a store checked the gradients of the first step only, and then aborted.
    """
    kv = mx.kv.create(kind)
    weight, sparse = mx.nd.ones((4, 2)), mx.nd.ones((4, 2)).tostype("row_sparse")
    kv.init(0, weight)
    kv.set_optimizer(mx.optimizer.SGD())
    for _ in range(2):
        refused(TypeError, ["row_sparse", "dense parameters only"], kv.push, 0, sparse)
        kv.push(0, mx.nd.ones((4, 2)))
        kv.pull(0, out=weight)


def numpy():
    """MXNet's numpy arrays work, also split over two servers."""
    kv = mx.kv.create(kind)
    if not hasattr(mx, "np"):
        return
    weight = mx.np.ones((4,))
    kv.init("weight", weight)
    kv.set_optimizer(mx.optimizer.SGD(learning_rate=0.1, wd=0, rescale_grad=1.0))
    kv.push("weight", mx.np.ones((4,)))
    kv.pull("weight", out=weight)
    assert (weight.asnumpy() < 1).all(), weight


def rank_0():
    """Only rank 0 sets the optimizer."""
    kv = mx.kv.create(kind)
    weight = mx.nd.ones((4,))
    kv.init(0, weight)
    if kv.rank == 0:
        kv.set_optimizer(mx.optimizer.SGD(learning_rate=1, wd=0, rescale_grad=1.0))
    kv._barrier()
    if kv.rank and kind != "dist_sync":
        refused(ValueError, ["call set_optimizer() before push()"], kv.push, 0, weight)
    elif kind == "dist_sync":
        kv.push(0, mx.nd.ones((4,)))
        kv.pull(0, out=weight)
        assert (weight.asnumpy() == 1 - 2).all(), weight


{"name": name, "modules": modules, "sparse": sparse, "numpy": numpy, "rank_0": rank_0}[which]()
print("right")
