"""Define the shapes of the arguments of a task, and decode these arguments.

ansible-core 2.16 makes text of the value of a template, so a number is "5". Newer versions give
subclasses of int, str, list and dict. The shapes accept both forms. A person writes many of these
values, so the shapes also accept what Ansible accepts, such as "yes", or "a,b" for a list.
"""

import os
from typing import Callable, Dict, List, Mapping, Sequence, Type, TypeVar

from ansible.module_utils.parsing.convert_bool import boolean

from mxcluster.errors import BadInput
from mxcluster.model import shapes
from mxcluster.model.job_knobs import Secrets
from mxcluster.model.record import Record, field, record
from mxcluster.model.shapes import Shape, Wrong
from mxcluster.numbers import to_float, to_int

T = TypeVar("T")
R = TypeVar("R", bound=Record)

MOST = 100000  # items of a list or a table


def _converted(convert: Callable[[object], object], shape: Shape[T]) -> Shape[T]:
    """Return `shape` for the result of `convert`, or for the value that `convert` refuses."""

    def converted(value: object) -> T:
        try:
            return shape(convert(value))
        except (TypeError, ValueError):
            return shape(value)

    return converted


def whole(low: int, high: int) -> Shape[int]:
    """Return a shape that accepts a whole number from `low` to `high`, or its decimal digits."""
    return _converted(to_int, shapes.whole(low, high))


def real(low: float, high: float) -> Shape[float]:
    """Return a shape that accepts a number from `low` to `high`, or the number as text."""
    return _converted(to_float, shapes.real(low, high))


flag: Shape[bool] = _converted(boolean, shapes.flag)


def text(value: object) -> str:
    """Return `value`, a string or a number, as a string. Raises Wrong for another value."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return shapes.text(str(value) if is_number else value)


def path(value: object) -> str:
    """Return the path `value` with ~ and environment variables replaced.

    Raises Wrong if `value` is not a string.
    """
    return os.path.expanduser(os.path.expandvars(text(value)))


_texts = shapes.each(text, MOST)


def texts(value: object) -> List[str]:
    """Return a list of strings from a list, or from a string such as "a,b".

    Raises Wrong for another value.
    """
    if not isinstance(value, str):
        return _texts(value)
    return [word.strip() for word in value.split(",") if word.strip()]


def json(value: object) -> Dict[str, object]:
    """Return the object `value` as it is. Raises Wrong if `value` is not an object."""
    return shapes.passing(dict, lambda _: True, "an object")(value)


by_host = shapes.table(text, shapes.optional(json), MOST)


class Planning(Record, strict=True):
    """The arguments of the plugins that plan jobs.

    A person writes the knobs and host variables. The planner decodes them, because a resumed job
    and a sweep first add knobs of their own.
    """

    options: Mapping[str, object] = field(json)
    """The knobs of train.yml as the user gave them."""
    given: Sequence[str] = field(texts, default=[])
    """The names of the knobs that the user gave with -e. These knobs override the knobs of a
    resumed job, even with a default value."""
    secrets: Secrets = field(record(Secrets), default=Secrets())
    inventory: Mapping[str, object] = field(json)
    """The result of the filter mxcluster_inventory."""
    forks: int = field(whole(0, 10**6))
    records_dir: str = field(path)
    runs_dir: object = field(shapes.anything)
    """The knob runs_dir as the user gave it."""
    cwd: str = field(path)
    """The folder at which the user's relative paths begin."""


def decode(cls: Type[R], task: str, arguments: Mapping[str, object]) -> R:
    """Return the arguments of the task `task`, such as mxcluster_plan, as a record of `cls`.

    Raises BadInput with the name of a wrong, unknown or missing argument.
    """
    try:
        return cls.decode(arguments)
    except Wrong as wrong:
        raise BadInput(
            "the arguments of %s are refused: %s. Correct the task, or the variable that gives "
            "this value" % (task, wrong)
        ) from None
