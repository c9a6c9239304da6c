"""Check and convert the values of JSON. All functions are pure.

A shape is a function of one value. The shape returns the value with its type, or raises Wrong. The
shape for strings that people read removes control characters. The shapes for values that control
the program require an exact match.
"""

import ipaddress
import re
import sys
from typing import Callable, Dict, List, Optional, Type, TypeVar

T = TypeVar("T")
Shape = Callable[[object], T]

LONGEST = 2000  # maximum number of characters of a string for people
# The largest float. JSON of Python also has larger whole numbers, and infinities.
LARGEST = sys.float_info.max
SHOWN = 80  # characters of a refused value in a message
_CONTROL = re.compile(
    r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]"
)


class Wrong(ValueError):
    """Error for a value of the wrong shape, such as "host_keys[0]='x' is not a public ssh key"."""

    def __init__(self, what: str, value: object, where: str = "") -> None:
        try:
            text = _CONTROL.sub("?", repr(value))
        except (RecursionError, ValueError):  # hundreds of levels, thousands of digits
            text = "(%s)" % type(value).__name__
        self.what, self.where = what, where
        self.shown = text if len(text) <= SHOWN else text[:SHOWN] + "..."
        super(Wrong, self).__init__("%s=%s is not %s" % (where or "value", self.shown, what))

    def inside(self, place: str) -> "Wrong":
        """Put `place`, such as "[0]" or ".name", before the error's place. Return this error."""
        self.where = place + self.where
        self.args = ("%s=%s is not %s" % (self.where.lstrip("."), self.shown, self.what),)
        return self


def passing(kind: Type[T], test: Callable[[T], object], what: str) -> Shape[T]:
    """Return a shape that accepts a value of the class `kind` if `test(value)` is true.

    `what`: the description of the shape in the message of Wrong,
    such as "a string".
    """
    other = bool if kind is int else None  # True is an int for Python

    def shape(value: object) -> T:
        if isinstance(value, kind) and type(value) is not other and test(value):
            return value
        raise Wrong(what, value)

    return shape


def matching(pattern: str, what: str, most: int = LONGEST) -> Shape[str]:
    """Return a shape that accepts a string if `pattern` (regex) matches the whole string.

    `what`: see `passing`. `most`: the maximum number of characters.
    """
    # `re` compiles the pattern at the first use and keeps it. A program uses few of the patterns.
    return passing(str, lambda value: len(value) <= most and re.fullmatch(pattern, value), what)


def words(value: object) -> str:
    """Return `value` as one line of at most LONGEST characters, without control characters.

    Raises Wrong if `value` is not a string.
    """
    if not isinstance(value, str):
        raise Wrong("a string", value)
    return _CONTROL.sub("", value.replace("\t", "    "))[:LONGEST]


def whole(low: int = 0, high: int = 2**63) -> Shape[int]:
    """Return a shape that accepts a whole number from `low` to `high`, both included."""
    return passing(
        int, lambda value: low <= value <= high, "a whole number from %d to %d" % (low, high)
    )


def real(low: float, high: float) -> Shape[float]:
    """Return a shape that accepts an int or float from `low` to `high`, both included."""
    what = "a number from %g to %g" % (low, high)

    def shape(value: object) -> float:
        # Ansible has subclasses of int and float. The comparison is false for NaN.
        if isinstance(value, (int, float)) and type(value) is not bool and low <= value <= high:
            return value
        raise Wrong(what, value)

    return shape


number = real(-LARGEST, LARGEST)
# Unix seconds. The year 5138 ends before 1e11 s. datetime accepts such a time.
unix_time = real(0, 1e11)


def figure(value: object) -> float:
    """Return `value` if it is an int or float, also NaN or an infinity. Raises Wrong otherwise."""
    if isinstance(value, (int, float)) and value is not True and value is not False:
        return value
    raise Wrong("a number", value)


text = passing(str, lambda value: True, "a string")
flag = passing(bool, lambda value: True, "true or false")


def one_of(*values: str) -> Shape[str]:
    """Return a shape that accepts one of the strings `values`."""
    return passing(str, lambda value: value in values, "one of %s" % ", ".join(values))


def optional(shape: Shape[T]) -> Shape[Optional[T]]:
    """Return a shape that accepts None, or a value of the shape `shape`."""
    return lambda value: None if value is None else shape(value)


