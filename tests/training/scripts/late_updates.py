"""Let groups of different speeds merge random sums, and save each sum and each pull.

Arguments: the file to write, then a JSON object for each case: "optimizer" and "params" of MXNet;
"sizes", |g| of each group; the "settings" of Lateness; "schedule", the rounds until the rate is
halved; "alone", true if only the first group merges; "infinite", true for sums with an infinite
number. The file has for case c: initial_c; order_c, the group of each merge; sums_c[t] and
pulled_c[t] of merge t. GroupUpdate writes its events to MXCLUSTER_JOB_DIR. The script runs without
a job.
"""

import json
import sys

import numpy as np
from group_updates import mx, of_groups

MERGES, SHAPE = 60, (6, 4)


def run(optimizer, params, sizes, settings, schedule=0, alone=False, infinite=False):
    numbers, groups = np.random.RandomState(5), len(sizes)
    layout, updates = of_groups(sizes, **settings)
    initial = numbers.randn(*SHAPE).astype("float32")
    stored = [mx.nd.array(initial) for _ in updates]
    for update in updates:
        more = {"lr_scheduler": mx.lr_scheduler.FactorScheduler(schedule, 0.5)} if schedule else {}
        made = mx.optimizer.create(optimizer, rescale_grad=1.0 / sum(sizes), **dict(params, **more))
        update.use(made, 1)
    # The first group is fast, and the others are late.
    speeds = np.array([6.0] + [1.0] * (groups - 1))
    order, sums, pulled = [], [], []
    for _ in range(MERGES):
        group = 0 if alone else int(numbers.choice(groups, p=speeds / speeds.sum()))
        total = mx.nd.array(2 * numbers.randn(*SHAPE) * sizes[group])
        if infinite:
            total[0, 0] = np.inf
        order.append(group)
        sums.append(total.asnumpy())
        updates[group](layout.key(group, 0, 0), total, stored[group])
        pulled.append(stored[group].asnumpy())
    for update in updates:
        update.close()
    return initial, order, sums, pulled


saved = {}
for number, case in enumerate(sys.argv[2:]):
    found = run(**json.loads(case))
    for name, arrays in zip(("initial", "order", "sums", "pulled"), found):
        saved["%s_%d" % (name, number)] = np.array(arrays)
np.savez(sys.argv[1], **saved)
