"""Ends this process when another of the job has died.

ps-lite lets a job hang for ever when one of its processes is gone.  Its heartbeats (PS_HEARTBEAT_INTERVAL and _TIMEOUT,
off by default) do notice, if somebody asks: the scheduler sees dead workers and servers, and these see a dead
scheduler.  So the scheduler ends first and takes the others with it.
"""

import ctypes
import os
import sys
import threading

from mxcluster import exitcodes

_EVERYBODY = 7  # ps-lite's node group: scheduler 1 + servers 2 + workers 4


class Watch(threading.Thread):
    """Asks once a second; two readings in a row that miss somebody end the process.

    Single readings killed healthy jobs at their start (run).  `handle` is the KVStore's, which must not be freed
    before `stop` has returned.  `timeout` in seconds; 0 means that nobody is watched.
    """

    def __init__(self, handle, timeout, interval=1.0):
        super(Watch, self).__init__(name="mxcluster-watch", daemon=True)
        self._handle, self._timeout, self._interval = handle, int(timeout), interval
        self._ended = threading.Event()

    def run(self):
        missing = 0
        while self._timeout > 0 and not self._ended.wait(self._interval):
            missing = missing + 1 if dead_nodes(self._handle, self._timeout) > 0 else 0
            if missing >= 2:
                sys.stderr.write("mxcluster: another process of this job has not been heard of for %d s; ending\n"
                                 % self._timeout)
                sys.stderr.flush()
                os._exit(exitcodes.PEER_DIED)

    def stop(self):
        """Returns when no reading is under way and none will follow."""
        self._ended.set()
        if self.is_alive():
            self.join()


def timeout_from_env():
    """The heartbeat timeout of the job in seconds; 0 outside a distributed job."""
    return int(float(os.environ.get("PS_HEARTBEAT_TIMEOUT") or 0))


def dead_nodes(handle, timeout):
    """How many processes have been silent for `timeout` seconds, as far as this one can know; 0 before the start."""
    from mxnet.base import _LIB
    number = ctypes.c_int(0)
    failed = _LIB.MXKVStoreGetNumDeadNode(handle, _EVERYBODY, ctypes.byref(number), ctypes.c_int(timeout))
    return 0 if failed else number.value
