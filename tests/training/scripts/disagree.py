"""Workers that send contradictory settings to the servers.

Arguments: kv, and the setting that worker 1 changes: names, rescale_grad, class, lr_mult or
schedule.
"""

import os
import sys
import time

import mxnet as mx

kv, what = mx.kv.create(sys.argv[1]), sys.argv[2]
other = os.environ["MXCLUSTER_INDEX"] == "1"
names = ["b", "a"] if other and what == "names" else ["a", "b"]
kv.init(names, [mx.nd.zeros((2,))] * 2)
optimizer = (
    mx.optimizer.Adam()
    if other and what == "class"
    else mx.optimizer.SGD(rescale_grad=0.25 if other and what == "rescale_grad" else 0.5)
)
optimizer.set_lr_mult({0: 0.5 if other and what == "lr_mult" else 2.0})
optimizer.lr_scheduler = mx.lr_scheduler.FactorScheduler(7 if other and what == "schedule" else 5)
kv.set_optimizer(optimizer)
print("sent at %f" % time.monotonic(), flush=True)
kv.push("a", mx.nd.ones((2,)))
kv._barrier()
