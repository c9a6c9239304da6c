"""Define what the agent tells the keeper of the files that scripts save."""

from typing import Sequence

from mxcluster.model import names
from mxcluster.model.job_knobs import MOST_MB
from mxcluster.model.record import Record, field
from mxcluster.model.shapes import each, whole

MOST = 100000


class SavedRequest(Record):
    """The workers of a node whose saved files become checkpoints."""

    host: str = field(names.host)
    workers: Sequence[str] = field(each(names.process, MOST))
    """The names of the workers, in the order of their indices."""
    most_mb: int = field(whole(0, MOST_MB))
    """The largest checkpoint in megabytes, the knob `collect_mb`."""
