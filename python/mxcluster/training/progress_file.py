"""The pulse of a process: how far it is, in a small file for its agent, written once a second if something has changed.

A process that lives need not work: it may wait for a peer that never comes, and its heartbeats go on.  So an agent also looks
at what its processes do with their kv-store.  A script need not know of it; one that does something else for longer than
stall_timeout, such as a long validation, can say `mxcluster.pulse.beat()` now and then.
"""

import json
import os
import threading
import time

# Phases, in their order.
STARTING = "starting"    # before its kv-store is made, or MXNet is imported
MEETING = "meeting"      # waits in ps-lite for the other processes
TRAINING = "training"    # a worker that has a kv-store, or has said `beat`
SERVING = "serving"      # a server or scheduler
UPDATING = "updating"    # a server in its optimizer
FINISHED = "finished"    # a worker whose script has ended waits for the others
LEAVING = "leaving"      # all is done; threads of the script and its exit handlers have their turn

# Up to so many times start_timeout on a machine that is busy with other work: who waits for a core is not late.
PATIENCE = 2

SUFFIX = ".pulse"
_PERIOD = 1.0
_MANY = 100  # keys that are told of
_now = {"phase": STARTING, "pushes": 0, "time": time.time()}
_pushed = {}  # key of the kv-store -> how often it was pushed
_told = {}
_file = []  # the path of this process's, if it is one of a job
_telling = threading.Lock()


def file_of(folder, name):
    """The path of the pulse of a process ("worker-0") in its job's folder."""
    return os.path.join(folder, name + SUFFIX)


def read(path):
    """{"phase", "pushes": how many calls of push, "time": unix seconds of the last change, "keys"}; None if none can be read.

    "keys" is {"most": how often the key was pushed that was pushed most often, "fewer": {key: how often, of those that were
    pushed less often}}, or None where these are too many to tell of.
    """
    try:
        with open(path) as stream:
            pulse = json.load(stream)
        return {"phase": str(pulse["phase"]), "pushes": int(pulse["pushes"]), "time": float(pulse["time"]),
                "keys": _keys_told(pulse.get("keys"))}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None


def _keys_told(keys):
    if not keys or len(keys["fewer"]) > _MANY:
        return None
    return {"most": int(keys["most"]), "fewer": {str(key): int(pushes) for key, pushes in keys["fewer"].items()}}


def start():
    """Tell the pulse of this process from now on, if it is one of a job."""
    folder = os.environ.get("MXCLUSTER_JOB_DIR")
    if folder:
        _file.append(file_of(folder, "%s-%s" % (os.environ["MXCLUSTER_ROLE"], os.environ["MXCLUSTER_INDEX"])))
        thread = threading.Thread(target=_tell_for_ever, name="mxcluster-pulse")
        thread.daemon = True
        thread.start()


def enter(phase):
    """This process is in another phase now."""
    _now.update(phase=phase, time=time.time())


def leave():
    """This process is done. Told at once: soon no thread will run any more that could."""
    enter(LEAVING)
    _tell()


def beat():
    """This process makes progress."""
    _now["time"] = time.time()
    if _now["phase"] == STARTING and "DMLC_ROLE" not in os.environ:
        _now["phase"] = TRAINING


def attach(store):
    """Count what a script does with its kv-store."""
    for name in ("init", "push", "pull", "pushpull", "broadcast", "row_sparse_pull", "_barrier"):
        if hasattr(store, name):
            setattr(store, name, _counted(getattr(store, name), name in ("init", "broadcast", "push", "pushpull"),
                                          1 if name in ("push", "pushpull") else 0))
    enter(TRAINING)


def _counted(method, with_keys, pushes):
    def call(*args, **kwargs):
        beat()
        before, keys = _now["pushes"], _keys_of(*args, **kwargs) if with_keys else {}
        result = method(*args, **kwargs)
        _now["pushes"] = before + pushes  # a call that is made of others counts once
        for key in keys:
            _pushed[key] = keys[key] + pushes
        beat()
        return result
    return call


def _keys_of(key=None, *_, **__):
    """{key: how often it was pushed} of the keys of a call."""
    return {one: _pushed.get(one, 0) for one in (key if isinstance(key, (list, tuple)) else [key]) if isinstance(one, (int, str))}


def _keys():
    pushed = dict(_pushed)  # a script may push meanwhile
    most = max(pushed.values()) if pushed else 0
    fewer = {str(key): pushes for key, pushes in pushed.items() if pushes < most}
    return {"most": most, "fewer": fewer} if len(fewer) <= _MANY else None


def _tell_for_ever():
    while True:
        _tell()
        time.sleep(_PERIOD)


def _tell():
    with _telling:
        now = dict(_now, keys=_keys())
        for path in _file:
            if now == _told and os.path.exists(path):  # else somebody has deleted it
                continue
            try:
                with open(path + ".part", "w") as stream:
                    json.dump(now, stream)
                os.replace(path + ".part", path)
                _told.update(now)
            except OSError:  # a full disk: the agent sees that too
                pass
