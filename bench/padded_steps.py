"""A worker of the benchmark `kvstore`: steps of a fixed length, of which the kv-store's part is what differs.

Each step computes, then sleeps until `pad` seconds after its beginning, then updates; so the figures do not depend on how
many workers share a core.  Arguments: kv, network, batch size, steps, pad, output.
"""

import json
import os
import sys
import time

import mxnet as mx
import numpy as np

from mxcluster.programs.image_classification import networks


def work(kind, network, batch, steps, pad, output):
    """Trains `steps` steps on random pictures of 28 x 28 and writes seconds and late steps to `output`."""
    kv = mx.kv.create(kind)
    module = mx.mod.Module(networks.symbol(network, 10))
    module.bind([("data", (batch, 3, 28, 28))], [("softmax_label", (batch,))])
    module.init_params(mx.init.Xavier())
    module.init_optimizer(kvstore=kv, optimizer="sgd", optimizer_params={"learning_rate": 0.01, "momentum": 0.9})
    data = mx.io.DataBatch([mx.nd.array(np.random.rand(batch, 3, 28, 28))], [mx.nd.array(np.arange(batch) % 10)])
    late, moments = 0, []
    for _ in range(steps):
        moments.append(time.time())
        module.forward_backward(data)
        mx.nd.waitall()
        rest = moments[-1] + pad - time.time()
        late += rest < 0
        time.sleep(max(rest, 0))
        module.update()
        mx.nd.waitall()
    moments.append(time.time())
    warm = 5  # the first steps set up and learn the order of the keys
    with open("%s-%s.json" % (output, os.environ["MXCLUSTER_INDEX"]), "w") as stream:
        json.dump({"samples_per_s": batch * (steps - warm) / (moments[-1] - moments[warm]), "late": late}, stream)


if __name__ == "__main__":
    work(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]), sys.argv[6])
