"""Push without an optimizer, or ask for a checkpoint of its states; arguments: kv, push or save."""

import json
import sys

import mxnet as mx

kv = mx.kv.create(sys.argv[1])
kv.init(3, mx.nd.ones((4,)))
if sys.argv[2] == "push":
    kv.push(3, mx.nd.ones((4,)) * 8)
else:
    from mxcluster.training.kvstore import server_messages

    server_messages.send(kv, "save", json.dumps({"name": "mlp-0001", "id": "1"}))
out = mx.nd.zeros((4,))
kv.pull(3, out=out)
print("PULLED", out.asnumpy().tolist())
