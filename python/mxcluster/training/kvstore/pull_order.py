"""Keep each push of a worker behind the last pull of the same key, in MXNet's engine.

A distributed store of MXNet sends the array of a gradient itself, and receives the weights of the
next pull in this array. So the engine orders a pull and the next push of the key only if the second
gradient is the same array as the first. A push of another array, or the first push after a pull,
starts as soon as its gradient is computed. The servers may then answer the pull with the weights
after this push. Each worker would get other weights, without an error (PushImpl and PullImpl in
kvstore_dist.h, MXNet 1.2.1 to 1.9.1).
"""

from typing import Dict, List, Optional, Tuple

from mxnet import autograd, nd

from mxcluster.node.mxnet_types import NDArray
from mxcluster.training.kvstore.call_arguments import Arrays, Key, Keys, Values, first, pairs


class PullOrder(object):
    """The arrays of the last push and of the last pull of each key.

    Of a push on several devices the class knows the first array.

    A store calls `new` and `pushes` before a push, and `pulls` after a pull.
    """

    def __init__(self) -> None:
        self._pushed: Dict[Key, NDArray] = {}
        self._pulled: Dict[Key, Arrays] = {}

    def new(self, key: Keys, value: Optional[Values]) -> List[Tuple[Key, NDArray]]:
        """Return (key, gradient) for each gradient of a push that is not the last push's array."""
        gradients = [(name, first(arrays)) for name, arrays in pairs(key, value)]
        return [pair for pair in gradients if self._pushed.get(pair[0]) is not pair[1]]

    def pushes(self, new: List[Tuple[Key, NDArray]]) -> None:
        """Make the pushes of the gradients `new` wait for the last pull of their keys."""
        for name, gradient in new:
            if name in self._pulled:
                write_after(gradient, first(self._pulled[name]))
            self._pushed[name] = gradient

    def pulls(self, key: Keys, out: Optional[Values]) -> None:
        """Record a pull of `key` into the arrays `out`."""
        self._pulled.update(pairs(key, out))


def write_after(array: NDArray, other: NDArray) -> None:
    """Make later readers of `array` wait for pending writes to `other`, without waiting here.

    The engine writes the first number of `array` to its own place, and lists `other` as an input.
    `array` keeps its value. The function waits if one of the arrays is sparse, because parts of a
    sparse array have no operators.
    """
    if array.stype != "default" or other.stype != "default":
        other.wait_to_read()
        return
    with autograd.pause():
        number, after = _first_number(array), _first_number(other).as_in_context(array.context)
        if after.dtype != number.dtype:
            after = after.astype(number.dtype)
        nd._internal._identity_with_attr_like_rhs(number, after, out=number)


def _first_number(array: NDArray) -> NDArray:
    """Return the first number of `array`, shape (1,), in the memory of `array`."""
    if hasattr(array, "as_nd_ndarray"):  # reshape() of MXNet's numpy arrays copies
        array = array.as_nd_ndarray()
    return array.reshape((-1,))[0:1]
