"""Exchange one number of each worker among workers that wait for each other.

MXNet's servers apply the optimizer to every key, so a worker cannot store a value. mxcluster sets
the updater of the servers (`optimizer_states.Updates`, or `gsync_server.GroupUpdate` for a group).
A message names one key to the updater, and pushes of this key then replace the key's value.

The key holds a number for each worker. Each worker pushes an array with its own number and zeros.
The servers add up the pushes of all workers under dist_sync, and of a group's members under
dist_gsync. The sum is exactly the array of all numbers. All these workers pull the same sum.

A message alone is not enough, because servers send workers only the values of pulled keys.
"""

from typing import List

import numpy
from mxnet import nd

from mxcluster.errors import MxclusterError
from mxcluster.node.mxnet_types import KVStore
from mxcluster.training.kvstore import server_messages

NAME = "mxcluster:assigned"  # No parameter of a network has a colon in its name.


class AssignedKey(object):
    """A key under which workers exchange numbers, with one number for each worker.

    All workers must make an AssignedKey after the init() of all parameters. MXNet then gives the
    key the next number. Checkpoints leave the key out, because the optimizer has no state for this
    key.

    Args:
        kv: the kv-store.
        parameters: the number of parameters of the network.
        workers: the number of workers.
        index: this worker's index.
    """

    def __init__(self, kv: KVStore, parameters: int, workers: int, index: int) -> None:
        self._kv, self._workers, self._index = kv, workers, index
        nd.waitall()  # because a message may overtake pending pushes of this worker
        server_messages.send(kv, "assign", str(parameters))
        kv.init(NAME, nd.zeros((workers,)))

    def exchange(self, number: float) -> List[float]:
        """Return the numbers of all workers, in order of the workers' indices.

        The exchange rounds numbers to float32. The method returns when all workers have called the
        method. Under dist_gsync only the members of this worker's group exchange numbers, and the
        numbers of other groups are 0.

        Args:
            number: this worker's number.

        Raises MxclusterError if the servers return another number for this worker.
        """
        row = numpy.zeros((self._workers,), numpy.float32)
        row[self._index] = number
        self._kv.push(NAME, nd.array(row))
        pulled = nd.zeros((self._workers,))
        self._kv.pull(NAME, out=pulled)
        numbers = pulled.asnumpy()
        if not numpy.array_equal(numbers[self._index], row[self._index]) and number == number:
            raise MxclusterError(
                "the servers returned %r for the number %r of worker-%d under the key %s. The "
                "script has probably called kv.init() for a key that is not a parameter of the "
                "network: call kv.init() for the network's parameters only"
                % (float(numbers[self._index]), float(number), self._index, NAME)
            )
        return [float(each) for each in numbers]
