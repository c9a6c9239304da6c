"""Print how far 30 rounds move a weight, for one group and for three groups that merge in turns.

Every gradient is 1. The output is {optimizer: {"one group", "rate", "gradient"}}: "rate" and
"gradient" are the quantities that Y divides. The script runs without a job.
"""

import json

from group_updates import mx, of_groups

WORKERS, ROUNDS = 3, 30
OPTIMIZERS = {
    "sgd": lambda: mx.optimizer.SGD(learning_rate=0.01, rescale_grad=1.0 / WORKERS, wd=0),
    "sgd, momentum 0.9": lambda: mx.optimizer.SGD(
        learning_rate=0.001, rescale_grad=1.0 / WORKERS, wd=0, momentum=0.9
    ),
    "sgd, clip_gradient 0.1": lambda: mx.optimizer.SGD(
        learning_rate=0.01, rescale_grad=1.0 / WORKERS, wd=0, clip_gradient=0.1
    ),
    "sgd, wd 1": lambda: mx.optimizer.SGD(learning_rate=0.01, rescale_grad=1.0 / WORKERS, wd=1),
    "adam": lambda: mx.optimizer.Adam(learning_rate=0.01, rescale_grad=1.0 / WORKERS, wd=0),
    "rmsprop": lambda: mx.optimizer.RMSProp(learning_rate=0.01, rescale_grad=1.0 / WORKERS, wd=0),
    "signum": lambda: mx.optimizer.Signum(
        learning_rate=0.01, rescale_grad=1.0 / WORKERS, momentum=0
    ),
}


def alone(optimizer):
    weight, update = mx.nd.ones((4,)), mx.optimizer.get_updater(optimizer)
    for _ in range(ROUNDS):
        update(0, mx.nd.ones((4,)) * WORKERS, weight)
    return 1 - float(weight.asnumpy()[0])


def in_groups(make, divided):
    layout, updates = of_groups([1] * WORKERS, divided=divided)
    stored = [mx.nd.ones((4,)) for _ in updates]
    for update in updates:
        update.use(make(), 1)
    for _ in range(ROUNDS):
        for group, update in enumerate(updates):
            update(layout.key(group, 0, 0), mx.nd.ones((4,)), stored[group])
    return 1 - float(stored[-1].asnumpy()[0])


print(
    json.dumps(
        {
            name: {
                "one group": alone(make()),
                "rate": in_groups(make, "rate"),
                "gradient": in_groups(make, "gradient"),
            }
            for name, make in OPTIMIZERS.items()
        }
    )
)
