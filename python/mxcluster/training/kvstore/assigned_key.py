"""Let workers that wait for each other exchange one number each.

MXNet's servers apply the optimizer to every key, so a worker cannot store a value. mxcluster sets
the updater of the servers (`optimizer_states.Updates`, or `gsync_server.GroupUpdate` for a group),
and a message names one key to the updater. Pushes of this key replace its value. The key holds a
number for each worker, and each worker pushes its own number and zeros. The servers merge by their
own rule: they add up the pushes of all workers under dist_sync, of the members of a group under
dist_gsync. The sum is the array of all numbers, bit by bit, and these workers pull the same array.

A message alone would not be enough: servers send nothing to workers but the values of pulled keys.
"""

import numpy
from mxnet import nd

from mxcluster.errors import MxclusterError
from mxcluster.training.kvstore import server_messages

NAME = "mxcluster:assigned"  # No parameter of a network has a colon in its name.


class AssignedKey(object):
    """The key with one number for each of `workers` workers; `index` is this worker's index.

    All workers must make an AssignedKey, after the kv-store `kv` has all `parameters` parameters of
    the network. MXNet then gives the key the next number. Checkpoints leave the key out, because
    the optimizer has no state for this key.
    """

    def __init__(self, kv, parameters, workers, index):
        self._kv, self._workers, self._index = kv, workers, index
        nd.waitall()  # because a message may overtake pending pushes of this worker
        server_messages.tell(kv, "assign", str(parameters))
        kv.init(NAME, nd.zeros((workers,)))

    def exchange(self, number):
        """Return the numbers of all workers as a list of float, rounded to float32, by index.

        `number` (float) is this worker's number. The method returns when all workers have called
        it. Under dist_gsync these are the workers of the group, and the numbers of other groups are
        0. Raises MxclusterError if the servers did not store the number.
        """
        row = numpy.zeros((self._workers,), numpy.float32)
        row[self._index] = number
        self._kv.push(NAME, nd.array(row))
        found = nd.zeros((self._workers,))
        self._kv.pull(NAME, out=found)
        numbers = found.asnumpy()
        if not numpy.array_equal(numbers[self._index], row[self._index]) and number == number:
            raise MxclusterError(
                "the servers returned %r for the number %r of worker-%d: the key %s is not the one "
                "after the network's parameters. Initialize no key besides these parameters"
                % (float(numbers[self._index]), float(number), self._index, NAME)
            )
        return [float(each) for each in numbers]
