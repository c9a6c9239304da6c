"""Train a small network on random numbers, and save all pushes and pulls of every step.

This is a user's script without code of mxcluster. Arguments: frontend, kv, steps, output, then
key=value settings.

Frontends:
    module         Module creates the optimizer from its name
    module_object  Module gets an optimizer object, with the rescale_grad that dist_sync needs
    feedforward    mx.model.FeedForward
    gluon          Gluon's Trainer
    plain          a loop around push and pull, with an optimizer as in module_object

Settings:
    optimizer, params, clip  a name, its arguments in JSON, and clip_gradient
    lr_mult, wd_mult         multipliers in JSON, by fc1_weight, fc1_bias, fc2_weight and fc2_bias
    mult=1                   the multipliers 2 and 0.5 for fc2_weight
    schedule=n               halves the learning rate every n updates
    named=1                  module_object, plain: the optimizer knows the parameters' names
    keys                     plain: string, or integer
    calls                    plain: each (push and pull key by key), all (push all, then pull
                             all), or lists (of keys)
    hidden, seed             the size of the hidden layer, and a number that changes the data
    freeze=n                 gluon: fc1_weight is not trained from step n on
    compress=t               2-bit gradient compression with the threshold t (not feedforward)
    final=1                  pulls the weights once more when all workers are done
    pause, delay             seconds to sleep after a step, and the longest of random sleeps
"""

import json
import os
import sys
import time

import mxnet as mx
import numpy as np

frontend, kind, steps, output = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
settings = {
    "optimizer": "sgd",
    "params": '{"learning_rate": 0.1}',
    "clip": "",
    "lr_mult": "",
    "wd_mult": "",
    "mult": "",
    "schedule": "",
    "named": "",
    "keys": "string",
    "calls": "each",
    "hidden": "16",
    "seed": "0",
    "pause": "0",
    "delay": "",
    "freeze": "",
    "compress": "",
    "final": "",
}
settings.update(argument.split("=", 1) for argument in sys.argv[5:])
BATCH, WIDTH, CLASSES = 8, 12, 5
LAYERS = ["fc1_weight", "fc1_bias", "fc2_weight", "fc2_bias"]


class Recorder(object):
    """Intercept the calls of a kv-store, and copy their arrays.

    A gradient is copied before its push, because a pull may write to the same array. The first
    arrays into which a key is pulled are its weights; they are copied after each step. The initial
    weights are those given to the store, since another worker may train before the first pull.
    """

    def __init__(self, kv):
        self.weights, self.pushed, self.given = {}, {}, {}
        self.gradients, self.history, self.started = [], [], []
        for name in ("init", "broadcast"):
            self._watch(kv, name, ("value", "out"), self._giving)
        for name in ("push", "pushpull"):
            self._watch(kv, name, ("value",), self._pushing)
        for name in ("pull", "broadcast", "pushpull"):
            self._watch(kv, name, ("value", "out") if name != "pull" else ("out",), self._pulling)

    def _watch(self, kv, name, parameters, note):
        call = getattr(kv, name, None)  # MXNet 1.2 has neither broadcast nor pushpull

        def watched(key, *values, **named):
            note(key, dict(dict(zip(parameters, values)), **named))
            return call(key, *values, **named)

        if call:
            setattr(kv, name, watched)

    def _giving(self, key, arguments):
        for name, array in pairs(key, arguments["value"]):
            self.given.setdefault(name, array.asnumpy())

    def _pushing(self, key, arguments):
        self.pushed.update(
            (name, array.asnumpy()) for name, array in pairs(key, arguments["value"])
        )

    def _pulling(self, key, arguments):
        if arguments.get("out") is not None:
            for name, array in pairs(key, arguments["out"]):
                self.weights.setdefault(name, array)

    def _copy(self):
        return [array.asnumpy() for array in self.weights.values()]

    def begin_step(self):
        self.started.append(time.monotonic())

    def end_step(self):
        self.gradients.append(
            [
                self.pushed.pop(name, np.zeros(array.shape, "float32"))
                for name, array in self.weights.items()
            ]
        )
        self.history.append(self._copy())
        if settings["pause"] != "0":
            time.sleep(float(settings["pause"]))
        if settings["delay"]:
            time.sleep(float(settings["delay"]) * delays.rand() ** 3)


