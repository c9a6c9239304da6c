"""The life of a scheduler or a server.

MXNet would run it inside ``import mxnet`` and never come back, without a place to watch the others or to notice that the
user's optimizer raises: MXNet swallows exceptions of the updater and goes on without learning.
"""

import ctypes
import os
import pickle
import sys
import traceback

from mxcluster import compat, exitcodes
from mxcluster.watch import Watch, timeout_from_env

_CONTROLLER = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
_OPTIMIZER = 0  # the only command that reaches Python; its body is pickled: an optimizer, or what `kvstore.merge` wraps around it


def serve():
    """Runs until the workers say that the job is over; returns the exit status."""
    mx = compat.import_mxnet()
    from mxnet.base import _LIB, check_call
    store = mx.kvstore.create("dist_async")  # the workers decide what it becomes
    watch = Watch(store.handle, timeout_from_env())
    watch.start()
    optimizers = []

    def controller(command, body, _):
        if command == _OPTIMIZER:
            optimizer = _guarded(pickle.loads)(body)
            optimizers[:] = [optimizer]
            receive = getattr(optimizer, "receive", None)  # of kvstore.merge; MXNet's own optimizers have none
            store._set_updater(_guarded(receive or mx.optimizer.get_updater(optimizer)))

    check_call(_LIB.MXKVStoreRunServer(store.handle, _CONTROLLER(controller), None))
    watch.stop()
    for optimizer in optimizers:
        if hasattr(optimizer, "close"):
            optimizer.close()
    return 0


def _guarded(function):
    """`function`, but an exception ends the process instead of being swallowed by ctypes."""
    def call(*args):
        try:
            return function(*args)
        except BaseException:
            traceback.print_exc()
            sys.stderr.write("mxcluster: the optimizer failed on the server (see above); ending\n")
            sys.stderr.flush()
            os._exit(exitcodes.UPDATER_FAILED)
    return call
