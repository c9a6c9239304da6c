"""Two groups share a parameter, and a second optimizer reaches the first group earlier.

The second optimizer has new states. Prints {"found": [...], "expected": [...]}, the weight after
each update. Runs without a job.
"""

import json

from group_updates import mx, of_groups


def first():
    return mx.optimizer.SGD(learning_rate=0.1, momentum=0.5, wd=0, rescale_grad=0.5)


def second():
    """Return an optimizer whose schedule halves the rate after two rounds of its own."""
    return mx.optimizer.SGD(
        learning_rate=0.01,
        momentum=0.5,
        wd=0,
        rescale_grad=0.5,
        lr_scheduler=mx.lr_scheduler.FactorScheduler(2, 0.5),
    )


layout, updates = of_groups([1, 1], divided="one")
stored = [mx.nd.zeros((2,)) for _ in updates]
found, expected, weight = [], [], 0.0
velocity = {"first": 0.0, "second": 0.0}


def step(group, rate, states):
    """Check one update by a group with this rate and with the velocity of its optimizer."""
    global weight
    updates[group](layout.key(group, 0, 0), mx.nd.ones((2,)), stored[group])
    found.append(float(stored[group].asnumpy()[0]))
    velocity[states] = 0.5 * velocity[states] - rate
    weight += velocity[states]
    expected.append(weight)


for update in updates:
    update.use(first(), 1)
for number in range(7):
    step(number % 2, 0.1, "first")
updates[0].use(second(), 2)
step(0, 0.01, "second")
# this group has no second optimizer yet; its batch counts for the first round
step(1, 0.1, "first")
updates[1].use(second(), 2)
for group, rate in ((1, 0.01), (0, 0.01), (1, 0.005), (0, 0.005)):
    step(group, rate, "second")
print(json.dumps({"found": found, "expected": expected}))
