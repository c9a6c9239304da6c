"""Write the pulse file of a process for its agent, at most once a second.

A living process may make no progress. For example, a worker may wait for a missing peer and still
send heartbeats. So the agent also checks how its processes use their kv-store. Most scripts need no
change for this check. A script that does not use the kv-store for longer than stall_timeout, for
example in a long validation, must call `mxcluster.pulse.beat()` now and then.
"""

import json
import os
import threading
import time
from typing import Dict, Optional, Union

from mxcluster import phases
from mxcluster.errors import DAMAGED
from mxcluster.file_io import replace
from mxcluster.model.status import MOST_KEYS, Keys, Pulse
from mxcluster.node.mxnet_types import KVStore, Method

Key = Union[int, str]  # a key of a kv-store

SUFFIX = ".pulse"
_PERIOD = 1.0


class _Progress:
    """The progress of this process."""

    phase = phases.STARTING
    last = time.time()  # Unix seconds
    pushes = 0
    pushes_of: Dict[Key, int] = {}  # {key of the kv-store: its number of pushes}
    path = ""  # of the pulse file, "" outside a job
    written: Optional[Pulse] = None
    lock = threading.Lock()  # of the pulse file


def file_of(folder: str, name: str) -> str:
    """Return the path of the pulse file of the process `name`, such as "worker-0".

    `folder` is the path of the job folder.
    """
    return os.path.join(folder, name + SUFFIX)


def read(path: str) -> Optional[Pulse]:
    """Return the content of the pulse file `path`, or None if the file is missing or invalid.

    If more than MOST_KEYS keys have fewer pushes than the most pushed key, the file has no keys.
    """
    try:
        with open(path) as stream:
            return Pulse.decode(json.load(stream))
    except (OSError,) + DAMAGED:
        return None


def start() -> None:
    """Start a thread that writes this process's pulse file, if the process belongs to a job."""
    folder = os.environ.get("MXCLUSTER_JOB_DIR")
    if folder:
        name = "%s-%s" % (os.environ["MXCLUSTER_ROLE"], os.environ["MXCLUSTER_INDEX"])
        _Progress.path = file_of(folder, name)
        threading.Thread(target=_write_for_ever, name="mxcluster-pulse", daemon=True).start()


def enter(phase: str) -> None:
    """Set the phase of this process, and record progress.

    `phase` is a constant of `mxcluster.phases`.
    """
    _Progress.phase, _Progress.last = phase, time.time()


def leave() -> None:
    """Enter the phase LEAVING and write the pulse file at once.

    The process may end before the thread of `start` writes the next time.
    """
    enter(phases.LEAVING)
    _write()


def end_script() -> None:
    """Record that the script of this process has reached its last line.

    A worker that has no kv-store yet keeps its phase: a thread may still make the store.
    """
    if _Progress.phase == phases.TRAINING:
        enter(phases.ENDING)


def beat() -> None:
    """Record that this process makes progress now.

    A process without DMLC_ROLE has no servers. In such a process the first call begins the phase
    TRAINING. After the last line of a script, a call in a thread begins this phase again.
    """
    _Progress.last = time.time()
    is_local = "DMLC_ROLE" not in os.environ
    if _Progress.phase == phases.ENDING or _Progress.phase == phases.STARTING and is_local:
        _Progress.phase = phases.TRAINING


def attach(store: KVStore) -> None:
    """Wrap the methods of the kv-store `store`, so that each call counts as progress.

    The wrapped methods also count the pushes of each key. The process enters the phase TRAINING.
    """
    for name, pushes in (("init", 0), ("broadcast", 0), ("push", 1), ("pushpull", 1)):
        if hasattr(store, name):
            setattr(store, name, _counted(getattr(store, name), pushes))
    for name in ("pull", "row_sparse_pull", "_barrier"):
        if hasattr(store, name):
            setattr(store, name, _timed(getattr(store, name)))
    enter(phases.TRAINING)


def _timed(method: Method) -> Method:
    """Return a function that calls `method`, and records progress before and after the call."""

    def call(*args: object, **kwargs: object) -> object:
        beat()
        result = method(*args, **kwargs)
        beat()
        return result

    return call


def _counted(method: Method, pushes: int) -> Method:
    """Return a function that calls `method` as `_timed` does, and counts the pushes of each key.

    Args: `pushes` the number of pushes in a call, 0 or 1.
    """
    timed = _timed(method)

    def call(key: object = None, *args: object, **kwargs: object) -> object:
        before = _Progress.pushes
        keys = key if isinstance(key, (list, tuple)) else [key]
        pushes_before = {
            one: _Progress.pushes_of.get(one, 0) for one in keys if isinstance(one, (int, str))
        }
        result = timed(key, *args, **kwargs)
        _Progress.pushes = before + pushes  # If pushpull calls push, both count as one.
        for one, number in pushes_before.items():
            _Progress.pushes_of[one] = number + pushes
        return result

    return call


def _keys() -> Optional[Keys]:
    pushes_of = dict(_Progress.pushes_of)  # a copy, because a script may push meanwhile
    most = max(pushes_of.values(), default=0)
    fewer = {str(key): pushes for key, pushes in pushes_of.items() if pushes < most}
    return Keys(most=most, fewer=fewer) if len(fewer) <= MOST_KEYS else None


def _write_for_ever() -> None:
    while True:
        _write()
        time.sleep(_PERIOD)


def _write() -> None:
    with _Progress.lock:
        progress = _Progress
        pulse = Pulse(
            phase=progress.phase, pushes=progress.pushes, time=progress.last, keys=_keys()
        )
        # Write the file again if it was deleted.
        if progress.path and not (pulse == progress.written and os.path.exists(progress.path)):
            try:
                replace(progress.path, json.dumps(pulse.encode()))
                progress.written = pulse
            except OSError:  # The disk may be full. The agent itself checks the disk.
                pass
