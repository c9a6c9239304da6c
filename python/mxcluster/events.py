"""Write and read the events of a job's processes, one JSON object per line.

All processes of a node append to the same file, `events.jsonl` in the job folder. One `write(2)` to
a descriptor opened with O_APPEND writes a whole line. So the processes need no lock.
"""

import contextlib
import functools
import json
import math
import numbers
import os
import sys
import time
from typing import Any, Callable, Dict, Iterable, List, Optional, Set, Tuple

from mxcluster.errors import DAMAGED

FILE = "events.jsonl"


class EventLog:
    """A log that appends events to the file `path`. Without a path, `write` does nothing.

    >>> log = EventLog("/job/events.jsonl", role="worker", index=0, host="node1")
    >>> log.write("epoch", epoch=3, accuracy=0.91)

    Threads and processes can share a file. `write` converts numpy's numbers to Python's numbers.
    JSON lacks NaN and infinity, so `write` replaces such a number by null. At the first replacement
    in each field of each event kind, `write` adds a `note` event that names the number.
    """

    def __init__(
        self,
        path: Optional[str],
        role: Optional[str] = None,
        index: Optional[int] = None,
        host: Optional[str] = None,
    ) -> None:
        self._fd = None
        self._who = {"role": role, "index": index, "host": host}
        self._noted: Set[Tuple[str, str]] = set()
        self._path = path
        if path is not None:
            self._fd = _open(path)

    def write(self, kind: str, **fields: Any) -> None:
        """Append one line with the event `kind`, the time (unix seconds), the process and `fields`.

        The constructor's role, index and host name the process. Raises OSError if the write fails,
        and TypeError if JSON cannot represent a field.
        """
        if self._fd is None:
            return
        event = {"event": kind, "time": round(time.time(), 3)}
        event.update(self._who)
        not_finite: Dict[str, float] = {}
        for name, value in fields.items():
            event[name] = plain(value, functools.partial(not_finite.setdefault, name))
        if not os.fstat(self._fd).st_nlink:  # the file was deleted: later events go to a new file
            with contextlib.suppress(OSError):  # if the folder is gone, the agent reports it
                assert self._path is not None  # a log with a descriptor has a path
                new = _open(self._path)
                os.dup2(new, self._fd, inheritable=False)
                os.close(new)
        os.write(self._fd, (json.dumps(event, allow_nan=False) + "\n").encode("utf-8"))
        for name, number in sorted(not_finite.items()):
            if (kind, name) not in self._noted:
                self._noted.add((kind, name))
                self.write(
                    "note", text="%s became %s (event %s%s)" % (name, number, kind, _where(fields))
                )

    def close(self) -> None:
        """Close the file. Later calls of `write` or `close` do nothing."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    __del__ = close  # a log of from_env() is often dropped after one event


def _open(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)


def note(text: str) -> None:
    """Write `text` to the log of this process, and to the events as a note for the report."""
    sys.stderr.write("mxcluster: %s\n" % text)
    sys.stderr.flush()
    from_env().write("note", text=text)


def from_env() -> EventLog:
    """Return the EventLog of this process. Outside a job the log writes nothing.

    The arguments of the log are the variables MXCLUSTER_JOB_DIR, MXCLUSTER_ROLE, MXCLUSTER_INDEX
    and MXCLUSTER_HOST.
    """
    folder = os.environ.get("MXCLUSTER_JOB_DIR")
    if not folder:
        return EventLog(None)
    index = os.environ.get("MXCLUSTER_INDEX")
    return EventLog(
        os.path.join(folder, FILE),
        role=os.environ.get("MXCLUSTER_ROLE"),
        index=int(index) if index else None,
        host=os.environ.get("MXCLUSTER_HOST"),
    )


def read(path: str, damaged: Optional[Callable[[Any], Any]] = None) -> List[Dict[str, Any]]:
    """Return the events (dicts) in the file `path`, in the order of the lines.

    A killed process or a full disk can leave a torn line. The function skips each line that is not
    a whole JSON object, and each object that is no event, has no finite time or is nested too deep.
    It calls `damaged(line)` for each skipped line. Raises OSError if the file cannot be opened.
    """
    events = []
    with open(path, encoding="utf-8", errors="replace") as stream:
        for line in stream:
            try:
                event = json.loads(line)
                valid = _valid(event)
            except ValueError:
                continue
            except DAMAGED:
                valid = False
            if valid:
                events.append(event)
            elif damaged is not None:
                damaged(line)
    return events


def _valid(event: Any) -> bool:
    """Return True if `event` is a dict with an "event" and a finite "time"."""
    return (
        isinstance(event, dict)
        and "event" in event
        and isinstance(event.get("time"), numbers.Real)
        and math.isfinite(event["time"])
    )


def merge(
    paths: Iterable[str],
    belongs: Optional[Iterable[Callable[[Dict[str, Any]], bool]]] = None,
    damaged: Optional[Callable[[str], Any]] = None,
) -> List[Dict[str, Any]]:
    """Return the events (dicts) in the files `paths`, sorted by time.

    Events with equal times keep the order of `paths`.

    `belongs`: one function for each path, which returns True for the events to keep. By default
    `merge` keeps all events. `merge` calls `damaged(path)` for each event that it drops, and for
    each line that `read` skips as damaged.
    """
    paths = list(paths)
    report: Callable[[str], Any] = damaged or (lambda path: None)
    tests: List[Callable[[Dict[str, Any]], bool]] = (
        list(belongs) if belongs is not None else [lambda event: True] * len(paths)
    )
    found = []
    for path, test in zip(paths, tests):
        lines: List[str] = []
        for event in read(path, lines.append):
            if test(event):
                found.append(event)
            else:
                report(path)
        for _ in lines:
            report(path)
    return sorted(found, key=lambda event: event["time"])


def plain(value: Any, not_finite: Optional[Callable[[float], Any]] = None) -> Any:
    """Convert `value` to JSON's own types, and return the result.

    Scalars and arrays of numpy become numbers and lists. NaN and infinities become None, and the
    function calls `not_finite(number)` for each of these numbers. Raises TypeError for any other
    type.
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
    if hasattr(
        value, "tolist"
    ):  # arrays, and scalars that numpy does not register as numbers (bool_)
        return plain(value.tolist(), not_finite)
    raise TypeError(
        "an event cannot hold %r (%s): give a number, a string, a list or a dict"
        % (value, type(value).__name__)
    )


def _where(fields: Dict[str, Any]) -> str:
    """Return the epoch and step in an event's `fields` as text, such as ", epoch 3, step 17"."""
    return "".join(", %s %s" % (name, fields[name]) for name in ("epoch", "step") if name in fields)
