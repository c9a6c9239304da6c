"""Define what the agent tells the reader of the workers' lines."""

from typing import Mapping

from mxcluster.model import names
from mxcluster.model.record import Record, field
from mxcluster.model.shapes import table, text, whole

MOST = 100000


class LineRequest(Record):
    """The workers of a node whose lines the reader follows, and the metrics in these lines."""

    host: str = field(names.host)
    workers: Mapping[str, int] = field(table(names.process, whole(), MOST))
    """{name of a worker, whose log has this name: its index}."""
    metrics: Mapping[str, str] = field(table(text, text), default={})
    """{name: regular expression}, the knob `metrics`."""
