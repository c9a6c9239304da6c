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
from typing import Any, Callable, Dict, List, Optional, Union

from mxcluster import phases
from mxcluster.errors import DAMAGED
from mxcluster.file_io import replace
from mxcluster.model.status import MOST_KEYS, Pulse
from mxcluster.node.mxnet_types import KVStore

Json = Dict[str, Any]
Key = Union[int, str]  # a key of a kv-store

SUFFIX = ".pulse"
_PERIOD = 1.0
_now: Json = {"phase": phases.STARTING, "pushes": 0, "time": time.time()}
_pushed: Dict[Key, int] = {}  # {key of the kv-store: its number of pushes}
_told: Json = {}
_file: List[str] = []  # [path of this process's file], [] outside a job
_telling = threading.Lock()


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
        _file.append(
            file_of(folder, "%s-%s" % (os.environ["MXCLUSTER_ROLE"], os.environ["MXCLUSTER_INDEX"]))
        )
        thread = threading.Thread(target=_tell_for_ever, name="mxcluster-pulse")
        thread.daemon = True
        thread.start()


def enter(phase: str) -> None:
    """Set the phase of this process, and record progress.

    `phase` is a constant of `mxcluster.phases`.
    """
    _now.update(phase=phase, time=time.time())


def leave() -> None:
    """Enter the phase LEAVING and write the pulse file at once.

    The process may end before the thread of `start` writes the next time.
    """
    enter(phases.LEAVING)
    _tell()


def end_script() -> None:
    """Record that the script of this process has reached its last line.

    A worker that has no kv-store yet keeps its phase: a thread may still make the store.
    """
    if _now["phase"] == phases.TRAINING:
        enter(phases.ENDING)


def beat() -> None:
    """Record that this process makes progress now.

    A process without DMLC_ROLE has no servers. In such a process the first call begins the phase
    TRAINING. After the last line of a script, a call in a thread begins this phase again.
    """
    _now["time"] = time.time()
    is_local = "DMLC_ROLE" not in os.environ
    if _now["phase"] == phases.ENDING or _now["phase"] == phases.STARTING and is_local:
        _now["phase"] = phases.TRAINING


def attach(store: KVStore) -> None:
    """Wrap the methods of the kv-store `store`, so that each call counts as progress.

    The wrapped methods also count the pushes of each key. The process enters the phase TRAINING.
    """
    for name in ("init", "push", "pull", "pushpull", "broadcast", "row_sparse_pull", "_barrier"):
        if hasattr(store, name):
            setattr(
                store,
                name,
                _counted(
                    getattr(store, name),
                    name in ("init", "broadcast", "push", "pushpull"),
                    1 if name in ("push", "pushpull") else 0,
                ),
            )
    enter(phases.TRAINING)


def _counted(method: Callable[..., Any], with_keys: bool, pushes: int) -> Callable[..., Any]:
    """Return a function that calls `method`, and records progress before and after the call.

    Args:
        method: a method of a kv-store.
        with_keys: True to count the pushes of each key.
        pushes: the number of pushes in a call, 0 or 1.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        beat()
        before, keys = _now["pushes"], _keys_of(*args, **kwargs) if with_keys else {}
        result = method(*args, **kwargs)
        _now["pushes"] = before + pushes  # If pushpull calls push, both count as one.
        for key in keys:
            _pushed[key] = keys[key] + pushes
        beat()
        return result

    return call


def _keys_of(key: Any = None, *_: Any, **__: Any) -> Dict[Key, int]:
    """Return {key: number of pushes so far} for `key`, a key or a list of keys.

    The arguments are the arguments of a kv-store's method. The result has only keys of type int and
    str.
    """
    return {
        one: _pushed.get(one, 0)
        for one in (key if isinstance(key, (list, tuple)) else [key])
        if isinstance(one, (int, str))
    }


def _keys() -> Optional[Json]:
    pushed = dict(_pushed)  # a copy, because a script may push meanwhile
    most = max(pushed.values()) if pushed else 0
    fewer = {str(key): pushes for key, pushes in pushed.items() if pushes < most}
    return {"most": most, "fewer": fewer} if len(fewer) <= MOST_KEYS else None


def _tell_for_ever() -> None:
    while True:
        _tell()
        time.sleep(_PERIOD)


def _tell() -> None:
    with _telling:
        now = dict(_now, keys=_keys())
        for path in _file:
            # Write the file again if it was deleted.
            if now == _told and os.path.exists(path):
                continue
            try:
                replace(path, json.dumps(now))
                _told.update(now)
            except OSError:  # The disk may be full. The agent itself checks the disk.
                pass
