"""Share memory between numpy and MXNet arrays, without a copy."""

import ctypes
from typing import Optional, Tuple

import numpy
from mxnet import nd
from mxnet.base import _LIB, check_call

from mxcluster.node.mxnet_types import NDArray


def view(array: NDArray) -> numpy.ndarray:
    """Return a flat float32 numpy view, shape (size,), of the CPU NDArray `array`.

    The function first waits for pending writes to `array`. The view does not keep the memory alive,
    so keep `array` as long as the view. Do not keep a view of a pushed gradient: MXNet frees the
    gradient's network buffer when the server's updater returns.
    """
    array.wait_to_read()
    pointer = ctypes.c_void_p()
    check_call(_LIB.MXNDArrayGetData(array.handle, ctypes.byref(pointer)))
    floats = ctypes.c_float * int(numpy.prod(array.shape))
    address = pointer.value or 0  # 0 for an empty array
    return numpy.frombuffer(memoryview(floats.from_address(address)), dtype=numpy.float32)


def array_on(numbers: numpy.ndarray, shape: Tuple[int, ...]) -> Optional[NDArray]:
    """Return an NDArray of `shape` that uses the memory of the numpy array `numbers`.

    Before MXNet 1.5 the result is None, because `nd.from_numpy` does not exist.
    """
    if not hasattr(nd, "from_numpy"):
        return None
    return nd.from_numpy(numbers.view().reshape(shape), zero_copy=True)
