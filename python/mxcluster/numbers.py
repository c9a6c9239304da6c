"""Parse numbers of options and cluster files, and write numbers for people."""

import math
import re
from typing import List

NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
SPAN = 8192  # most numbers of a range


def to_float(value: object) -> float:
    """Return `value`, a number or a decimal string, as a finite float.

    Raises ValueError for any other value, such as nan, inf, True and False.
    """
    if isinstance(value, str) and NUMBER.fullmatch(value.strip()):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError("the value must be a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError("the value must be a finite number")
    return number


def to_int(value: object) -> int:
    """Return an int from an int or a string of decimal digits.

    Raises ValueError for other values, such as 5.5, '5.5', True and 'five'.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, str) and re.fullmatch(r"[+-]?[0-9]+", value.strip()):
        return int(value)
    raise ValueError("the value must be a whole number")


def figure(number: float) -> str:
    """Return a speed as text: two significant digits below 10, a whole number from 10 on."""
    return "%.0f" % number if number >= 10 else "%.2g" % number


def to_span(value: object) -> List[int]:
    """Return the whole numbers of an int, or of a text such as "3" or "0-3".

    Raises ValueError for other values, and for a text with more than SPAN numbers.
    """
    ends = value.split("-") if isinstance(value, str) else [value]
    first, last = to_int(ends[0]), to_int(ends[-1])
    if len(ends) > 2 or not 0 <= last - first < SPAN:
        raise ValueError("the value must be a number, or a range such as 0-3")
    return list(range(first, last + 1))
