"""Check the shape of data from other hosts. All functions are pure.

A shape is a function of one value. The shape returns the checked value, or raises Wrong. The shape
for strings that people read removes control characters. The shapes for values that control the
program require an exact match.
"""

import ipaddress
import math
import re
from typing import Any, Callable, Dict, List, Optional, cast

Shape = Callable[[Any], Any]

LONGEST = 2000  # maximum number of characters of a string for people
SHOWN = 80  # characters of a refused value in a message
_CONTROL = re.compile(
    r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]"
)


class Wrong(ValueError):
    """Error for a value of the wrong shape, such as "host_keys[0]='x' is not a public ssh key"."""

    def __init__(self, what: str, value: Any, where: str = "") -> None:
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


def passing(test: Callable[[Any], Any], what: str) -> Shape:
    """Return a shape that accepts a value if `test(value)` is true.

    `what`: the description of the shape in the message of Wrong, such as "a string".
    """

    def shape(value: Any) -> Any:
        if not test(value):
            raise Wrong(what, value)
        return value

    return shape


def matching(pattern: str, what: str, most: int = LONGEST) -> Shape:
    """Return a shape that accepts a string if `pattern` (regex) matches the whole string.

    `what`: see `passing`. `most`: the maximum number of characters.
    """
    whole = re.compile(pattern)
    return passing(
        lambda value: isinstance(value, str) and len(value) <= most and whole.fullmatch(value), what
    )


def words(value: Any) -> str:
    """Return `value` as one line of at most LONGEST characters, without control characters.

    Raises Wrong if `value` is not a string.
    """
    if not isinstance(value, str):
        raise Wrong("a string", value)
    return _CONTROL.sub("", value.replace("\t", "    "))[:LONGEST]


def whole(low: int = 0, high: int = 2**63) -> Shape:
    """Return a shape that accepts a whole number from `low` to `high`, both included."""
    return passing(
        lambda value: (
            isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
        ),
        "a whole number from %d to %d" % (low, high),
    )


def anything(value: Any) -> Any:
    """Return `value`: the shape that accepts every value."""
    return value


def number(value: Any) -> float:
    """Return `value` if it is a finite int or float. Raises Wrong for any other value."""
    try:
        if not isinstance(value, bool) and isinstance(value, (int, float)) and math.isfinite(value):
            return value
    except OverflowError:  # an integer of hundreds of digits
        pass
    raise Wrong("a number", value)


text = passing(lambda value: isinstance(value, str), "a string")
flag = passing(lambda value: isinstance(value, bool), "true or false")


def one_of(*values: str) -> Shape:
    """Return a shape that accepts one of the strings `values`."""
    return passing(
        lambda value: isinstance(value, str) and value in values, "one of %s" % ", ".join(values)
    )


def either(empty: Any, shape: Shape) -> Shape:
    """Return a shape that accepts the value `empty`, or a value of the shape `shape`."""
    return lambda value: (
        empty if isinstance(value, type(empty)) and value == empty else shape(value)
    )


def list_of(shape: Shape, most: int = 1000) -> Shape:
    """Return a shape that accepts a list of at most `most` items, each with the shape `shape`."""

    def checked(value: Any) -> List[Any]:
        if not isinstance(value, list) or len(value) > most:
            raise Wrong("a list of at most %d items" % most, value)
        return [_part(shape, item, "[%d]" % index) for index, item in enumerate(value)]

    return checked


def dict_of(key: Shape, shape: Shape, most: int = 1000) -> Shape:
    """Return a shape that accepts a dict of at most `most` items.

    Each key must have the shape `key`, and each value the shape `shape`.
    """

    def checked(value: Any) -> Dict[str, Any]:
        if not isinstance(value, dict) or len(value) > most:
            raise Wrong("an object of at most %d items" % most, value)
        return {
            _part(key, name, ".key"): _part(shape, item, "." + words(str(name))[:SHOWN])
            for name, item in value.items()
        }

    return checked


def fields(
    needed: Dict[str, Shape],
    possible: Optional[Dict[str, Shape]] = None,
    rest: Optional[Shape] = None,
) -> Shape:
    """Return a shape that accepts a dict with all fields of `needed`.

    `needed` and `possible` are {field: shape}. The dict may also have the fields of `possible`. All
    other fields must have the shape `rest`. Without `rest` the shape drops all other fields.
    """

    def checked(value: Any) -> Dict[str, Any]:
        if not isinstance(value, dict):
            raise Wrong("an object", value)
        missing = [name for name in needed if name not in value]
        if missing:
            raise Wrong("an object with %s" % ", ".join(missing), sorted(map(str, value)))
        known = dict(possible or {}, **needed)
        return {
            name: _part(cast(Shape, known.get(name, rest)), item, "." + words(name)[:SHOWN])
            for name, item in value.items()
            if isinstance(name, str) and (rest or name in known)
        }

    return checked


def json_of(depth: int = 4, most: int = 1000) -> Shape:
    """Return a shape that accepts JSON of at most `depth` levels of lists and dicts.

    `most`: the maximum number of items in each list or dict. The shape applies `words` to each
    string.
    """

    def shape(value: Any) -> Any:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return words(value)
        if isinstance(value, (int, float)):
            return number(value)
        if depth:
            if isinstance(value, list):
                return list_of(json_of(depth - 1, most), most)(value)
            if isinstance(value, dict):
                return dict_of(words, json_of(depth - 1, most), most)(value)
        raise Wrong("JSON within the allowed depth", value)

    return shape


def is_json(value: Any, deepest: int) -> bool:
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
            try:
                number(item)
            except Wrong:
                return False
        elif not (item is None or isinstance(item, (str, bool))):
            return False
    return True


def ipv4(value: Any) -> str:
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


def ipv4_interface(value: Any) -> str:
    """Return `value` if it is an IPv4 address with its prefix length, such as 10.0.0.5/24.

    Raises Wrong for any other value.
    """
    address, _, length = value.partition("/") if isinstance(value, str) else ("", "", "")
    if not re.fullmatch(r"[0-9]|[12][0-9]|3[0-2]", length):
        raise Wrong("an IPv4 address with a prefix length, such as 10.0.0.5/24", value)
    return "%s/%s" % (ipv4(address), length)


def _part(shape: Shape, value: Any, place: str) -> Any:
    try:
        return shape(value)
    except Wrong as wrong:
        raise wrong.inside(place) from None
