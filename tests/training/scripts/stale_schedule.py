"""Three workers push under dist_ssync with a schedule that halves the rate every two rounds.

Prints {"found": [...], "expected": [...], "refused": ...}: the weight after each push, and the
refusal of a checkpoint that was requested before the optimizer. Runs without a job.
"""

import json

from mxcluster.node import mxnet_compat

mx = mxnet_compat.import_mxnet()

from mxcluster.errors import BadInput  # noqa: E402
from mxcluster.training.kvstore.ssync_server import StaleUpdate  # noqa: E402

WORKERS = 3
stale = StaleUpdate(WORKERS, lambda optimizer, number: mx.optimizer.get_updater(optimizer))
try:
    refused = stale.save(".", "mlp-0001", "1")
except BadInput as refusal:
    refused = str(refusal)
stale.use(
    mx.optimizer.SGD(learning_rate=0.1, wd=0, lr_scheduler=mx.lr_scheduler.FactorScheduler(2, 0.5)),
    1,
)
stored, found, expected, weight = mx.nd.zeros((2,)), [], [], 0.0
for push in range(6 * WORKERS):
    stale(0, mx.nd.ones((2,)), stored)
    found.append(float(stored.asnumpy()[0]))
    # MXNet's schedule halves the rate once more than two rounds have begun, then four, ...
    weight -= 0.1 * 0.5 ** ((push // WORKERS) // 2)
    expected.append(weight)
print(json.dumps({"found": found, "expected": expected, "refused": refused}))
