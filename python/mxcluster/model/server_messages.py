"""Define the content of messages from workers to the servers (see `mxcluster.seal`)."""

from typing import Optional, Sequence

from mxcluster.model.record import Record, field
from mxcluster.model.shapes import each, matching, optional, real, text, whole

_MOST_PARAMETERS = 10**6
_file = matching(
    r"[A-Za-z0-9][A-Za-z0-9._-]*", "a name that has only letters, digits, '.', '_' and '-'", 255
)


class Report(Record, nulls=True):
    """The optimizer and the string keys of a worker."""

    number: int = field(whole(1))
    """The version of the optimizer, 1 for the first optimizer that the worker sets."""
    names: Sequence[str] = field(each(text, _MOST_PARAMETERS))
    """The string keys, in the order of init()."""
    optimizer: Optional[str] = field(optional(text))
    """JSON of `training.kvstore.optimizer_json`, None if the servers have this version already."""


class SaveRequest(Record):
    """The request to write a checkpoint of the optimizer's states."""

    name: str = field(_file)
    """Network and epoch, such as "mlp-0005"."""
    id: str = field(matching(r"[A-Za-z0-9-]{1,64}", "the id of a checkpoint"))


class ForgetRequest(Record):
    """The request to delete old checkpoints."""

    network: str = field(_file)
    epochs: int = field(whole(-(2**31), 2**31))
    """The last epoch to delete. Without old checkpoints it is negative."""
    spared: Sequence[str] = field(each(_file, 2), default=[])
    """The names of checkpoints to keep."""


class MeasureRequest(Record):
    """The request to measure the speed of a server."""

    sizes: Sequence[int] = field(each(whole(1), _MOST_PARAMETERS))
    """The number of elements of each parameter."""
    seconds: float = field(real(0, 3600))
    """The time limit."""