def or_empty(shape: Shape[str]) -> Shape[str]:
    """Return a shape that accepts "", or a string of the shape `shape`."""
    return lambda value: "" if value == "" and isinstance(value, str) else shape(value)


def each(shape: Shape[T], most: int = 1000) -> Shape[List[T]]:
    """Return a shape that accepts a list of at most `most` items, each with the shape `shape`."""
    what = "a list of at most %d items" % most

    def checked(value: object) -> List[T]:
        if not isinstance(value, list) or len(value) > most:
            raise Wrong(what, value)
        found: List[T] = []
        try:
            for item in value:
                found.append(shape(item))
        except Wrong as wrong:
            raise wrong.inside("[%d]" % len(found)) from None
        return found

    return checked


def table(key: Shape[str], shape: Shape[T], most: int = 1000) -> Shape[Dict[str, T]]:
    """Return a shape that accepts an object of at most `most` items.

    Each name must have the shape `key`, and each value the shape `shape`.
    """
    what = "an object of at most %d items" % most

    def checked(value: object) -> Dict[str, T]:
        if not isinstance(value, dict) or len(value) > most:
            raise Wrong(what, value)
        found: Dict[str, T] = {}
        for name, item in value.items():
            place = ".key"
            try:
                known = key(name)
                place = "." + words(str(name))[:SHOWN]
                found[known] = shape(item)
            except Wrong as wrong:
                raise wrong.inside(place) from None
        return found

    return checked


def anything(value: object) -> object:
    """Return `value`: the shape that accepts every value."""
    return value


def json_of(depth: int = 4, most: int = 1000) -> Shape[object]:
    """Return a shape that accepts JSON of at most `depth` levels of lists and dicts.

    `most`: the maximum number of items in each list or dict. The shape applies `words` to each
    string.
    """

    def shape(value: object) -> object:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return words(value)
        if isinstance(value, (int, float)):
            return real(-LARGEST, LARGEST)(value)
        if depth:
            if isinstance(value, list):
                return each(json_of(depth - 1, most), most)(value)
            if isinstance(value, dict):
                return table(words, json_of(depth - 1, most), most)(value)
        raise Wrong("JSON within the allowed depth", value)

    return shape


def is_json(value: object, deepest: int) -> bool:
    """Return True if `value` is JSON of at most `deepest` levels, without NaN and infinities.

    The function holds the open values in a list. Recursion would fail at hundreds of levels.
    """
    waiting = [(value, 0)]
    while waiting:
        item, depth = waiting.pop()
        if isinstance(item, (list, dict)):
            if depth == deepest:
                return False
            if isinstance(item, dict) and not all(isinstance(name, str) for name in item):
                return False
            inner = item.values() if isinstance(item, dict) else item
            waiting += [(one, depth + 1) for one in inner]
        elif isinstance(item, (int, float)) and not isinstance(item, bool):
            if not -LARGEST <= item <= LARGEST:  # also true for NaN
                return False
        elif not (item is None or isinstance(item, (str, bool))):
            return False
    return True


def json_object(deepest: int) -> Shape[Dict[str, object]]:
    """Return a shape that accepts an object of at most `deepest` levels (see `is_json`).

    The object stays as it is, with all control characters.
    """
    what = "a JSON object of at most %d levels" % deepest

    def shape(value: object) -> Dict[str, object]:
        if isinstance(value, dict) and is_json(value, deepest):
            return value
        raise Wrong(what, value)

    return shape


def ipv4(value: object) -> str:
    """Return `value` if it is the dotted IPv4 address of one host.

    Raises Wrong for any other value.
    """
    try:
        address = ipaddress.IPv4Address(value if isinstance(value, str) else None)
    except ValueError:
        address = None
    if (
        address is None
        or address.is_multicast
        or address.is_unspecified
        or str(address) == "255.255.255.255"
    ):
        raise Wrong("the IPv4 address of a host", value)
    return str(address)


def ipv4_interface(value: object) -> str:
    """Return `value` if it is an IPv4 address with its prefix length, such as 10.0.0.5/24.

    Raises Wrong for any other value.
    """
    address, _, length = value.partition("/") if isinstance(value, str) else ("", "", "")
    if not re.fullmatch(r"[0-9]|[12][0-9]|3[0-2]", length):
        raise Wrong("an IPv4 address with a prefix length, such as 10.0.0.5/24", value)
    return "%s/%s" % (ipv4(address), length)
