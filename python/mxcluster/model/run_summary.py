"""Define the row of a run in the history, the content of runs/<job>/summary.json."""

from typing import Mapping, Optional, Sequence

from mxcluster.model import names
from mxcluster.model.record import Record, field
from mxcluster.model.shapes import (
    LARGEST,
    each,
    figure,
    number,
    one_of,
    optional,
    real,
    table,
    unix_time,
    words,
)

OK, FAILED = "OK", "FAILED"


class RunSummary(Record):
    """A run of a job: what it was, and how it ended."""

    job: str = field(names.job_id)
    started: Optional[float] = field(optional(unix_time), default=None)
    """Unix seconds, null if unknown."""
    kv: str = field(words)
    """The parallel scheme, "mpi" for an MPI program."""
    what: str = field(words)
    """The script, the MPI command, or the network and the data."""
    knobs: Mapping[str, str] = field(table(words, words), default={})
    """{knob: value} of the given knobs. Without run.json, those that differ from their defaults."""
    of_inventory: Sequence[str] = field(each(words, 1000), default=[])
    """The names of the given knobs whose values the inventory has."""
    accuracy: Optional[float] = field(optional(figure), default=None)
    """The accuracy on held-out samples, 0 to 1."""
    samples_per_s: Optional[float] = field(optional(number), default=None)
    seconds: float = field(real(0, LARGEST))
    """The duration of the training, or of the whole job if the job failed."""
    state: str = field(one_of(OK, FAILED))
    tag: str = field(words, default="")
    note: str = field(words, default="")
