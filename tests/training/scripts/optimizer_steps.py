"""Update an array with optimizers of MXNet, and save all steps.

Each step has another rescale_grad and learning rate. Arguments: output, then name and params of
each optimizer, params in JSON.
"""

import json
import sys

import numpy as np

from mxcluster.node import mxnet_compat

mx = mxnet_compat.import_mxnet()

saved = {}
for number, (name, params) in enumerate(zip(sys.argv[2::2], map(json.loads, sys.argv[3::2]))):
    numbers = np.random.RandomState(number)
    optimizer = mx.optimizer.create(name, **params)
    update = mx.optimizer.get_updater(optimizer)
    rate = optimizer.lr
    weight = mx.nd.array(0.3 * numbers.randn(200))
    gradients = (3 * numbers.randn(40, 200)).astype("float32")
    scales, rates = 0.05 + 0.1 * numbers.rand(40), rate * (0.5 + numbers.rand(40))
    weights = [weight.asnumpy()]
    for gradient, scale, lr in zip(gradients, scales, rates):
        optimizer.rescale_grad, optimizer.lr = scale, lr
        update(0, mx.nd.array(gradient), weight)
        weights.append(weight.asnumpy())
    for what, values in (
        ("gradients", gradients),
        ("scales", scales),
        ("rates", rates),
        ("weights", weights),
    ):
        saved["%s_%d" % (what, number)] = values
np.savez(sys.argv[1], **saved)
