"""A user's script: print its user, unit and limits, then take part in the job."""

import os
import resource
import sys

import mxnet as mx
from beside import GREETING

with open(os.path.join(sys.argv[1], "deep", "sample")) as sample:
    print("DATA", sample.read(), flush=True)

kv = mx.kvstore.create("dist_sync")
with open("/proc/self/cgroup") as stream:
    print(
        "WHO",
        GREETING,
        os.getuid(),
        os.environ["HOME"],
        "mxcluster-agent@" in stream.read(),
        resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        flush=True,
    )
with open("/proc/self/status") as stream:
    print("RIGHTS", "NoNewPrivs:\t1" in stream.read(), os.listdir("/tmp"), flush=True)
kv.init(0, mx.nd.zeros(2))
kv.push(0, mx.nd.ones(2))
out = mx.nd.zeros(2)
kv.pull(0, out=out)
print("SUM", out.asnumpy().tolist(), flush=True)
