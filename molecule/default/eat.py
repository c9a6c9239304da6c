"""A user's script: worker 2 uses too much memory once the file /run/hungry exists.

It uses more than its unit may have, and less than the machine has.
"""

import os
import time

import mxnet as mx

from mxcluster import events

kv = mx.kvstore.create("dist_sync")
kv.init(0, mx.nd.zeros(2))
events.from_env().write("batch")
eaten = []
while True:
    kv.push(0, mx.nd.ones(2))
    kv.pull(0, out=mx.nd.zeros(2))
    mx.nd.waitall()
    time.sleep(0.05)
    if os.path.exists("/run/hungry") and os.environ["MXCLUSTER_INDEX"] == "2" and len(eaten) < 60:
        eaten.append(b"x" * 50_000_000)
