"""Define what the controller knows of a node at the end of a job."""

from typing import Dict, Optional, Sequence

from mxcluster.model import names
from mxcluster.model.record import Record, field, record
from mxcluster.model.shapes import each, json_object, number, optional, words

_lines = optional(each(words, 100000))


class Lost(Record):
    """The end of the contact with a node."""

    since: float = field(number, about="unix seconds")
    why: str = field(words)


class Uneven(Record):
    """The process that has made fewer pushes than the processes that wait for it."""

    name: str = field(names.process)
    time: float = field(number, about="unix seconds")


class NodeEnd(Record):
    """The end of a node's part of a job, with None for unknown facts."""

    status: Optional[Dict[str, object]] = field(
        optional(json_object(16)), default=None, about="the last status, as the agent wrote it"
    )
    lost: Optional[Lost] = field(optional(record(Lost)), default=None)
    left: Optional[Sequence[str]] = field(_lines, default=None, about="leftovers of the job")
    problem: Optional[str] = field(
        optional(words), default=None, about="why the node's files are not on the controller"
    )
    untrue: Optional[str] = field(
        optional(words), default=None, about="why the node's report of the end was false"
    )
    behind: Optional[Sequence[str]] = field(_lines, default=None, about="files that stayed")
    outside: Optional[Sequence[str]] = field(
        _lines, default=None, about="processes outside of the job's unit"
    )
    uneven: Optional[Uneven] = field(optional(record(Uneven)), default=None)