def pairs(key, value):
    """Return [(key, the first device's array)] of a call."""
    keys, values = (key, value) if isinstance(key, (list, tuple)) else ([key], [value])
    return [
        (name, arrays[0] if isinstance(arrays, (list, tuple)) else arrays)
        for name, arrays in zip(keys, values)
    ]


mx.random.seed(7)
np.random.seed(7)
kv = mx.kv.create(kind)
index = int(os.environ.get("MXCLUSTER_INDEX", 0))
data = np.random.RandomState(100 + index + int(settings["seed"]))
batches = [
    (data.randn(BATCH, WIDTH).astype("float32"), data.randint(0, CLASSES, BATCH).astype("float32"))
    for _ in range(steps)
]
params = json.loads(settings["params"])
if settings["clip"]:
    params["clip_gradient"] = float(settings["clip"])
if settings["schedule"]:
    params["lr_scheduler"] = mx.lr_scheduler.FactorScheduler(int(settings["schedule"]), 0.5)
lr_mult, wd_mult = json.loads(settings["lr_mult"] or "{}"), json.loads(settings["wd_mult"] or "{}")
if settings["mult"]:
    lr_mult["fc2_weight"], wd_mult["fc2_weight"] = 2.0, 0.5
settings["pause"] = os.environ.get("PAUSE", settings["pause"])
compression = settings["compress"] and {"type": "2bit", "threshold": float(settings["compress"])}
hidden = int(settings["hidden"])
delays = np.random.RandomState(index)
recorder = Recorder(kv)


def symbol():
    def variable(name):
        return mx.sym.Variable(name, lr_mult=lr_mult.get(name), wd_mult=wd_mult.get(name))

    net = mx.sym.FullyConnected(
        mx.sym.Variable("data"),
        variable("fc1_weight"),
        variable("fc1_bias"),
        num_hidden=hidden,
        name="fc1",
    )
    net = mx.sym.FullyConnected(
        mx.sym.Activation(net, act_type="relu"),
        variable("fc2_weight"),
        variable("fc2_bias"),
        num_hidden=CLASSES,
        name="fc2",
    )
    return mx.sym.SoftmaxOutput(net, name="softmax")


def network():
    """Return a network of Gluon and its parameters, in the order of LAYERS."""
    net = mx.gluon.nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(
            mx.gluon.nn.Dense(hidden, activation="relu", in_units=WIDTH),
            mx.gluon.nn.Dense(CLASSES, in_units=hidden),
        )
    net.initialize(mx.init.Xavier())
    return net, [net[0].weight, net[0].bias, net[1].weight, net[1].bias]


def backward(net, x, y):
    with mx.autograd.record():
        loss = mx.gluon.loss.SoftmaxCrossEntropyLoss()(net(mx.nd.array(x)), mx.nd.array(y))
    loss.backward()


def own_optimizer(names):
    """Return an optimizer made by the user; `names` are the parameters' names by index."""
    optimizer = mx.optimizer.create(
        settings["optimizer"],
        param_idx2name=names if settings["named"] else None,
        **dict({"rescale_grad": 1.0 / (BATCH * kv.num_workers)}, **params),
    )
    for multipliers, tell in ((lr_mult, optimizer.set_lr_mult), (wd_mult, optimizer.set_wd_mult)):
        if multipliers:
            tell(
                {
                    name if settings["named"] else number: multipliers[name]
                    for number, name in names.items()
                    if name in multipliers
                }
            )
    return optimizer


def train_module(own):
    module = mx.mod.Module(symbol(), compression_params=compression or None)
    module.bind([("data", (BATCH, WIDTH))], [("softmax_label", (BATCH,))])
    module.init_params(mx.init.Xavier())
    names = module._param_names
    if own:
        module.init_optimizer(kvstore=kv, optimizer=own_optimizer(dict(enumerate(names))))
    else:
        module.init_optimizer(kvstore=kv, optimizer=settings["optimizer"], optimizer_params=params)
    for x, y in batches:
        recorder.begin_step()
        module.forward_backward(mx.io.DataBatch([mx.nd.array(x)], [mx.nd.array(y)]))
        module.update()
        recorder.end_step()
    kv._barrier() if "dist" in kind else None
    weights = module.get_params()[0]
    return names, [weights[name].asnumpy() for name in names]


