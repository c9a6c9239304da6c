"""Worker 0 sends the servers a sealed message that they refuse, without the worker's own check.

Arguments: kv, the message (evil, class, dict, kind or stock), file that must not be written.
"""

import json
import os
import pickle
import sys

import mxnet as mx

from mxcluster.training.kvstore import server_messages

kv, which, path = mx.kv.create(sys.argv[1]), sys.argv[2], sys.argv[3]


class Evil(object):
    def __reduce__(self):
        return os.system, ("touch '%s'" % path,)


kv.init(3, mx.nd.ones((2, 2)))
if os.environ["MXCLUSTER_INDEX"] == "0":
    payloads = {
        "evil": pickle.dumps(Evil(), 0).decode(),
        "class": json.dumps({"object": ["posix:system", {"path": path}]}),
        "dict": json.dumps({"dict": [["no", "optimizer"]]}),
    }
    payload = payloads.get(which) or server_messages.as_json(mx.optimizer.SGD())
    server_messages.send(kv, "unheard" if which == "kind" else "optimizer", payload)
kv._barrier()
print("the job went on")
