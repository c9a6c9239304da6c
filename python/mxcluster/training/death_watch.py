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

from mxcluster import exitcodes, library, network, pulse

START_SECONDS = 600.0  # until all have met, where the job does not say it
_ITS_AGENT_FIRST = 15.0  # seconds more than its agent grants: who comes late is named by its own agent, not by those who wait
_EVERYBODY = 7  # ps-lite's node group: scheduler 1 + servers 2 + workers 4
_JUMP = 1.0  # seconds that the wall clock may gain between two readings
_ROLES = ((1, "scheduler"), (2, "server"), (4, "worker"))
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
        missing, together, began, limit = 0, False, time.monotonic(), start_seconds()
        clock, settled, begun = _clock(), began, False
        while self._timeout > 0 and not self._ended.wait(self._interval):
            begun = begun or has_begun()
            together = together or begun and are_together(self._handle)
            before, clock = clock, _clock()
            if clock - before > _JUMP:
                settled = time.monotonic() + self._timeout
            silent = begun and time.monotonic() >= settled and dead_nodes(self._handle, self._timeout) > 0
            missing = missing + 1 if silent else 0
            if missing >= 2:
                _end("%s of this job has not been heard of for %d s" % (_who(self._handle, self._timeout), self._timeout))
            if limit and not together and time.monotonic() - began > limit:
                _end("the processes of this job have not found each other within %d s" % limit)

    def stop(self):
        """Returns when no reading is under way and none will follow."""
        self._ended.set()
        if self.is_alive():
            self.join()


def _clock():
    """By how much the wall clock is ahead of the monotonic one, in seconds.

    ps-lite dates heartbeats by the wall clock. When that is set forward, all peers look silent until they send the next one.
    """
    return time.time() - time.monotonic()


def start_seconds():
    """How long this process waits for the others; 0 for ever."""
    told = os.environ.get("MXCLUSTER_START_TIMEOUT")
    return START_SECONDS if told is None else pulse.PATIENCE * float(told) + _ITS_AGENT_FIRST if float(told) else 0


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


def _who(handle, timeout):
    """Who has been silent for `timeout` seconds: "1 server and 2 workers"."""
    counts = [(dead_nodes(handle, timeout, group), role) for group, role in _ROLES]
    told = ["%d %s%s" % (number, role, "" if number == 1 else "s") for number, role in counts if number]
    return " and ".join(told) or "another process"


def dead_nodes(handle, timeout, group=_EVERYBODY):
    """How many processes have been silent for `timeout` seconds, as far as this one can know; 0 before the start."""
    number = ctypes.c_int(0)
    failed = library.load().MXKVStoreGetNumDeadNode(handle, group, ctypes.byref(number), ctypes.c_int(timeout))
    return 0 if failed else number.value


def has_begun():
    """Whether ps-lite listens at this process's port. Asked for the dead before that, it ends the process by SIGSEGV."""
    return int(os.environ["PORT"]) in network.listeners(os.environ["DMLC_NODE_HOST"])


def are_together(handle):
    """Whether this process has met the others: then all of them have been silent since a time in the future."""
    return dead_nodes(handle, _LONG_AGO) > 0


def _end(why):
    sys.stderr.write("mxcluster: %s; ending\n" % why)
    sys.stderr.flush()
    os._exit(exitcodes.PEER_DIED)
