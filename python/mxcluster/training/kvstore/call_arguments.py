"""The arguments of a kv-store's calls: keys, and the arrays of each key."""

from typing import List, Tuple, Union

from mxcluster.node.mxnet_types import NDArray

Key = Union[str, int]  # a key in the script
# The arguments `key` and `value` of a call: one key with its arrays, or a list of each.
Keys = Union[Key, List[str], List[int], Tuple[Key, ...]]
Arrays = Union[NDArray, List[NDArray], Tuple[NDArray, ...]]  # one array, or one for each device
Values = Union[Arrays, List[Arrays], Tuple[Arrays, ...]]


def pairs(key: Keys, value: Values) -> List[Tuple[Key, Arrays]]:
    """Return [(key, arrays), ...] for the arguments `key` and `value` of a call.

    The item ``arrays`` is one NDArray, or a list with one NDArray for each device.
    """
    if isinstance(key, (list, tuple)):
        return list(zip(key, value))
    return [(key, value)]


def first(arrays: Arrays) -> NDArray:
    """Return `arrays` if it is one array, or the first array of the list `arrays`."""
    return arrays[0] if isinstance(arrays, (list, tuple)) else arrays
