"""Write and read the events of a job's processes, one JSON object per line.

All processes of a node append to the same file, `events.jsonl` in the job folder. One `write(2)` to
a descriptor opened with O_APPEND writes a whole line. So the processes need no lock. The classes of
the events are in `mxcluster.model.events`.
"""

import contextlib
import functools
import json
import math
import numbers
import os
import sys
from typing import (
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Set,
    Tuple,
    TypeVar,
    Union,
    overload,
)

from mxcluster.errors import DAMAGED
from mxcluster.model import shapes
from mxcluster.model.events import MOST_METRICS, Event, Latest, Metric, Note, now

E = TypeVar("E", bound=Event)

FILE = "events.jsonl"
LEVELS = 12  # most levels of lists and objects in an event


class EventLog:
    """A log that appends events to the file `path`. Without a path, `write` does nothing.

    >>> log = EventLog("/job/events.jsonl", role="worker", index=0, host="node1")
    >>> log.write(Epoch(epoch=3, accuracy=0.91))
    >>> log.write("kind_of_a_script", figure=3)

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
        self._process = {"role": role, "index": index, "host": host}
        self._noted: Set[Tuple[str, str]] = set()
        self._path = path
        if path is not None:
            self._fd = _open(path)

    @overload
    def write(self, kind: Event) -> None: ...

    @overload
    def write(self, kind: str, **fields: object) -> None: ...

    def write(self, kind: Union[Event, str], **fields: object) -> None:
        """Append one line with an event, its time and its process.

        The constructor's role, index and host name the process. Raises OSError if the write fails,
        and TypeError if JSON cannot represent a field.

        Args: `kind` an event, or the kind of an event of a script, which has `fields`.
        """
        if self._fd is None:
            return
        given = kind.encode() if isinstance(kind, Event) else dict({"event": kind}, **fields)
        event: Dict[str, object] = dict({"event": None, "time": now()}, **self._process)
        not_finite: Dict[str, float] = {}
        for name, value in given.items():
            event[name] = plain(value, functools.partial(not_finite.setdefault, name))
        if not os.fstat(self._fd).st_nlink:  # the file was deleted: later events go to a new file
            with contextlib.suppress(OSError):  # if the folder is gone, the agent reports it
                assert self._path is not None  # a log with a descriptor has a path
                new = _open(self._path)
                os.dup2(new, self._fd, inheritable=False)
                os.close(new)
        os.write(self._fd, (json.dumps(event, allow_nan=False) + "\n").encode("utf-8"))
        for name, number in sorted(not_finite.items()):
            place = (str(event["event"]), name)
            if place not in self._noted:
                self._noted.add(place)
                self.write(
                    Note(text="%s became %s (event %s%s)" % (name, number, place[0], _where(event)))
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
    from_env().write(Note(text=text))


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


class Line(NamedTuple):
    """A line of a file of events. `content` is its JSON, which scripts of users also write."""

    event: Event
    content: Mapping[str, object]


def lines_of(
    texts: Iterable[str], damaged: Callable[[str], object] = lambda text: None
) -> Iterator[Line]:
    """Yield the events in `texts`, the lines of a file of events.

    A killed process or a full disk can leave a torn line, which is no JSON. The function skips such
    a line. It calls `damaged(line)` for each other line that is no valid event.
    """
    for text in texts:
        try:
            content = json.loads(text)
        except ValueError:
            continue
        except DAMAGED:  # thousands of levels
            damaged(text)
            continue
        try:
            event = Event.decode(content)
        except shapes.Wrong:
            damaged(text)
            continue
        if shapes.is_json(content, LEVELS):
            yield Line(event, content)
        else:
            damaged(text)


def read(path: str, damaged: Callable[[str], object] = lambda path: None) -> List[Line]:
    """Return the events in the file `path`, in the order of the lines.

    The function calls `damaged(path)` for each line that is JSON, but no valid event. Raises
    OSError if the file cannot be opened.
    """
    with open(path, encoding="utf-8", errors="replace") as stream:
        return list(lines_of(stream, lambda text: damaged(path)))


def merge(
    tests: Mapping[str, Callable[[Event], bool]], damaged: Callable[[str], object]
) -> List[Line]:
    """Return the events in several files, sorted by time.

    Events with equal times keep the order of `tests`.

    Args: `tests` {path: a function that returns True for the events to keep}; `damaged` a function
    of a path, which `merge` calls for each event that it drops, and for each line that `read`
    skips as damaged.
    """
    found = []
    for path, is_kept in tests.items():
        for line in read(path, damaged):
            if is_kept(line.event):
                found.append(line)
            else:
                damaged(path)
    return sorted(found, key=lambda line: line.event.time)


def first_hand(found: Iterable[E]) -> List[E]:
    """Return `found` without the events of lines of a worker that writes such events itself."""
    found = list(found)
    own = {(one.KIND, one.role, one.index) for one in found if one.source is None}
    return [
        one for one in found if one.source is None or (one.KIND, one.role, one.index) not in own
    ]


def after(latest: Latest, event: Event) -> Event:
    """Return `event`, with the figures of the event of its kind in `latest` that it lacks.

    Only an event of lines takes figures over, because a line seldom has all of them.
    """
    before = vars(latest)[event.KIND]
    if before is None or event.source is None:
        return event
    missing = {name: value for name, value in vars(before).items() if vars(event)[name] is None}
    return event.replaced(**missing)


def with_metric(latest: Latest, event: Metric) -> Latest:
    """Return `latest` with `event` in place of the earlier event of this metric.

    Only the first MOST_METRICS names count, as in the report.
    """
    found = {one.name: one for one in latest.metrics or ()}
    if (
        event.name
        and event.value is not None
        and (event.name in found or len(found) < MOST_METRICS)
    ):
        found[event.name] = event
    return latest.replaced(metrics=list(found.values()))


def plain(value: object, not_finite: Callable[[float], object] = lambda number: None) -> object:
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
        not_finite(number)
        return None
    if isinstance(value, dict):
        return {str(key): plain(item, not_finite) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, not_finite) for item in value]
    # Arrays, and scalars that numpy does not register as numbers (bool_).
    to_list = getattr(value, "tolist", None)
    if to_list is not None:
        return plain(to_list(), not_finite)
    raise TypeError(
        "an event cannot hold %r (%s): give a number, a string, a list or a dict"
        % (value, type(value).__name__)
    )


def _where(event: Mapping[str, object]) -> str:
    """Return the epoch and step of an event as text, such as ", epoch 3, step 17"."""
    return "".join(", %s %s" % (name, event[name]) for name in ("epoch", "step") if name in event)
