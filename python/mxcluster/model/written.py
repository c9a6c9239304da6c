"""Convert the values that people write in inventories and on command lines, and check them.

A value of `-e name=value` arrives as a string. A value of an inventory arrives with the type that
YAML or INI gives it. A conversion raises ValueError for a value of another kind.
"""

import json
from typing import Callable, List, TypeVar, Union

from mxcluster.model.names import MOST_GPU
from mxcluster.model.shapes import Shape, Wrong
from mxcluster.numbers import to_float, to_int

T = TypeVar("T")

# Bounds of counts and weights. No real job needs more, and no value below ends a program in an
# overflow.
LEAST, MOST = 1e-6, 1000000
MOST_TEXT = 32 << 10  # bytes; Linux gives a program at most 128 KiB for one argument or variable


def converted(cast: Callable[[object], T], check: Callable[[T], object], what: str) -> Shape[T]:
    """Return a shape for a value that a person writes.

    Args: `cast` converts the value; `check` tells if the converted value is allowed; `what`
    describes the allowed values, such as "a number from 1 to 9".
    """

    def shape(value: object) -> T:
        try:
            found = cast(value)
            good = check(found)
        except ValueError:
            good = False
        if not good:
            raise Wrong(what, value)
        return found

    return shape


def whole_number(low: int, high: int, what: str = "") -> Shape[int]:
    """Return a shape for a whole number from `low` to `high`, or the text of such a number."""
    return converted(
        to_int,
        lambda number: low <= number <= high,
        what or "a whole number from %d to %d" % (low, high),
    )


def real_number(low: float, high: float, what: str) -> Shape[float]:
    """Return a shape for a number from `low` to `high`, or the text of such a number."""
    return converted(to_float, lambda number: low <= number <= high, what)


def to_text(value: object) -> str:
    """Return `value` (str, int or float) as a string without spaces at its ends.

    Raises ValueError for a value of another type, and for a string that no program can get: with a
    null character, or with more than MOST_TEXT bytes.
    """
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ValueError("the value must be a string or a number")
    return passable(str(value).strip())


def to_texts(value: object) -> List[str]:
    """Return a list of strings, without empty ones, from a string or a list of strings.

    Raises ValueError for other values.
    """
    items = value if isinstance(value, (list, tuple)) else [value]
    return [text for text in map(to_text, items) if text]


def to_gpus(value: object) -> Union[str, List[int]]:
    """Return 'auto', or a list of GPU numbers from a number, a list or a string such as '0,1'.

    The string '' gives [], which means no GPU. Raises ValueError for wrong or repeated numbers.
    """
    if isinstance(value, str) and value.strip().lower() == "auto":
        return "auto"
    numbers = [to_int(number) for number in _items(value)]
    if len(set(numbers)) != len(numbers) or not all(0 <= one <= MOST_GPU for one in numbers):
        raise ValueError("the value must be a list of different GPU numbers")
    return numbers


def to_numbers(value: object) -> List[float]:
    """Return a list of floats from a number, a list or a string such as '3,1'.

    The string '' gives []. Raises ValueError for a wrong number.
    """
    return [to_float(number) for number in _items(value)]


def _items(value: object) -> List[object]:
    """Return the items of a list, of its JSON text, or of a string such as 'a,b'."""
    if isinstance(value, str):
        text = value.strip()
        if not text.startswith("["):
            return [part for part in text.split(",") if part]
        value = json.loads(text)
    return list(value) if isinstance(value, (list, tuple)) else [value]


def passable(text: str) -> str:
    """Return `text`. Raises ValueError if no program can get it as an argument or variable."""
    if "\0" in text or len(text.encode("utf-8", "surrogatepass")) > MOST_TEXT:
        raise ValueError("the text must have at most %d bytes, none of them 0" % MOST_TEXT)
    return text
