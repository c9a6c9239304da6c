"""Define the verdict on a job, the content of runs/<job>/verdict.json."""

from typing import Mapping, Optional, Sequence

from mxcluster.model import names
from mxcluster.model.failures import Failure
from mxcluster.model.record import Record, field, record
from mxcluster.model.shapes import (
    LARGEST,
    each,
    figure,
    flag,
    matching,
    number,
    optional,
    real,
    table,
    whole,
    words,
)

MOST = 100000  # processes, nodes, lines or leftovers
CURE = "restore this file, or fetch the results again with train.yml -e attach=<job>"

_exit_code = optional(whole(-100, 255))
_lines = each(words, MOST)
_state = matching(r"[a-z][a-z ]{0,39}", "the state of a node")
_checkpoint = optional(matching(r"[A-Za-z0-9][A-Za-z0-9._-]{0,299}", "the name of a checkpoint"))


class Verdict(Record):
    """The verdict on a job: success, figures, first failure."""

    ok: bool = field(flag)
    job: str = field(names.job_id)
    kv: str = field(words)
    """The parallel scheme, "mpi" for an MPI program."""
    # An accuracy of an earlier version may be NaN.
    accuracy: Optional[float] = field(optional(figure))
    """The accuracy on held-out samples, 0 to 1."""
    samples_per_s: Optional[float] = field(optional(number))
    """The speed of all workers."""
    seconds: float = field(real(0, LARGEST))
    """The duration of the training, or of the whole job if the job failed."""
    exit_codes: Mapping[str, Optional[int]] = field(table(names.process, _exit_code, MOST))
    """{process: exit code, null without an exit code}."""
    first_failure: Optional[Failure] = field(optional(record(Failure)))
    left: Mapping[str, Sequence[str]] = field(table(names.host, _lines, MOST), default={})
    """{searched node: [leftover, ...]}."""
    warnings: Sequence[str] = field(_lines, default=[])
    figures: Optional[str] = field(optional(words), default=None)
    """The sources of the figures of a script, in words; None for a program of mxcluster."""
    bottleneck: Optional[str] = field(optional(words), default=None)
    """The part of the cluster that the training waits for, in words; None if none stands out."""
    files: int = field(whole(), default=0)
    """The number of fetched files of the user's script."""
    nodes: Mapping[str, str] = field(table(names.host, _state, MOST))
    """{node: its last state, such as "done"}."""
    complete: Optional[Sequence[str]] = field(optional(each(names.host, MOST)), default=None)
    """The nodes of whose files the run folder has all. None for a run of an earlier version."""
    checkpoint: Optional[str] = field(_checkpoint, default=None)
    """The name of the checkpoint from which `resume` goes on, None without one."""
    best_checkpoint: Optional[str] = field(_checkpoint, default=None)
    """The name of the checkpoint with the highest accuracy, None without `keep_best`."""
    proposal: Optional[Sequence[str]] = field(optional(_lines), default=None)
    """The lines about the profile that the job measured."""
