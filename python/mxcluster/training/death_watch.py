"""End this process when another process of the job has died.

A job hangs for ever in ps-lite after one of its processes has died. ps-lite counts the peers that
have sent no heartbeat (PS_HEARTBEAT_INTERVAL and PS_HEARTBEAT_TIMEOUT, off by default), but takes
no action. The scheduler ends when it detects a dead worker or server. Workers and servers end when
they detect a dead scheduler. After the death of a worker, the scheduler therefore ends first.
"""

import ctypes
import os
import sys
import threading
import time
from typing import Callable, NoReturn, Optional

from mxcluster import exit_codes, phases
from mxcluster.lists import listed, several
from mxcluster.node import addresses
from mxcluster.training import mxnet_library

START_SECONDS = 600.0  # start timeout if the job sets none
# Seconds beyond the agent's own timeout. The agent of a late process then reports that process
# before the waiting processes end.
_ITS_AGENT_FIRST = 15.0
_ALL_NODES = 7  # ps-lite's node group: scheduler 1 + servers 2 + workers 4
_JUMP = 1.0  # most seconds that the wall clock may gain between two readings
_ROLES = ((1, "scheduler"), (2, "server"), (4, "worker"))
_LONG_AGO = -(10**6)


class Watch(object):
    """A thread that ends this process when ps-lite reports dead peers twice in a row.

    The thread reads the count of dead peers every `interval` seconds. A single count above 0 also
    occurs in healthy jobs at their start (measured). The thread starts long before the script may
    make a kv-store, because Python 3.12 starts no thread after the end of the main thread.

    Args:
        timeout: the heartbeat timeout in seconds, 0 for no watch.
        interval: seconds between two counts.
    """

    def __init__(self, timeout: float, interval: float = 1.0) -> None:
        self._thread = _thread("watch", self.run)
        self._store: Optional[ctypes.c_void_p] = None
        self._timeout, self._interval = int(timeout), interval
        self._has_handle, self._ended = threading.Event(), threading.Event()

    def start(self) -> None:
        """Start the thread, which waits for `watch`."""
        self._thread.start()

    def watch(self, handle: ctypes.c_void_p) -> None:
        """Begin the watch with the KVStoreHandle of a distributed kv-store.

        MXNet must not free the handle before `stop` has returned.
        """
        self._store = handle
        self._has_handle.set()

    def run(self) -> None:
        """Wait for the handle, then watch the peers until `stop` is called.

        End the process if a peer is dead or late. A peer is late if ps-lite has not connected the
        peer within `start_seconds()`.
        """
        self._has_handle.wait()
        if self._store is not None:
            self._watch(self._store)

    def _watch(self, handle: ctypes.c_void_p) -> None:
        missing, together, began, limit = 0, False, time.monotonic(), start_seconds()
        clock, settled, listens = _clock(), began, False
        while self._timeout > 0 and not self._ended.wait(self._interval):
            listens = listens or is_listening()
            together = together or listens and are_together(handle)
            before, clock = clock, _clock()
            if clock - before > _JUMP:
                settled = time.monotonic() + self._timeout
            is_read = listens and time.monotonic() >= settled
            missing = missing + 1 if is_read and dead_nodes(handle, self._timeout) else 0
            if missing >= 2:
                _end(
                    "%s of this job sent no heartbeat for %d s: read the other processes' logs"
                    % (_silent_peers(handle, self._timeout), self._timeout)
                )
            if limit and not together and time.monotonic() - began > limit:
                _end(
                    "the processes of this job were not all connected within %d s: if no log "
                    "shows another error, run verify.yml, which checks ports and addresses" % limit
                )

    def stop(self) -> None:
        """Stop the watch, and return after the thread has ended."""
        self._ended.set()
        self._has_handle.set()
        if self._thread.is_alive():
            self._thread.join()


class Deadline(object):
    """A thread that ends this process with PEER_DIED if a step takes too long.

    The step begins with `begin` and ends with `meet`. The thread starts long before the step,
    because Python 3.12 and newer start no thread while Python shuts down.

    Args:
        seconds: the longest time of the step.
    """

    def __init__(self, seconds: float) -> None:
        self._thread = _thread("deadline", self.run)
        self._seconds, self._begun, self._met = seconds, threading.Event(), threading.Event()

    def run(self) -> None:
        """Wait for the step, and end the process after `seconds` of the step."""
        self._begun.wait()
        if not self._met.wait(self._seconds):
            os._exit(exit_codes.PEER_DIED)

    def start(self) -> None:
        """Start the thread, which waits for `begin`."""
        self._thread.start()

    def begin(self) -> None:
        """Begin the step."""
        self._begun.set()

    def meet(self) -> None:
        """End the step."""
        self._met.set()


