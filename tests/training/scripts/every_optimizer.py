"""Compare every optimizer of MXNet, shared by two groups without division, with MXNet's updater.

Prints {"same": [names], "refused": {name: its state in Python}, "other": {name: the difference}}.
Runs without a job.
"""

import json

import numpy as np
from group_updates import mx, of_groups

from mxcluster.errors import BadInput
from mxcluster.training.kvstore.gsync_worker import numbers_kept

ROUNDS, SHAPE = 6, (4, 2)
BY_CHANCE = ("sgld",)  # adds random numbers


def gradients():
    numbers = np.random.RandomState(3)
    return [mx.nd.array(numbers.randn(*SHAPE)) for _ in range(2 * ROUNDS)]


def alone(optimizer):
    weight, update = mx.nd.ones(SHAPE), mx.optimizer.get_updater(optimizer)
    for gradient in gradients():
        update(0, gradient, weight)
    return weight.asnumpy()


def shared(known):
    layout, updates = of_groups([1, 1], divided="one")
    stored = [mx.nd.ones(SHAPE) for _ in updates]
    for update in updates:
        update.use(known(rescale_grad=0.5), 1)
    for number, gradient in enumerate(gradients()):
        updates[number % 2](layout.key(number % 2, 0, 0), gradient, stored[number % 2])
    return stored[1].asnumpy()


same, refused, other = [], {}, {}
for name, known in sorted(mx.optimizer.Optimizer.opt_registry.items()):
    if (
        name in BY_CHANCE or name == "lbsgd" and mx.__version__ == "1.2.1"
    ):  # MXNet 1.2.1 lacks an import in it
        continue
    kept = numbers_kept(known(rescale_grad=0.5))
    if kept:
        refused[name] = kept
        continue
    try:
        found = shared(known)
    except BadInput as problem:
        refused[name] = str(problem)
        continue
    # A group of one of two workers counts for both.
    expected = alone(known(rescale_grad=1.0))
    if np.allclose(found, expected, atol=1e-6):
        same.append(name)
    else:
        other[name] = [found.tolist(), expected.tolist()]
print(json.dumps({"same": same, "refused": refused, "other": other}))
