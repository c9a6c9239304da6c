"""Call a kv-store with unsupported arguments, and check the messages."""

import sys

import mxnet as mx
from refusing import refused

kv = mx.kv.create(sys.argv[1])

ones = mx.nd.ones((2, 2))
assert kv is mx.kv.create(sys.argv[1].upper()), "the same store again"
assert kv.type.endswith(sys.argv[1][-5:]), kv.type
refused(ValueError, ["dist_gsynch", "did you mean 'dist_gsync'"], mx.kv.create, "dist_gsynch")
refused(ValueError, ["dist_foo", "known"], mx.kvstore.create, "dist_foo")
other = "dist_sync" if sys.argv[1] == "dist_gsync" else "dist_gsync"
refused(RuntimeError, ["planned for kv=" + sys.argv[1], "-e kv=" + other], mx.kv.create, other)
refused(TypeError, ["float16", "float32"], kv.init, 0, ones.astype("float16"))
refused(TypeError, ["int32", "float32"], kv.init, "fc_weight", ones.astype("int32"))
refused(TypeError, ["row_sparse", "dist_sync"], kv.init, 0, ones.tostype("row_sparse"))
refused(ValueError, ["215330"], kv.init, 215330, ones)
refused(ValueError, ["set_optimizer"], kv.push, 7, ones)
if sys.argv[1] == "dist_ssync":
    refused(
        ValueError,
        ["does not compress", "iteration counts", "dist_sync"],
        kv.set_gradient_compression,
        {"type": "2bit"},
    )
refused(TypeError, ["dense"], kv.row_sparse_pull, 0, ones)
net = mx.gluon.nn.Dense(2, in_units=2, use_bias=False)
net.initialize()
with mx.autograd.record():
    loss = net(ones)
loss.backward()
if (
    mx.__version__ >= "1.3"
):  # before 1.3, Trainer keeps the optimizer for every distributed store but ours
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd", kvstore=kv, update_on_kvstore=False)
    refused(
        ValueError, ["update_on_kvstore"], trainer.step, 1
    )  # under dist_ssync Trainer itself refuses, before any init
if mx.__version__ < "1.3" or sys.argv[1] == "dist_ssync":
    kv.init(0, ones)
refused(ValueError, ["mixes string and integer keys"], kv.init, "fc_weight", ones)
if sys.argv[1] == "dist_gsync":
    refused(ValueError, ["before init()"], kv.set_gradient_compression, {"type": "2bit"})
if sys.argv[1] == "dist_gsync":
    kv.set_optimizer(mx.optimizer.Nadam())
    refused(ValueError, ["Nadam", "m_schedule", "one group"], kv.push, 0, ones)
optimizer = mx.optimizer.SGD(rescale_grad=1.0)
kv.set_optimizer(optimizer)
refused(ValueError, ["update_on_kvstore=True"], kv.pushpull, 0, ones)
kv.push(0, ones)
kv.pull(0, out=ones)
optimizer.rescale_grad = 0.5
refused(ValueError, ["rescale_grad was 1", "0.5", "batch size"], kv.push, 0, ones)
kv.set_optimizer(mx.optimizer.SGD(rescale_grad=1.0))
refused(KeyError, ["have no key 7"], kv.push, 7, ones)
print("all refused")
