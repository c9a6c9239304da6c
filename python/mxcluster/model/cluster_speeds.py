"""Define the measured speeds of a cluster, the content of speeds.json."""

from typing import Mapping, Optional, Sequence

from mxcluster.model.record import Record, field, record
from mxcluster.model.shapes import each, optional, real, table, unix_time, words

MOST = 100000  # nodes and transfers

_rate = optional(real(0, 1e9))


class Figures(Record):
    """The figures of a node, or their medians. None for a figure that was not measured."""

    matmul: Optional[float] = field(_rate, default=None)
    """Products of matrices in GFLOP/s."""
    write: Optional[float] = field(_rate, default=None)
    """The disk of the job folders in MB/s, with fsync."""
    read: Optional[float] = field(_rate, default=None)
    """The disk of the job folders in MB/s."""
    bandwidth: Optional[float] = field(_rate, default=None)
    """The median of what the node sends or of what it receives, the lower one, in MB/s."""


class Transfer(Record):
    """The bandwidth from one node to another."""

    sender: str = field(words)
    receiver: str = field(words)
    bandwidth: float = field(real(0, 1e9))
    """MB/s."""


class ClusterSpeeds(Record):
    """The figures of all nodes, and the transfers between them."""

    time: float = field(unix_time)
    """The time of the measurement in unix seconds."""
    medians: Figures = field(record(Figures))
    nodes: Mapping[str, Figures] = field(table(words, record(Figures), MOST))
    transfers: Sequence[Transfer] = field(each(record(Transfer), MOST))
