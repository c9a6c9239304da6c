"""Train with Module.fit and print what MXNet prints. The script knows nothing of mxcluster."""

import logging

import mxnet as mx
import numpy as np

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
kv = mx.kv.create("dist_sync")
random = np.random.RandomState(7)
labels = np.arange(2000) % 4
samples = (random.randn(4, 20)[labels] * 2 + random.randn(2000, 20)).astype("float32")
mine = slice(kv.rank, None, kv.num_workers)
net = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=4)
mx.mod.Module(mx.sym.SoftmaxOutput(net, name="softmax")).fit(
    mx.io.NDArrayIter(samples[mine], labels[mine], 20, shuffle=True),
    eval_data=mx.io.NDArrayIter(samples[:400], labels[:400], 20),
    kvstore=kv,
    num_epoch=4,
    optimizer_params={"learning_rate": 0.1},
    eval_metric=["acc", "ce"],
    batch_end_callback=mx.callback.Speedometer(20, 10),
    epoch_end_callback=lambda epoch, *_: print("epoch %d: BLEU %d" % (epoch, 10 * epoch)),
)
print("a" * 60 + "b")
