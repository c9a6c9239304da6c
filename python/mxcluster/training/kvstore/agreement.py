"""Compare the optimizers and keys that the workers report to a server. Pure."""

from typing import Dict, List, Optional, Tuple

from mxcluster.errors import BadInput
from mxcluster.model.server_messages import Report
from mxcluster.node.mxnet_types import Optimizer

# {attribute of an optimizer: its plain value}. Classes of MXNet and of scripts choose the names.
Attributes = Dict[str, object]

_COUNTS = ("num_update", "begin_num_update", "_index_update_count", "_all_index_update_counts")


class Agreement(object):
    """The first reports of the workers, which all later reports must match."""

    def __init__(self) -> None:
        # (key, the first worker that reported this key)
        self._names: List[Tuple[str, str]] = []
        # the newest optimizer, its version, and the first worker that reported it
        self._attributes: Attributes = {}
        self._number, self._reporter = 0, ""

    def is_new(self, sender: str, report: Report, optimizer: Optional[Optimizer]) -> bool:
        """Return True if `report` has a newer optimizer, which the servers must use from now on.

        Args:
            sender: the worker's name, such as "worker-0".
            report: the worker's report.
            optimizer: the optimizer of the report, or None if the report has none.

        Raises BadInput with the names of both workers if a key or a plain attribute of the
        optimizer differs from an earlier report.
        """
        for place, name in enumerate(report.names):
            if place == len(self._names):
                self._names.append((name, sender))
            known, reporter = self._names[place]
            if name != known:
                raise BadInput(
                    "key number %d is %r on %s, but %r on %s: call init() for the same keys in the "
                    "same order on all workers" % (place, name, sender, known, reporter)
                )
        if optimizer is None or report.number < self._number:
            return False
        attributes = _plain(optimizer)
        if report.number > self._number:
            self._number, self._attributes, self._reporter = report.number, attributes, sender
            return True
        for name in sorted({*attributes, *self._attributes}):
            if attributes.get(name) != self._attributes.get(name):
                raise BadInput(
                    "the optimizer of %s has %s=%r, but the optimizer of %s has %r: give all "
                    "workers the same value"
                    % (
                        sender,
                        name,
                        attributes.get(name),
                        self._reporter,
                        self._attributes.get(name),
                    )
                )
        return False


def _plain(item: object) -> Attributes:
    """Return the plain attributes of `item`, an optimizer or a schedule, with its class name.

    Plain values are numbers, strings, None, and lists, tuples and dicts of plain values. The result
    includes the attributes of the optimizer's schedule.
    """
    found = {
        name: value
        for name, value in vars(item).items()
        if name not in _COUNTS and _is_plain(value)
    }
    schedule = getattr(item, "lr_scheduler", None)
    if schedule is not None:
        found.update(("lr_scheduler." + name, value) for name, value in _plain(schedule).items())
    found["class"] = type(item).__name__
    return found


def _is_plain(value: object) -> bool:
    if isinstance(value, dict):
        return all(_is_plain(key) and _is_plain(part) for key, part in value.items())
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    is_number_of_numpy = hasattr(value, "dtype") and not getattr(value, "shape", True)
    return value is None or isinstance(value, (bool, int, float, str)) or is_number_of_numpy
