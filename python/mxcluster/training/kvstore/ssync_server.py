"""Update weights on the servers of ``dist_ssync``, with the user's optimizer."""

import os
from typing import Any, Callable, Dict, Optional

from mxcluster.errors import BadInput
from mxcluster.node.mxnet_types import NDArray, Optimizer
from mxcluster.training.kvstore import key_layout, optimizer_states
from mxcluster.training.kvstore.array_views import view
from mxcluster.training.kvstore.round_schedule import RoundScheduler

Commands = Any  # server.Commands
Updates = Any  # optimizer_states.Updates

CLOCK_KEY = 215329  # the key of the clock, and the last key that ps-lite can place
FINISHED = float(1 << 22)  # the last increment of a worker's counter, after the last iteration


def of_server(server: Commands) -> "StaleUpdate":
    """Return the StaleUpdate of this server process.

    Args:
        server: the `server.Commands` of this process.
    """
    return StaleUpdate(
        len(os.environ["MXCLUSTER_GROUPS"].split(",")),
        server.updates,
        key_layout.of_ranks(os.environ),
    )


class StaleUpdate(object):
    """The update of SSP on a server: each push updates the shared weights at once.

    The clock is an array of one counter for each worker. Each worker pushes its own increments to
    the clock. The server reads a pushed array at once, because in async mode the array wraps the
    network's buffer. Source: Ho et al., NIPS 2013.

    Args:
        workers: the number of workers.
        updates: a function (optimizer, number) that returns an `optimizer_states.Updates`.
        layout: the result of `key_layout.of_ranks`, None if a key is a parameter's number.
    """

    def __init__(
        self,
        workers: int,
        updates: Callable[[Optimizer, int], Updates],
        layout: Optional[key_layout.Layout] = None,
    ) -> None:
        self._workers, self._make = workers, updates
        self.updates: Updates = None
        self._layout = layout
        self._optimizer: Optimizer = None
        # {parameter: batches that its updates have merged so far}
        self._batches: Dict[int, int] = {}

    def use(self, optimizer: Optimizer, number: int) -> None:
        """Use `optimizer` from now on. `number` is the version, 1 for the job's first optimizer."""
        if optimizer.lr_scheduler is not None:
            optimizer.lr_scheduler = RoundScheduler(optimizer.lr_scheduler)
        self._optimizer, self.updates, self._batches = optimizer, self._make(optimizer, number), {}

    def __call__(self, key: int, pushed: NDArray, stored: NDArray) -> None:
        """Update the array `stored` under `key` with the pushed array `pushed`.

        `stored` holds weights or the clock. Both arrays have the same shape. Raises BadInput if
        no worker has sent an optimizer yet.
        """
        if key == CLOCK_KEY:
            clock = view(stored)
            clock += view(pushed)
            return
        number = key if self._layout is None else self._layout.split(key)[1]
        if self._optimizer is None:
            raise BadInput(optimizer_states.NO_OPTIMIZER % number)
        batches = self._batches[number] = self._batches.get(number, 0) + 1
        schedule = self._optimizer.lr_scheduler
        if schedule is not None:
            schedule.round = max(
                schedule.round, self._optimizer.begin_num_update - (-batches // self._workers)
            )
        self.updates(number, pushed, stored)
        stored.wait_to_read()

    def save(self, folder: str, name: str, number: str) -> None:
        """Write this server's part of the checkpoint `name` (with the id `number`) to `folder`.

        Raises BadInput if no worker has sent an optimizer yet.
        """
        if self.updates is None:
            raise BadInput(optimizer_states.NO_OPTIMIZER_TO_SAVE % name)
        self.updates.save(folder, name, number)
