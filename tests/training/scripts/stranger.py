"""Worker 0 attacks its servers with pickles that write a file and have no seal; then all train.

Arguments: kv, file that must not be written.
"""

import os
import pickle
import sys

import mxnet as mx
from mxnet.base import _LIB, c_str, check_call, mx_uint

from mxcluster import seal
from mxcluster.training.kvstore import server_messages

kind, path = sys.argv[1:]


class Evil(object):
    def __reduce__(self):
        return os.system, ("touch '%s'" % path,)


def send(body, head=0):
    """Send a command without mxcluster's checks on the worker."""
    check_call(_LIB.MXKVStoreSendCommmandToServers(kv.handle, mx_uint(head), c_str(body)))


def profile():
    """Send MXNet's commands for the profiler of servers, without a token; 1.2.1 has none."""
    if mx.__version__ != "1.2.1":
        for body in ("filename:profile.json,profile_all:10", "11", "13"):  # settings, on, write
            send(body, 5)
        send("strange", 42)


kv = mx.kv.create(kind)
evil = pickle.dumps(Evil(), 0).decode()
good = pickle.dumps(mx.optimizer.SGD(learning_rate=1.0), 0).decode()
# A group's servers accept an optimizer only together with the worker's keys.
own = server_messages.as_json(mx.optimizer.SGD(learning_rate=0.5))
harmless = ("refresh", "9") if kind == "dist_gsync" else ("optimizer", own)
index = int(os.environ["MXCLUSTER_INDEX"])
kv.init(3, mx.nd.ones((2, 2)))


def attack():
    if index == 0:
        token = seal.read_token(os.environ["MXCLUSTER_JOB_DIR"])
        send(evil)
        send(good)
        send("")
        profile()
        send(seal.sealed(b"another token, of 32 characters.", "worker-0", "optimizer", good))
        again = seal.sealed(token, "worker-0", *harmless)
        send(again)
        kv._barrier()
        send(again)
        try:
            kv._send_command_to_servers(0, evil)
        except ValueError as error:
            assert "the servers accept no pickle" in str(error), error
        else:
            raise AssertionError("the worker has sent a pickle")
    else:
        kv._barrier()


attack()
kv._barrier()
kv.set_optimizer(mx.optimizer.SGD(learning_rate=0.5, wd=0))
kv._barrier()
weight = mx.nd.zeros((2, 2))
for _ in range(3):
    kv.push(3, mx.nd.ones((2, 2)))
    kv.pull(3, out=weight)
    weight.wait_to_read()
attack()
kv.push(3, mx.nd.ones((2, 2)))
kv.pull(3, out=weight)
weight.wait_to_read()
kv._barrier()
if hasattr(kv, "refresh"):
    kv.refresh()
kv.pull(3, out=weight)
print("weight %g" % weight.asnumpy()[0, 0])