def train_feedforward():
    def end_step(_):
        recorder.end_step()
        recorder.begin_step()

    examples = mx.io.NDArrayIter(*map(np.concatenate, zip(*batches)), batch_size=BATCH)
    model = mx.model.FeedForward(
        symbol(),
        num_epoch=1,
        optimizer=settings["optimizer"],
        initializer=mx.init.Xavier(),
        **params,
    )
    recorder.begin_step()
    model.fit(examples, kvstore=kv, batch_end_callback=end_step)
    recorder.started.pop()
    names = list(recorder.weights)
    return names, [model.arg_params[name].asnumpy() for name in names]


def train_gluon():
    net, parameters = network()
    for name, parameter in zip(LAYERS, parameters):
        parameter.lr_mult, parameter.wd_mult = lr_mult.get(name, 1.0), wd_mult.get(name, 1.0)
    trainer = mx.gluon.Trainer(
        net.collect_params(),
        settings["optimizer"],
        params,
        kvstore=kv,
        compression_params=compression or None,
    )
    for step, (x, y) in enumerate(batches):
        if settings["freeze"] == str(step):
            parameters[0].grad_req = "null"
        recorder.begin_step()
        backward(net, x, y)
        trainer.step(BATCH)
        recorder.end_step()
    # A parameter's key is its position in the trainer, which sorts by name from MXNet 1.7 on.
    names = [LAYERS[parameters.index(parameter)] for parameter in trainer._params]
    return names, [parameter.data().asnumpy() for parameter in trainer._params]


def train_plain():
    net, parameters = network()
    keys = LAYERS if settings["keys"] == "string" else [3, 5, 8, 13]
    if compression:
        kv.set_gradient_compression(compression)
    arrays, gradients = [p.data() for p in parameters], [p.grad() for p in parameters]
    # Servers know a string key by its position in the order of init.
    kv.set_optimizer(
        own_optimizer(dict(zip(range(4) if settings["keys"] == "string" else keys, LAYERS)))
    )
    if settings["calls"] == "lists":
        kv.init(keys, arrays)
        kv.pull(keys, out=arrays)
    else:
        for key, array in zip(keys, arrays):
            kv.init(key, array)
            kv.pull(key, out=array)
    for x, y in batches:
        recorder.begin_step()
        backward(net, x, y)
        if settings["calls"] == "lists":
            kv.push(keys, gradients)
            kv.pull(keys, out=arrays)
        elif settings["calls"] == "all":
            for key, gradient in zip(keys, gradients):
                kv.push(key, gradient)
            for key, array in zip(keys, arrays):
                kv.pull(key, out=array)
        else:
            for key, array, gradient in zip(keys, arrays, gradients):
                kv.push(key, gradient)
                kv.pull(key, out=array)
        recorder.end_step()
    return LAYERS, [array.asnumpy() for array in arrays]


FRONTENDS = {
    "module": lambda: train_module(own=False),
    "module_object": lambda: train_module(own=True),
    "feedforward": train_feedforward,
    "gluon": train_gluon,
    "plain": train_plain,
}
names, weights = FRONTENDS[frontend]()
saved = {
    "names": names,
    "started": recorder.started,
    "lr_mult": [lr_mult.get(name, 1.0) for name in names],
}
# An optimizer with the parameters' names does not decay biases.
knows_names = frontend in ("module", "feedforward") or frontend != "gluon" and settings["named"]
saved["wd_mult"] = [
    wd_mult.get(name, 0.0 if knows_names and name.endswith("bias") else 1.0) for name in names
]
for name, arrays in (
    ("weight", weights),
    ("initial", [recorder.given[key] for key in recorder.weights]),
):
    saved.update(("%s_%d" % (name, i), array) for i, array in enumerate(arrays))
for name, logged in (("gradient", recorder.gradients), ("history", recorder.history)):
    for t, arrays in enumerate(logged):
        saved.update(("%s_%d_%d" % (name, t, i), array) for i, array in enumerate(arrays))
if settings["final"]:
    mx.nd.waitall()
    kv._barrier()
    for i, (key, array) in enumerate(recorder.weights.items()):
        last = mx.nd.zeros(array.shape)
        kv.pull(key, out=last)
        saved["final_%d" % i] = last.asnumpy()
np.savez(output + "-%d.npz" % index, **saved)