def _thread(name: str, function: Callable[[], None]) -> threading.Thread:
    """Return a thread that does not keep the process alive.

    A subclass of Thread could use a name that Python uses too, as `_handle` in Python 3.13.
    """
    return threading.Thread(target=function, name="mxcluster-" + name, daemon=True)


def _clock() -> float:
    """Return the difference between the wall clock and the monotonic clock in seconds.

    ps-lite dates heartbeats by the wall clock. When NTP or a person sets the wall clock forward,
    all peers look silent until they send the next heartbeat.
    """
    return time.time() - time.monotonic()


def start_seconds() -> float:
    """Return the start timeout in seconds; 0 means no timeout.

    ps-lite must connect all processes within this time. This timeout is longer than the agent's
    start timeout, so that the agent of a late process reports the process first.
    """
    seconds = os.environ.get("MXCLUSTER_START_TIMEOUT")
    if seconds is None:
        return START_SECONDS
    return phases.PATIENCE * float(seconds) + _ITS_AGENT_FIRST if float(seconds) else 0


def timeout_from_env() -> int:
    """Return the heartbeat timeout of the job in seconds, or 0 outside a distributed job."""
    return int(float(os.environ.get("PS_HEARTBEAT_TIMEOUT") or 0))


def watching_handle() -> ctypes.c_void_p:
    """Return a KVStoreHandle for the watch, before this worker has its own kv-store.

    The creation of the worker's own kv-store waits for the other processes, so the watch needs an
    earlier handle. The handle belongs to a server's store, which stays idle in this process. Any
    store gives the count of dead peers, because ps-lite keeps one list for the whole process. This
    module never frees the handle, because MXNet would then end ps-lite.
    """
    from mxnet.base import _LIB, KVStoreHandle, c_str, check_call

    handle, role = KVStoreHandle(), os.environ["DMLC_ROLE"]
    os.environ["DMLC_ROLE"] = "server"
    try:
        check_call(_LIB.MXKVStoreCreate(c_str("dist_async"), ctypes.byref(handle)))
    finally:
        os.environ["DMLC_ROLE"] = role
    return handle


def _silent_peers(handle: ctypes.c_void_p, timeout: int) -> str:
    """Return the number of silent peers of each role as text, such as "1 server and 2 workers".

    `handle` is a KVStoreHandle. A peer without a heartbeat for `timeout` seconds is silent.
    """
    counts = [(dead_nodes(handle, timeout, group), role) for group, role in _ROLES]
    peers = [several(number, role) for number, role in counts if number]
    return listed(peers) if peers else "another process"


def dead_nodes(handle: ctypes.c_void_p, timeout: int, group: int = _ALL_NODES) -> int:
    """Return how many known peers have sent no heartbeat for `timeout` seconds.

    Returns 0 if MXNet's function fails, as before the start of ps-lite.

    Args:
        handle: the KVStoreHandle of a distributed kv-store.
        timeout: seconds.
        group: the number of the ps-lite node group to count.
    """
    number = ctypes.c_int(0)
    failed = mxnet_library.load().MXKVStoreGetNumDeadNode(
        handle, group, ctypes.byref(number), ctypes.c_int(timeout)
    )
    return 0 if failed else number.value


def is_listening() -> bool:
    """Return True if ps-lite listens on the port of this process.

    If ps-lite does not listen yet, a call of `dead_nodes` ends the process by SIGSEGV.
    """
    return int(os.environ["PORT"]) in addresses.listeners(os.environ["DMLC_NODE_HOST"])


def are_together(handle: ctypes.c_void_p) -> bool:
    """Return True once ps-lite knows its peers.

    With a negative timeout ps-lite reports every known peer as dead. A count above 0 therefore
    shows that ps-lite knows some peers. `handle` is a KVStoreHandle.
    """
    return dead_nodes(handle, _LONG_AGO) > 0


def _end(reason: str) -> NoReturn:
    sys.stderr.write("mxcluster: %s; ending\n" % reason)
    sys.stderr.flush()
    os._exit(exit_codes.PEER_DIED)
