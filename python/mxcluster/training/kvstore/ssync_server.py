"""Update weights on the servers of ``dist_ssync``, with the user's optimizer."""

import os
from typing import Callable, Dict, Optional

from mxcluster.errors import BadInput
from mxcluster.node.mxnet_types import NDArray, Optimizer
from mxcluster.training.kvstore import key_layout
from mxcluster.training.kvstore.array_views import view
from mxcluster.training.kvstore.round_schedule import RoundScheduler
from mxcluster.training.kvstore.server_update import NO_OPTIMIZER, Context, Index, Update

CLOCK_KEY = 215329  # the key of the clock, and the last key that ps-lite can place
FINISHED = float(1 << 22)  # the last increment of a worker's counter, after the last iteration


def of_server(server: Context) -> "StaleUpdate":
    """Return the StaleUpdate of this server process."""
    workers = len(os.environ["MXCLUSTER_GROUPS"].split(","))
    return StaleUpdate(workers, server.updates, key_layout.of_ranks(os.environ))


class StaleUpdate(Update):
    """The update of SSP on a server: each push updates the shared weights at once.

    The clock is an array of one counter for each worker. Each worker pushes its own increments to
    the clock. The server reads a pushed array at once, because in async mode the array wraps the
    network's buffer. Source: Ho et al., NIPS 2013.

    Args:
        workers: the number of workers.
        updates: a function (optimizer, number) that returns an `optimizer_states.Updates`.
        layout: the result of `key_layout.of_ranks`, None if a key is a parameter's number.
    """

    takes_reports = True

    def __init__(
        self,
        workers: int,
        updates: Callable[[Optimizer, int], Update],
        layout: Optional[key_layout.Layout] = None,
    ) -> None:
        self._workers, self._make, self._layout = workers, updates, layout
        self._updates = Update()
        self._optimizer: Optimizer = None
        # {parameter: batches that its updates have merged so far}
        self._batches: Dict[int, int] = {}

    def use(self, optimizer: Optimizer, number: int) -> None:
        """See `Update`."""
        self._optimizer = RoundScheduler.inside(optimizer)
        self._updates, self._batches = self._make(optimizer, number), {}

    def __call__(self, index: Index, grad: NDArray, weight: NDArray) -> None:
        """Update the weights or the clock under the key `index`. See `Update`."""
        key = int(index)
        if key == CLOCK_KEY:
            clock = view(weight)
            clock += view(grad)
            return
        number = key if self._layout is None else self._layout.split(key)[1]
        if self._optimizer is None:
            raise BadInput(NO_OPTIMIZER % number)
        batches = self._batches[number] = self._batches.get(number, 0) + 1
        schedule = self._optimizer.lr_scheduler
        if schedule is not None:
            schedule.round = max(
                schedule.round, self._optimizer.begin_num_update - (-batches // self._workers)
            )
        self._updates(number, grad, weight)
        weight.wait_to_read()

    def save(self, folder: str, name: str, number: str) -> None:
        """See `Update`."""
        self._updates.save(folder, name, number)
