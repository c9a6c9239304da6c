"""Compare each optimizer of MXNet, and each schedule, with what arrives on a server, without a job.

Prints the number of the compared optimizers.
"""

import inspect
import math
import warnings

import numpy as np

from mxcluster.node import mxnet_compat

mx = mxnet_compat.import_mxnet()

from mxcluster.training.kvstore import (  # noqa: E402
    optimizer_json,
    server_classes,
    server_messages,
)
from mxcluster.training.kvstore.server_messages import as_json, portable  # noqa: E402

ALLOWED = server_classes.allowed()
NUMBERS = [np.float32(0.1), np.float64(0.1), np.int64(3), np.bool_(True), np.float16(math.inf)]
ODD = {
    "rescale_grad": [np.float64(1) / 3, 1e-300, math.inf, np.float32(0.1)],
    "param_idx2name": [{0: "a_weight", 7: "b_bias", 2**40: "\u00fc\0\ud800_gamma"}],
    "wd": [np.float32(1e-4), -0.0],
    "clip_gradient": [math.nan, 5],
    "learning_rate": [np.float16(0.3), 10**30],
    "begin_num_update": [17],
    "multi_precision": [True],
}


def symbol():
    weight = mx.sym.Variable("a_weight", lr_mult=0.25, wd_mult=0.5)
    return mx.sym.FullyConnected(mx.sym.Variable("data"), weight=weight, num_hidden=2, name="a")


def schedules():
    """Return objects of all schedules, with default and odd arguments."""
    known = mx.lr_scheduler
    found = [
        known.FactorScheduler(3, 0.5, stop_factor_lr=1e-300),
        known.MultiFactorScheduler([2, 5], np.float64(0.1)),
        known.PolyScheduler(9),
    ]
    if hasattr(known, "CosineScheduler"):
        found.append(known.CosineScheduler(90, warmup_steps=7, warmup_mode="constant"))
    for schedule in found:  # the call changes the rate, which must arrive
        schedule(6)
    return found


def same(one, other, where, pairs):
    """Assert that both values are of one class and equal, and share their parts in one way."""
    assert type(one) is type(other), (where, one, other)
    if isinstance(one, type):
        assert one is other, where
        return
    if isinstance(one, (list, dict, set, np.ndarray)) or hasattr(one, "__dict__"):
        assert one is not other and pairs.setdefault(id(one), other) is other, where
    if isinstance(one, np.ndarray):
        assert one.dtype == other.dtype and one.shape == other.shape, where
        assert one.tobytes() == other.tobytes(), where
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other), where
        for place, (left, right) in enumerate(zip(one, other)):
            same(left, right, "%s[%d]" % (where, place), pairs)
    elif isinstance(one, dict):
        assert list(one) == list(other) and list(map(type, one)) == list(map(type, other)), where
        for key in one:
            same(one[key], other[key], "%s[%r]" % (where, key), pairs)
    elif hasattr(one, "__dict__"):
        same(vars(one), vars(other), where, pairs)
    else:
        assert repr(one) == repr(other), (where, one, other)


def travels(optimizer, allowed=ALLOWED):
    sent = portable(optimizer)
    got = optimizer_json.check_optimizer(optimizer_json.decode(as_json(optimizer), allowed))
    try:
        same(sent, got, type(optimizer).__name__, {})
    except AssertionError as problem:
        raise SystemExit("%r: %r" % (problem, vars(optimizer))) from problem
    return 1


checked, seen = 0, set()
for name, cls in sorted(mx.optimizer.Optimizer.opt_registry.items()):
    if name == "lbsgd" and mx.__version__ == "1.2.1":
        continue  # it lacks an import
    seen.add(cls)
    odd = dict(ODD, sym=[symbol()], lr_scheduler=schedules())
    for argument, parameter in inspect.signature(cls).parameters.items():
        default = parameter.default
        if argument not in odd and isinstance(default, (bool, int, float)):
            odd[argument] = [not default] if isinstance(default, bool) else [*NUMBERS, default * 3]
    cases = [{}] + [{argument: value} for argument, values in odd.items() for value in values]
    for arguments in cases:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                optimizer = cls(**arguments)
            except (TypeError, ValueError, AssertionError):
                continue  # Not every class takes every odd value.
        for index in (0, 7, [1, 2]):
            optimizer._update_count(0 if mx.__version__ == "1.2.1" else index)
        optimizer._set_current_context(1) if hasattr(optimizer, "_set_current_context") else None
        optimizer.more = [
            NUMBERS,
            np.arange(6, dtype=">f4").reshape(2, 3).astype("f4"),
            {1: (2, None), (3, "b"): b"\0\xff", "c": {1, 2}},
            frozenset([1]),
            optimizer.lr_mult,
            np.float32,
            np.dtype("i2"),
            2**70,
            1j,
        ]
        checked += travels(optimizer)

# Gluon keeps the multipliers of learning rate and weight decay in the parameters.
parameter = mx.gluon.Parameter("dense0_weight", shape=(2,), lr_mult=0.5, wd_mult=np.float32(2))
parameter.initialize()
trainer = mx.gluon.Trainer({"dense0_weight": parameter}, "adam", {"wd": 0.1})
got = optimizer_json.decode(as_json(trainer._optimizer), ALLOWED)
assert got.lr_mult[0] == 0.5 and got.wd_mult[0] == 2, vars(got)
checked += travels(trainer._optimizer)
assert {cls for cls in ALLOWED.values() if cls in seen} == seen, seen

# A distributed store of MXNet sends JSON, then MXNet's command for multi-precision, and no pickle.
sent = []
mx.kvstore.KVStore._send_command_to_servers = lambda store, head, body: sent.append((head, body))
server_messages.send = lambda store, kind, payload: sent.append((kind, payload))
server_messages.install()
store = type("Distributed", (), {"type": "dist_sync"})()
for multi_precision, commands in ((False, []), (True, [(1, "")])):
    optimizer = mx.optimizer.SGD(multi_precision=multi_precision)
    sent.clear()
    mx.kvstore.KVStore.set_optimizer(store, optimizer)
    assert sent == [("optimizer", as_json(optimizer)), *commands], sent
try:
    mx.kvstore.KVStore._send_command_to_servers(store, 0, "pickle")
except ValueError as error:
    assert "accept no pickle" in str(error), error
else:
    raise AssertionError("the pickle was sent")

# A local store keeps the optimizer itself, whose learning rate the script may change.
kv, sgd, weight = mx.kv.create("local"), mx.optimizer.SGD(learning_rate=1.0), mx.nd.zeros((1,))
kv.init(0, weight)
kv.set_optimizer(sgd)
sgd.set_learning_rate(0.5)
kv.push(0, mx.nd.ones((1,)))
kv.pull(0, out=weight)
assert weight.asscalar() == -0.5, weight
print("CHECKED %d OF %d" % (checked, len(seen)))
