"""Exchange numbers of each worker among workers that wait for each other.

MXNet's servers apply the optimizer to every key, so a worker cannot store a value. mxcluster sets
the updater of the servers (`optimizer_states.Updates`, or `gsync_server.GroupUpdate` for a group).
A message names one key to the updater, and pushes of this key then replace the key's value.

The key holds the same number of places for each worker. Each worker pushes an array with its own
numbers and zeros. The servers add up the pushes of all workers under dist_sync, and of a group's
members under dist_gsync. The sum is exactly the array of all numbers. All these workers pull the
same sum.

A message alone is not enough, because servers send workers only the values of pulled keys.
"""

from typing import List, Tuple

import numpy
from mxnet import nd

from mxcluster.errors import MxclusterError
from mxcluster.node.mxnet_types import KVStore
from mxcluster.training.kvstore import server_messages

NAME = "mxcluster:assigned"  # No parameter of a network has a colon in its name.


class AssignedKey(object):
    """A key under which workers exchange numbers.

    All workers must make an AssignedKey after the init() of all parameters. MXNet then gives the
    key the next number. Checkpoints leave the key out, because the optimizer has no state for this
    key.

    Args:
        kv: the kv-store.
        parameters: the number of parameters of the network.
        workers: the number of workers.
        index: this worker's index.
        each: the number of numbers of each worker.
    """

    def __init__(
        self, kv: KVStore, parameters: int, workers: int, index: int, each: int = 1
    ) -> None:
        self._kv, self._workers, self._index, self._each = kv, workers, index, each
        # The last numbers of this worker, float32 (each,).
        self._pushed: numpy.ndarray = numpy.zeros((each,), numpy.float32)
        nd.waitall()  # because a message may overtake pending pushes of this worker
        server_messages.send(kv, "assign", str(parameters))
        kv.init(NAME, nd.zeros((workers * each,)))

    def exchange(self, *numbers: float) -> List[Tuple[float, ...]]:
        """Push this worker's `numbers`. Return the numbers of all workers, as `pull` does."""
        self.push(*numbers)
        return self.pull()

    def push(self, *numbers: float) -> None:
        """Send this worker's `numbers` to the servers, rounded to float32.

        The method does not wait. Each worker calls `push` once before each `pull`.
        """
        self._pushed = numpy.array(numbers, numpy.float32)
        row = numpy.zeros((self._workers, self._each), numpy.float32)
        row[self._index] = self._pushed
        self._kv.push(NAME, nd.array(row.reshape(-1)))

    def pull(self) -> List[Tuple[float, ...]]:
        """Return the numbers of each worker from the last `push`, in order of the indices.

        The method returns when all workers have pushed. Under dist_gsync only the members of this
        worker's group exchange numbers, and the numbers of other groups are 0.

        Raises MxclusterError if the servers return other numbers for this worker.
        """
        pulled = nd.zeros((self._workers * self._each,))
        self._kv.pull(NAME, out=pulled)
        numbers = pulled.asnumpy().reshape(self._workers, self._each)
        own, is_number = numbers[self._index], ~numpy.isnan(self._pushed)
        if not numpy.array_equal(own[is_number], self._pushed[is_number]):
            raise MxclusterError(
                "the servers returned %s for the numbers %s of worker-%d under the key %s. The "
                "script has probably called kv.init() for a key that is not a parameter of the "
                "network: call kv.init() for the network's parameters only"
                % (own.tolist(), self._pushed.tolist(), self._index, NAME)
            )
        return [tuple(map(float, row)) for row in numbers]
