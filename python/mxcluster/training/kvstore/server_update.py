"""Define the interface between `server.Commands` and the update of a scheme."""

from typing import Callable, Dict, List, NamedTuple, Tuple, Union

import numpy

from mxcluster.errors import BadInput
from mxcluster.node.mxnet_types import NDArray, Optimizer
from mxcluster.training.kvstore.optimizer_json import Forbidden

# {parameter's number: (number of elements of the weight, [flat state, ...])}
States = Dict[int, Tuple[int, List[numpy.ndarray]]]
Index = Union[int, str, bytes]  # the key of a parameter, as MXNet passes it to an updater

NO_OPTIMIZER = (
    "gradients of parameter %s came before an optimizer: call set_optimizer() before push()"
)
NO_OPTIMIZER_TO_SAVE = (
    "the checkpoint %s was requested before an optimizer: call set_optimizer() before the job "
    "saves a checkpoint"
)


class Update(object):
    """The update of the weights on a server. The base class refuses all work.

    MXNet's own schemes use the base class until a worker has sent an optimizer. Without an updater
    MXNet's server would abort.
    """

    takes_reports = False  # True if workers send a `Report` in place of their optimizer alone

    def __call__(self, index: Index, grad: NDArray, weight: NDArray) -> None:
        """Update the array `weight` under the key `index` with the pushed array `grad`.

        Raises BadInput if no worker has sent an optimizer yet.
        """
        raise BadInput(NO_OPTIMIZER % (index,))

    def use(self, optimizer: Optimizer, number: int) -> None:
        """Use `optimizer` from now on. `number` is the version, 1 for the job's first optimizer."""
        raise NotImplementedError  # Only an update that takes reports has this method.

    def save(self, folder: str, name: str, number: str) -> None:
        """Write this server's part of the checkpoint `name` (with the id `number`) to `folder`.

        Raises BadInput if no worker has sent an optimizer yet.
        """
        raise BadInput(NO_OPTIMIZER_TO_SAVE % name)

    def assign(self, number: int) -> None:
        """Replace the value of key `number` with the merged pushes from now on.

        The optimizer and the checkpoints skip this key. Raises BadInput if the key holds a
        parameter, and Forbidden under a scheme without such keys.
        """
        raise Forbidden(
            "servers of this job's scheme store only model parameters: use kv=dist_sync"
        )

    def refresh(self, group: int) -> None:
        """Copy the newest weights to the arrays that `group` pulls."""

    def close(self) -> None:
        """End the work. The server calls this method once, after its loop."""


class Context(NamedTuple):
    """The state of a server that the update of a scheme reads."""

    rank: int
    """The rank of the server in ps-lite."""
    restored: States
    """The optimizer's states from the checkpoint that the job resumes, {} for a new job."""
    updates: Callable[[Optimizer, int], Update]
    """A function (optimizer, number) that returns the `optimizer_states.Updates`."""
