"""Events: what the processes of a job tell, one JSON object a line.

All processes of a node append to the same file, `events.jsonl` in the job's folder. One `write(2)` on a descriptor
opened with O_APPEND puts a line in whole, so that neither a lock nor a collecting process is needed.
"""
import contextlib
import json
import math
import numbers
import os
import time
from typing import Any, Callable, Dict, Iterable, List, Optional

FILE = "events.jsonl"


class EventLog:
    """Appends events to a file; without a path it takes them and does nothing.

    >>> log = EventLog("/job/events.jsonl", role="worker", index=0, host="node1")
    >>> log.write("epoch", epoch=3, accuracy=0.91)

    Threads and processes may share a file. Numbers of numpy are cast. JSON has no NaN and no infinity: such a number
    is written as null, and the first one of every field is told in a `note` event.
    """

    def __init__(self, path: Optional[str], role: Optional[str] = None, index: Optional[int] = None,
                 host: Optional[str] = None):
        self._fd = None
        self._who = {"role": role, "index": index, "host": host}
        self._noted = set()
        self._path = path
        if path is not None:
            self._fd = _open(path)

    def write(self, kind: str, **fields: Any) -> None:
        """Append the event `kind` with its fields; "time" is now in unix seconds. Raises OSError if that fails."""
        if self._fd is None:
            return
        event = {"event": kind, "time": round(time.time(), 3)}
        event.update(self._who)
        not_finite = {}
        for name, value in fields.items():
            event[name] = plain(value, lambda number, name=name: not_finite.setdefault(name, number))
        if not os.fstat(self._fd).st_nlink:  # the file was deleted: a new one takes the later events
            with contextlib.suppress(OSError):  # the folder was deleted, too: its agent says so
                new = _open(self._path)
                os.dup2(new, self._fd, inheritable=False)
                os.close(new)
        os.write(self._fd, (json.dumps(event, allow_nan=False) + "\n").encode("utf-8"))
        for name, number in sorted(not_finite.items()):
            if (kind, name) not in self._noted:
                self._noted.add((kind, name))
                self.write("note", text="%s became %s (event %s%s)" % (name, number, kind, _where(fields)))

    def close(self) -> None:
        """Close the file; later events are dropped. Harmless when done twice."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    __del__ = close  # a log from from_env() is often used for one event and dropped


def _open(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)


def from_env() -> EventLog:
    """The event log of this process, from MXCLUSTER_JOB_DIR, _ROLE, _INDEX and _HOST; outside a job it does nothing."""
    folder = os.environ.get("MXCLUSTER_JOB_DIR")
    if not folder:
        return EventLog(None)
    index = os.environ.get("MXCLUSTER_INDEX")
    return EventLog(os.path.join(folder, FILE), role=os.environ.get("MXCLUSTER_ROLE"),
                    index=int(index) if index else None, host=os.environ.get("MXCLUSTER_HOST"))


def read(path: str) -> List[Dict[str, Any]]:
    """The events of a file in the order written.

    A line that is not a whole JSON object is left out: the process may have been killed, or the disk full, in the
    middle of a write, and then one torn line must not cost the rest. Raises OSError when the file cannot be opened.
    """
    events = []
    with open(path, encoding="utf-8", errors="replace") as stream:
        for line in stream:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict) and "event" in event and isinstance(event.get("time"), numbers.Real):
                events.append(event)
    return events


def merge(paths: Iterable[str], belongs: Optional[Iterable[Callable[[Dict[str, Any]], bool]]] = None) -> List[Dict[str, Any]]:
    """The events of several files by time; those of equal time stay in the order of the files.

    `belongs` tells for each file which events may be in it; others are left out.
    """
    paths = list(paths)
    tests = list(belongs) if belongs is not None else [lambda event: True] * len(paths)
    return sorted((event for path, test in zip(paths, tests) for event in read(path) if test(event)),
                  key=lambda event: event["time"])


def plain(value: Any, not_finite=None) -> Any:
    """`value` in JSON's own types: scalars and arrays of numpy become numbers and lists, NaN and infinities None.

    `not_finite(number)` is called for every NaN and infinity. Raises TypeError for what JSON cannot hold.
    """
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        number = float(value)
        if math.isfinite(number):
            return number
        if not_finite is not None:
            not_finite(number)
        return None
    if isinstance(value, dict):
        return {str(key): plain(item, not_finite) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, not_finite) for item in value]
    if hasattr(value, "tolist"):  # scalars that numpy does not register as numbers (bool_), and arrays
        return plain(value.tolist(), not_finite)
    raise TypeError("an event cannot hold %r (%s): give a number, a text, a list or a dict"
                    % (value, type(value).__name__))


def _where(fields: Dict[str, Any]) -> str:
    """Where in the run an event happened, as far as it says so."""
    return "".join(", %s %s" % (name, fields[name]) for name in ("epoch", "step") if name in fields)
