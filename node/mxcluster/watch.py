"""Ends this process when another of the job has died.

ps-lite lets a job hang for ever when one of its processes is gone.  Its heartbeats (PS_HEARTBEAT_INTERVAL and _TIMEOUT,
off by default) do notice, if somebody asks: the scheduler sees dead workers and servers, and these see a dead
scheduler.  So the scheduler ends first and takes the others with it.
"""

import ctypes
import os
import sys
import threading
import time

from mxcluster import exitcodes

START_SECONDS = 600.0  # until all have met, where the job does not say it
_ITS_AGENT_FIRST = 15.0  # seconds more than start_timeout: who comes late is named by its own agent, not by those who wait
_EVERYBODY = 7  # ps-lite's node group: scheduler 1 + servers 2 + workers 4
_LONG_AGO = -(10 ** 6)


class Watch(threading.Thread):
    """Asks once a second; two readings in a row that miss somebody end the process.

    Single readings killed healthy jobs at their start (run).  `handle` is that of a distributed KVStore, which must not
    be freed before `stop` has returned.  `timeout` in seconds; 0 means that nobody is watched.
    """

    def __init__(self, handle, timeout, interval=1.0):
        super(Watch, self).__init__(name="mxcluster-watch", daemon=True)
        self._handle, self._timeout, self._interval = handle, int(timeout), interval
        self._ended = threading.Event()

    def run(self):
        missing, together, began, limit = 0, False, time.time(), start_seconds()
        while self._timeout > 0 and not self._ended.wait(self._interval):
            together = together or are_together(self._handle)
            missing = missing + 1 if dead_nodes(self._handle, self._timeout) > 0 else 0
            if missing >= 2:
                _end("another process of this job has not been heard of for %d s" % self._timeout)
            if limit and not together and time.time() - began > limit:
                _end("the processes of this job have not found each other within %d s" % limit)

    def stop(self):
        """Returns when no reading is under way and none will follow."""
        self._ended.set()
        if self.is_alive():
            self.join()


def start_seconds():
    """How long this process waits for the others; 0 for ever."""
    told = os.environ.get("MXCLUSTER_START_TIMEOUT")
    return START_SECONDS if told is None else float(told) + _ITS_AGENT_FIRST if float(told) else 0


def timeout_from_env():
    """The heartbeat timeout of the job in seconds; 0 outside a distributed job."""
    return int(float(os.environ.get("PS_HEARTBEAT_TIMEOUT") or 0))


def watching_handle():
    """A handle to ask with before this worker's own kv-store is made: making that waits for the others already.

    What MXNet makes for a server is inert until it is run, and ps-lite's knowledge of the dead is the process's, not the
    handle's.  It is never freed: that would be done as a worker.
    """
    from mxnet.base import _LIB, KVStoreHandle, c_str, check_call
    handle, role = KVStoreHandle(), os.environ["DMLC_ROLE"]
    os.environ["DMLC_ROLE"] = "server"
    try:
        check_call(_LIB.MXKVStoreCreate(c_str("dist_async"), ctypes.byref(handle)))
    finally:
        os.environ["DMLC_ROLE"] = role
    return handle


def dead_nodes(handle, timeout):
    """How many processes have been silent for `timeout` seconds, as far as this one can know; 0 before the start."""
    from mxnet.base import _LIB
    number = ctypes.c_int(0)
    failed = _LIB.MXKVStoreGetNumDeadNode(handle, _EVERYBODY, ctypes.byref(number), ctypes.c_int(timeout))
    return 0 if failed else number.value


def are_together(handle):
    """Whether this process has met the others: then all of them have been silent since a time in the future."""
    return dead_nodes(handle, _LONG_AGO) > 0


def _end(why):
    sys.stderr.write("mxcluster: %s; ending\n" % why)
    sys.stderr.flush()
    os._exit(exitcodes.PEER_DIED)
