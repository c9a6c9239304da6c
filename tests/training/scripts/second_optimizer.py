"""Two groups share a parameter; a second optimizer, whose states begin anew, comes to the first group earlier.

Prints {"found": [...], "expected": [...]}, the weight after each update. Run by itself, without a job.
"""
import json
import os

from mxcluster import compat

mx = compat.import_mxnet()

from mxcluster.kvstore.group import GroupUpdate  # noqa: E402
from mxcluster.kvstore.layout import Layout  # noqa: E402
from mxcluster.kvstore.shared import Memory, path_of  # noqa: E402


def first():
    return mx.optimizer.SGD(learning_rate=0.1, momentum=0.5, wd=0, rescale_grad=0.5)


def second():
    """Its schedule halves the rate after two rounds of its own; the first one's do not count."""
    return mx.optimizer.SGD(learning_rate=0.01, momentum=0.5, wd=0, rescale_grad=0.5,
                            lr_scheduler=mx.lr_scheduler.FactorScheduler(2, 0.5))


layout, path = Layout(2, 1, [0, 1]), path_of(os.urandom(16), 0)
updates = [GroupUpdate(layout, 0, group, [1, 1], Memory(path, 2, 1), divided="one") for group in (0, 1)]
stored = [mx.nd.zeros((2,)) for _ in updates]
found, expected, weight = [], [], 0.0
velocity = {"first": 0.0, "second": 0.0}


def step(group, rate, states):
    """One update by a group, whose optimizer has this rate, with the velocity that it should have."""
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
step(1, 0.1, "first")  # this group has not heard of it yet; its batch counts for the first round
updates[1].use(second(), 2)
for group, rate in ((1, 0.01), (0, 0.01), (1, 0.005), (0, 0.005)):
    step(group, rate, "second")
print(json.dumps({"found": found, "expected": expected}))
