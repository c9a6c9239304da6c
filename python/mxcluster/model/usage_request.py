"""Define what the agent tells the meter of its node."""

from typing import Sequence

from mxcluster.model import names
from mxcluster.model.record import Record, field
from mxcluster.model.shapes import each, whole, words


class UsageRequest(Record):
    """The node whose processes the meter measures."""

    host: str = field(names.host)
    interface: str = field(words)
    """The interface of the training."""
    gpus: Sequence[int] = field(each(whole(0, names.MOST_GPU), 1024))
    """The numbers of the GPUs of this node's processes."""
