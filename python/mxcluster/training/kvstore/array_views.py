"""Share memory between numpy and MXNet arrays, without a copy."""

import ctypes

import numpy
from mxnet import nd
from mxnet.base import _LIB, check_call


def view(array):
    """Return a flat float32 numpy view, shape (size,), of the CPU NDArray `array`.

    The function waits for pending writes first. The view does not keep the memory alive, so keep
    `array` as well. Never keep a view of a pushed gradient: its network buffer is freed when the
    server's updater returns.
    """
    array.wait_to_read()
    pointer = ctypes.c_void_p()
    check_call(_LIB.MXNDArrayGetData(array.handle, ctypes.byref(pointer)))
    return numpy.frombuffer(
        (ctypes.c_float * int(numpy.prod(array.shape))).from_address(pointer.value),
        dtype=numpy.float32,
    )


def array_on(numbers, shape):
    """Return an NDArray of `shape` in the memory of `numbers` (numpy), or None before MXNet 1.5."""
    if not hasattr(nd, "from_numpy"):
        return None
    return nd.from_numpy(numbers.view().reshape(shape), zero_copy=True)
