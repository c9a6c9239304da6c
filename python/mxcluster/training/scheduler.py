"""Run the scheduler, which loads only MXNet's C library because it computes nothing."""

import ctypes
import os

from mxcluster import phases
from mxcluster.training import mxnet_library, pulse_file
from mxcluster.training.death_watch import Watch, timeout_from_env

CONTROLLER = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
# A folder that a process can enter, and in which no user, not even root, can make a file. MXNet's
# C++ carries out some commands of workers without a check. For example, the profiler writes a file
# rank<n>_<name> into the working directory, with the <name> from a message.
NOWHERE = "/proc"


def schedule() -> int:
    """Run the scheduler until the workers end the job. Return the exit status 0."""
    handle, mxnet = ctypes.c_void_p(), mxnet_library.load()
    mxnet_library.check(mxnet.MXKVStoreCreate(b"dist_async", ctypes.byref(handle)))
    watch = Watch(timeout_from_env())
    watch.start()
    watch.watch(handle)
    pulse_file.enter(phases.CONNECTING)  # MXNet's loop does not report its end.
    os.chdir(NOWHERE)
    mxnet_library.check(
        mxnet.MXKVStoreRunServer(handle, CONTROLLER(lambda command, body, _: None), None)
    )
    watch.stop()
    mxnet_library.check(mxnet.MXKVStoreFree(handle))
    return 0
