"""Define the arguments of a worker's training program: one JSON object on its command line."""

import json
from typing import List, Optional, Sequence

from mxcluster import schemes
from mxcluster.errors import BadInput
from mxcluster.model.checkpoint import Progress
from mxcluster.model.host_variables import MOST_SLOWDOWN
from mxcluster.model.job_knobs import MOST_PROCESSES, Measurements, Scheme, Training
from mxcluster.model.knob import knob
from mxcluster.model.names import MOST_GPU
from mxcluster.model.record import field, record
from mxcluster.model.shapes import Wrong, each, optional, real, text, whole
from mxcluster.model.written import LEAST, MOST, one_of

_sizes = each(whole(1, MOST * MOST_PROCESSES), MOST_PROCESSES)


class ProgramArguments(Scheme, Training, Measurements, strict=True):
    """The knobs of the program with values for one worker. `data_dir` is "" for data of mxcluster.

    A process that a user starts by hand has no servers, so that the default of `kv` is "local".
    """

    kv: str = knob(one_of(*schemes.NAMES), "local")
    """The parallel scheme."""
    gpus: Sequence[int] = field(each(whole(0, MOST_GPU), MOST_GPU + 1), default=[])
    """The GPU numbers, [] for the CPU."""
    work_load: Sequence[float] = field(each(real(LEAST, MOST), MOST_GPU + 1), default=[])
    """The relative speeds of the GPUs, which share a batch in this proportion. [] for equal
    parts."""
    model_load_file: str = field(text, default="")
    """The .params file of a checkpoint, saved after model_load_epoch."""
    batch_sizes: Sequence[int] = field(_sizes, default=[])
    """The first batch size of each worker under balance=batch, and its first planned samples of a
    step under balance=deadline. [] for equal sizes."""
    batch_least: Sequence[int] = field(_sizes, default=[])
    """The least batch size of each worker, [] for 1. Under balance=deadline that of its small
    batches, [] for least_batch."""
    batch_most: Sequence[int] = field(_sizes, default=[])
    """The largest batch size of each worker, [] for no limit."""
    progress: Optional[Progress] = field(optional(record(Progress)), default=None)
    """The state of balance=deadline in the checkpoint from which the job resumes."""
    slowdown: float = field(real(1, MOST_SLOWDOWN), default=1.0)
    """The factor for the time of each step, to emulate a slower node."""
    slowdown_changes: Sequence[float] = field(each(real(1, MOST_SLOWDOWN), 100), default=[])
    """Factors that also count, in turn, each for slowdown_every seconds. [] for no changes."""
    slowdown_every: float = field(real(0.1, 86400), default=10.0)

    def command_line(self) -> List[str]:
        """Return the arguments for `of_command_line`, without values that are the default.

        So the plan of a job with many workers stays small.
        """
        values = {
            name: value
            for name, value in self.encode().items()
            if value != self.FIELDS[name].default
        }
        return [json.dumps(values)]


def of_command_line(argv: Sequence[str]) -> ProgramArguments:
    """Return the arguments of a program. Raises BadInput with the wrong argument."""
    try:
        return ProgramArguments.decode(json.loads(argv[0]) if argv else {})
    except Wrong as wrong:
        raise BadInput("the argument %s" % wrong) from None
    except (ValueError, RecursionError) as error:
        raise BadInput("the arguments are no JSON object (%s): %s" % (error, argv[0])) from None
