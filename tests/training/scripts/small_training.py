"""Trains a small network on random numbers with Module or Gluon, and saves gradients seen and weights reached.

A user's script: nothing in it is mxcluster's.  Arguments: frontend, kv, steps, output, then key=value settings.
"""

import json
import os
import sys
import time

import mxnet as mx
import numpy as np

frontend, kind, steps, output = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
settings = {"optimizer": "sgd", "params": '{"learning_rate": 0.1}', "hidden": "16", "seed": "0", "pause": "0", "mult": "",
            "schedule": "", "delay": ""}
settings.update(argument.split("=", 1) for argument in sys.argv[5:])
BATCH, WIDTH, CLASSES = 8, 12, 5

mx.random.seed(7)
np.random.seed(7)
kv = mx.kv.create(kind)
index = int(os.environ.get("MXCLUSTER_INDEX", 0))
data = np.random.RandomState(100 + index + int(settings["seed"]))
batches = [(data.randn(BATCH, WIDTH).astype("float32"), data.randint(0, CLASSES, BATCH).astype("float32"))
           for _ in range(steps)]
params = json.loads(settings["params"])
if settings["schedule"]:
    params["lr_scheduler"] = mx.lr_scheduler.FactorScheduler(int(settings["schedule"]), 0.5)
settings["pause"] = os.environ.get("PAUSE", settings["pause"])
hidden = int(settings["hidden"])
gradients, history, started = [], [], []
delays = np.random.RandomState(index)


def note(values):
    history.append(values)
    if settings["pause"] != "0":
        time.sleep(float(settings["pause"]))
    if settings["delay"]:
        time.sleep(float(settings["delay"]) * delays.rand() ** 3)


if frontend == "module":
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=hidden, name="fc1")
    weight = mx.sym.Variable("fc2_weight", wd_mult=0.5, lr_mult=2.0) if settings["mult"] else None
    net = mx.sym.FullyConnected(mx.sym.Activation(net, act_type="relu"), num_hidden=CLASSES, name="fc2",
                                **({"weight": weight} if weight is not None else {}))
    net = mx.sym.SoftmaxOutput(net, name="softmax")
    module = mx.mod.Module(net)
    module.bind([("data", (BATCH, WIDTH))], [("softmax_label", (BATCH,))])
    module.init_params(mx.init.Xavier())
    module.init_optimizer(kvstore=kv, optimizer=settings["optimizer"], optimizer_params=params)
    names = module._param_names
    for x, y in batches:
        started.append(time.time())
        module.forward_backward(mx.io.DataBatch([mx.nd.array(x)], [mx.nd.array(y)]))
        gradients.append([arrays[0].asnumpy() for arrays in module._exec_group.grad_arrays])
        module.update()
        note([arrays[0].asnumpy() for arrays in module._exec_group.param_arrays])
    kv._barrier() if "dist" in kind else None
    weights = module.get_params()[0]
    weights = {name: weights[name].asnumpy() for name in names}
else:
    net = mx.gluon.nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(mx.gluon.nn.Dense(hidden, activation="relu", in_units=WIDTH),
                mx.gluon.nn.Dense(CLASSES, in_units=hidden))
    net.initialize(mx.init.Xavier())
    if settings["mult"]:
        net[1].weight.wd_mult, net[1].weight.lr_mult = 0.5, 2.0
    trainer = mx.gluon.Trainer(net.collect_params(), settings["optimizer"], params, kvstore=kv)
    ordered = trainer._params  # a parameter's key is its place here; from MXNet 1.7 they are sorted by name
    loss_of = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    for x, y in batches:
        started.append(time.time())
        with mx.autograd.record():
            loss = loss_of(net(mx.nd.array(x)), mx.nd.array(y))
        loss.backward()
        gradients.append([p.grad().asnumpy() for p in ordered])
        trainer.step(BATCH)
        note([p.data().asnumpy() for p in ordered])
    names = [p.name for p in ordered]
    weights = {p.name: p.data().asnumpy() for p in ordered}

np.savez(output + "-%d.npz" % index, names=names, started=started,
         **dict([("weight_%d" % i, weights[name]) for i, name in enumerate(names)]
                + [("gradient_%d_%d" % (t, i), g) for t, step in enumerate(gradients) for i, g in enumerate(step)]
                + [("history_%d_%d" % (t, i), w) for t, step in enumerate(history) for i, w in enumerate(step)]))
