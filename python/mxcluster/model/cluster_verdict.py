"""Define the verdict of verify.yml on a cluster, the content of verify.json."""

from typing import List, Sequence

from mxcluster.model.record import Record, field, record
from mxcluster.model.shapes import each, flag, one_of, whole, words

OK, FAILED, NOT_RUN, WARNING = "ok", "failed", "not run", "warning"


class Line(Record):
    """The result of one check."""

    check: str = field(words)
    result: str = field(one_of(OK, FAILED, NOT_RUN, WARNING))
    why: Sequence[str] = field(each(words, 100000))
    """The reasons of another result than ok."""


class ClusterVerdict(Record):
    """The results of all checks."""

    ok: bool = field(flag)
    status: int = field(whole(0, 2))
    """1 if a check failed, 2 if a node did not answer."""
    nodes: Sequence[str] = field(each(words, 100000))
    checks: Sequence[Line] = field(each(record(Line)))


def line(check: str, why: List[str]) -> Line:
    """Return the line of a check: "ok" if `why` is empty, else "failed" with these reasons."""
    return Line(check=check, result=FAILED if why else OK, why=why)


def warned(check: str, why: List[str]) -> Line:
    """Return the line of a check that fails no cluster: "warning", or "ok" if `why` is empty."""
    return Line(check=check, result=WARNING if why else OK, why=why)


def skipped(check: str, why: str) -> Line:
    """Return the line of a check that did not run ("not run"), with the reason `why`."""
    return Line(check=check, result=NOT_RUN, why=[why])
