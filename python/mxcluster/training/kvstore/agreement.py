"""Compare the optimizers and keys that the workers report to a server. Pure."""

from typing import Any, Dict, List, Optional, Tuple

from mxcluster.errors import BadInput
from mxcluster.node.mxnet_types import Optimizer

Json = Dict[str, Any]

_COUNTS = ("num_update", "begin_num_update", "_index_update_count", "_all_index_update_counts")


class Agreement(object):
    """The first reports of the workers, which all later reports must match.

    A report holds a worker's string keys in the order of init(), the worker's optimizer, and the
    optimizer's version. The first optimizer that a worker sets has version 1.
    """

    def __init__(self) -> None:
        # (key, the first worker that reported this key)
        self._names: List[Tuple[str, str]] = []
        self._optimizer: Json = {}
        self._number, self._teller = 0, ""

    def is_new(self, sender: str, told: Json, optimizer: Optional[Optimizer]) -> bool:
        """Return True if a report holds a newer optimizer, which the servers must use from now on.

        Args:
            sender: the worker's name, such as "worker-0".
            told: {"number": the optimizer's version (int), "names": [string key, ...]}.
            optimizer: the optimizer, or None if the worker has already reported this optimizer.

        Raises BadInput with the names of both workers if a key or a plain attribute of the
        optimizer differs from an earlier report.
        """
        for place, name in enumerate(told["names"]):
            if place == len(self._names):
                self._names.append((name, sender))
            known, teller = self._names[place]
            if name != known:
                raise BadInput(
                    "key number %d is %r on %s, but %r on %s: call init() for the same keys in the "
                    "same order on all workers" % (place, name, sender, known, teller)
                )
        if optimizer is None:  # The worker has reported this optimizer before.
            return False
        if told["number"] > self._number:
            self._number, self._optimizer, self._teller = told["number"], _plain(optimizer), sender
            return True
        mine = _plain(optimizer)
        for name in (
            sorted(set(mine) | set(self._optimizer)) if told["number"] == self._number else ()
        ):
            if mine.get(name) != self._optimizer.get(name):
                raise BadInput(
                    "the optimizer of %s has %s=%r, but the optimizer of %s has %r: give all "
                    "workers the same value"
                    % (sender, name, mine.get(name), self._teller, self._optimizer.get(name))
                )
        return False


def _plain(made: Any) -> Json:
    """Return {name: value} of the plain attributes of `made`, an optimizer or a schedule.

    Plain values are numbers, strings, None, and lists, tuples and dicts of plain values. The result
    includes the class name, and the attributes of the optimizer's schedule.
    """
    found = {
        name: value
        for name, value in vars(made).items()
        if name not in _COUNTS and _is_plain(value)
    }
    schedule = getattr(made, "lr_scheduler", None)
    if schedule is not None:
        found.update(("lr_scheduler." + name, value) for name, value in _plain(schedule).items())
    return dict(found, **{"class": type(made).__name__})


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(_is_plain(key) and _is_plain(part) for key, part in value.items())
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    is_number_of_numpy = hasattr(value, "dtype") and not getattr(value, "shape", True)
    return value is None or isinstance(value, (bool, int, float, str)) or is_number_of_numpy
