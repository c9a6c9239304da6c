"""Train a linear regression with SVRGModule of mx.contrib; argument: kv."""

import sys

import mxnet as mx
import numpy as np
from mxnet.contrib.svrg_optimization.svrg_module import SVRGModule

kv, rng = mx.kv.create(sys.argv[1]), np.random.RandomState(1)
inputs = rng.rand(256, 4).astype("float32")
outputs = inputs.dot(np.array([1.0, 2.0, -1.0, 0.5])).astype("float32")
part = slice(kv.rank * 256 // kv.num_workers, (kv.rank + 1) * 256 // kv.num_workers)
batches = mx.io.NDArrayIter(inputs[part], outputs[part], 16, label_name="lin_reg_label")
net = mx.sym.LinearRegressionOutput(
    mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=1, name="fc"),
    mx.sym.Variable("lin_reg_label"),
)
module = SVRGModule(net, data_names=["data"], label_names=["lin_reg_label"], update_freq=2)
module.fit(
    batches,
    eval_metric="mse",
    num_epoch=8,
    kvstore=kv,
    optimizer="sgd",
    optimizer_params={"learning_rate": 0.3},
)
print("MSE", dict(module.score(batches, "mse")))
