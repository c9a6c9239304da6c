"""Keep an optimizer's states of one parameter in memory that several processes share."""

from typing import Callable, List, Tuple, Union

import numpy

from mxcluster.errors import BadInput
from mxcluster.node.mxnet_types import NDArray, Optimizer, State
from mxcluster.training.kvstore import optimizer_states
from mxcluster.training.kvstore.array_views import array_on, view


class Shared(object):
    """The optimizer's states of one parameter, and the update that uses these states.

    The memory holds the number of updates (int64), then the arrays one after the other.

    Args:
        optimizer: the user's optimizer.
        index: the parameter's number.
        weight: the NDArray that the optimizer changes.
        place: a function that takes a length in bytes and returns the memory of the states.
        is_new: True to fill the memory with new states, False for the states of another process.

    Raises BadInput for an optimizer with states other than float32 arrays.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        index: int,
        weight: NDArray,
        place: Callable[[int], Union[memoryview, bytearray]],
        is_new: bool = True,
    ) -> None:
        self._index = index
        made = optimizer.create_state_multi_precision(index, weight)
        for leaf in optimizer_states.leaves(made):
            if not hasattr(leaf, "asnumpy") or numpy.dtype(leaf.dtype) != numpy.float32:
                raise BadInput(
                    "%s keeps a state of type %r for a parameter, but the servers of several "
                    "groups share float32 arrays only: use another optimizer, or one group"
                    % (type(optimizer).__name__, type(leaf).__name__)
                )
        templates = optimizer_states.flat(made)
        sizes = [optimizer_states.size_of(array) for array in templates]
        region = place(8 + 4 * sum(sizes))
        self._count = numpy.frombuffer(region, dtype=numpy.int64, count=1)
        numbers, begin = numpy.frombuffer(region, dtype=numpy.float32, offset=8), 0
        self._arrays: List[NDArray] = []
        self._numbers: List[numpy.ndarray] = []
        for template, size in zip(templates, sizes):
            part = numbers[begin : begin + size]
            begin += size
            if is_new:
                numpy.copyto(part, template.asnumpy().reshape(-1))
            shared = array_on(part, template.shape)
            self._arrays.append(template if shared is None else shared)
            self._numbers.append(part)
        self._is_copied = bool(templates) and self._arrays[0] is templates[0]
        self._state = rebuilt(made, list(self._arrays))

    def update(self, optimizer: Optimizer, index: int, weight: NDArray, grad: NDArray) -> None:
        """Update `weight` once with `optimizer` and the gradient `grad`.

        Args: `index` the parameter's number; `weight` and `grad` NDArrays of the same shape.
        """
        if self._is_copied:
            for array, numbers in zip(self._arrays, self._numbers):
                numpy.copyto(view(array), numbers)
        optimizer._index_update_count[index] = optimizer.begin_num_update + int(self._count[0])
        optimizer.update_multi_precision(index, weight, grad, self._state)
        self._count[0] += 1
        for array, numbers in zip(self._arrays, self._numbers):
            array.wait_to_read()
            if self._is_copied:
                numpy.copyto(numbers, view(array))

    def arrays(self) -> List[numpy.ndarray]:
        """Return the states as flat numpy arrays in the shared memory."""
        return self._numbers

    def restore(
        self, saved: Tuple[int, List[numpy.ndarray]], size: int, rank: int, servers: int
    ) -> None:
        """Copy the states of a checkpoint into the memory.

        Args: `saved` the parameter's entry in the result of `optimizer_states.load`; `size`, `rank`
        and `servers` as in `optimizer_states.share`.

        Raises BadInput if the checkpoint has other states, see `optimizer_states.shares`.
        """
        pieces = optimizer_states.shares(
            self._index, saved, self._numbers, size, (rank, servers, 1)
        )
        for numbers, piece in zip(self._numbers, pieces):
            numpy.copyto(numbers, piece)
        optimizer_states.trace(self._index, rank, self._numbers)


def rebuilt(state: State, arrays: List[NDArray]) -> State:
    """Return a copy of `state` whose NDArrays are the items of the list `arrays`, in order.

    `state` may be nested tuples or lists. The function removes the used arrays from `arrays`.
    """
    if isinstance(state, (tuple, list)):
        return type(state)(rebuilt(part, arrays) for part in state)
    return arrays.pop(0) if hasattr(state, "asnumpy") else state
