"""Write the optimizer of a worker as JSON, and read this JSON on a server.

MXNet pickles the optimizer, and a pickle can call any function by name. This JSON holds data and
the names of listed classes (`server_classes`). docs/security.md describes the attacker.

None, booleans, strings, whole numbers, finite floats and lists are themselves in JSON. Each other
value is an object with one tag:

==============================  =================================================================
tag                             content
==============================  =================================================================
float, complex                  a string, such as "inf"
bytes, bytearray                base64
tuple, set, frozenset           list of values
dict, OrderedDict               list of [key, value]
defaultdict                     [class of missing values or null, list of [key, value]]
array, scalar                   `Numbers` of an array or a scalar of numpy
dtype                           the name of a dtype of numpy
class                           the name "module:Class" of a class that is a value itself
object                          ["module:Class", {name of an attribute: value}]
same                            the number of an earlier list, dict, set, bytearray, array or
                                object, which this place shares. Such values count from 0, in the
                                order of their beginnings.
==============================  =================================================================

- Keys are numbers, strings, bytes, None, and tuples of these. The reader calls no method of an item
  or key.
- The reader makes an object without a call of its class, and sets the attributes once. An attribute
  must not have the name of a method or property of the class, or of a protocol such as
  __array_interface__. If the class has its own __setstate__ (MXNet's Optimizer, a declared class),
  the reader passes the dict of attributes to this method.
- The number of bytes of an array must match the shape. The reader computes this number
  with Python's unbounded integers.
"""

import base64
import collections
import contextlib
import json
import math
import re
from typing import (
    TYPE_CHECKING,
    Callable,
    Dict,
    Hashable,
    Iterable,
    List,
    Mapping,
    NoReturn,
    Optional,
    Sequence,
    Tuple,
    TypeVar,
    cast,
)

import numpy

from mxcluster.errors import DAMAGED, MxclusterError, some
from mxcluster.model.record import Record, field
from mxcluster.model.shapes import each, matching, one_of, text, whole
from mxcluster.training.kvstore import server_classes

if TYPE_CHECKING:
    from mxnet.optimizer import Optimizer

T = TypeVar("T")
_INTEGERS = ["%sint%d" % (sign, bits) for sign in ("", "u") for bits in (8, 16, 32, 64)]
NUMBERS = ["bool", "float16", "float32", "float64"] + _INTEGERS  # names of dtypes
_TYPES = {name: numpy.dtype(name).type for name in NUMBERS}
_PLAIN = (bool, int, float, complex, str, bytes, type(None)) + tuple(_TYPES.values())
_CONTAINERS = (list, tuple, dict, set, frozenset, bytearray)
# The classes that may be values, besides the listed classes.
_VALUES = server_classes.by_name(
    (object, bool, int, float, complex, str, bytes, numpy.ndarray)
    + _CONTAINERS
    + (collections.OrderedDict, collections.defaultdict)
)
_VALUES.update(("numpy:" + name, cls) for name, cls in _TYPES.items())
_FACTORIES = (None, list, dict, set, int, float)  # of the missing values of a defaultdict
_PROTOCOL = re.compile(r"__|_.*_$")  # attributes that Python, numpy or ctypes look up themselves
_DIGITS = 400  # most digits of a number; the time to read n digits grows with n squared
_DIMENSIONS = 32
_NAMED = 20  # most names in a message
_IN_PYTHON = 1 << 9  # the flag of a class that Python code defines (Py_TPFLAGS_HEAPTYPE)
_BASE64 = matching(r"[A-Za-z0-9+/]*={0,2}", "base64", 2**31)


class Forbidden(MxclusterError):
    """The error for a value that the servers refuse."""


class Numbers(Record):
    """The numbers of an array or scalar of numpy."""

    dtype: str = field(one_of(*NUMBERS))
    shape: Sequence[int] = field(each(whole(), _DIMENSIONS))
    """[] for a scalar."""
    data: str = field(_BASE64)
    """The numbers in C order and little endian."""


def encode(value: object, allowed: Mapping[str, type]) -> str:
    """Return `value` as JSON.

    Args:
        value: an optimizer.
        allowed: {"module:Class": class}, from `server_classes.allowed`.

    Raises Forbidden with the place of a value that has no form in JSON, or with the names of all
    classes that are not `allowed`.
    """
    writer = _Writer(allowed)
    try:
        found = writer.form(value, "optimizer")
        if writer.missing:
            _refuse_classes(writer.missing)
        return json.dumps(found, allow_nan=False)
    except DAMAGED as error:  # too many levels of containers, or digits of a number
        raise Forbidden("the optimizer has no form in JSON: %s" % error) from error


def decode(source: str, allowed: Mapping[str, type]) -> object:
    """Return the value of the JSON `source`.

    Raises Forbidden with the reason for all that `encode` with the same `allowed` does not write.
    """
    try:
        return _Reader(allowed).value(json.loads(source, parse_int=_whole, parse_constant=_whole))
    except DAMAGED as error:
        raise Forbidden(
            "the data is not the JSON of an optimizer (%s: %s): use set_optimizer(), which writes "
            "this JSON" % (type(error).__name__, error)
        ) from error


def check_optimizer(found: object) -> "Optimizer":
    """Return `found` if it is an MXNet Optimizer, else raise Forbidden.

    The ``lr_scheduler`` of the optimizer must be an MXNet LRScheduler or None.
    """
    from mxnet.lr_scheduler import LRScheduler
    from mxnet.optimizer import Optimizer

    if not isinstance(found, Optimizer):
        raise Forbidden(
            "the message must contain an mxnet.optimizer.Optimizer, not a %s: pass an Optimizer to "
            "set_optimizer()" % type(found).__name__
        )
    schedule = getattr(found, "lr_scheduler", None)
    if schedule is not None and not isinstance(schedule, LRScheduler):
        raise Forbidden(
            "the optimizer's lr_scheduler is a %s: use an mxnet.lr_scheduler.LRScheduler or None"
            % type(schedule).__name__
        )
    return found


class _Writer(object):
    """Turns values into JSON. `missing` has the names of classes that are not `allowed`."""

    def __init__(self, allowed: Mapping[str, type]) -> None:
        self._names = {cls: name for name, cls in dict(_VALUES, **allowed).items()}
        self._made = set(allowed.values())
        self._begun: Dict[int, Tuple[int, object]] = {}  # {id: (number, value)}
        self.missing: List[str] = []

    def form(self, value: object, where: str) -> object:
        """Return the JSON of `value`. `where`: the place of the value, for messages."""
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return value
        if isinstance(value, float) and kind is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if kind is complex:
            return {"complex": repr(value)}
        if isinstance(value, numpy.generic):
            return {"scalar": _numbers(numpy.asarray(value), where).encode()}
        if isinstance(value, numpy.dtype):
            return {"dtype": _name(value, where)}
        if isinstance(value, type):
            return {"class": self._class(value)}
        if isinstance(value, (bytes, tuple, frozenset)) and kind in (bytes, tuple, frozenset):
            return {kind.__name__: self._content(value, where)}
        if id(value) in self._begun:
            return {"same": self._begun[id(value)][0]}
        self._begun[id(value)] = len(self._begun), value
        if kind is list:
            return self._content(value, where)
        if kind in (set, bytearray, dict, collections.OrderedDict):
            return {kind.__name__: self._content(value, where)}
        if isinstance(value, collections.defaultdict) and kind is collections.defaultdict:
            factory = self.form(value.default_factory, where + ".default_factory")
            return {"defaultdict": [factory, self._content(value, where)]}
        if isinstance(value, numpy.ndarray) and kind is numpy.ndarray:
            return {"array": _numbers(value, where).encode()}
        if kind.__module__ == "builtins":
            raise Forbidden(
                "%s is a %s, which servers do not accept: use plain data in its place"
                % (where, kind.__name__)
            )
        return {"object": self._object(value, where)}

    def _content(self, value: object, where: str) -> object:
        if isinstance(value, (bytes, bytearray)):
            return base64.b64encode(value).decode("ascii")
        if isinstance(value, dict):
            return [
                [self.form(key, where), self.form(item, "%s[%r]" % (where, key))]
                for key, item in value.items()
            ]
        return self._items(cast(Iterable[object], value), where)

    def _items(self, values: Iterable[object], where: str) -> List[object]:
        return [self.form(item, "%s[%d]" % (where, place)) for place, item in enumerate(values)]

    def _class(self, cls: type) -> str:
        name = self._names.get(cls) or server_classes.name_of(cls)
        if cls not in self._names and name not in self.missing:
            self.missing.append(name)
        return name

    def _object(self, value: object, where: str) -> List[object]:
        """Return the JSON of an object: the name of its class, and its attributes.

        The attributes of an object of a missing class tell further missing classes only.
        """
        name = self._class(type(value))
        if type(value) in self._made:
            state = _state(value, where)
            return [name, {key: self.form(item, where + "." + key) for key, item in state.items()}]
        with contextlib.suppress(Forbidden):
            self._items(_state(value, where).values(), where)
        return [name, {}]


class _Reader(object):
    """Turns JSON into values, with objects of the classes `allowed`."""

    def __init__(self, allowed: Mapping[str, type]) -> None:
        self._allowed = allowed
        self._begun: List[object] = []

    def value(self, form: object) -> object:
        """Return the value of the JSON `form`."""
        if isinstance(form, list):
            values: List[object] = []
            self._begun.append(values)
            values.extend(self._items(form))
            return values
        if not isinstance(form, dict):
            return form
        ((tag, content),) = form.items()
        if tag not in self._READERS:
            raise Forbidden("the tag %r is unknown to servers: use set_optimizer()" % tag[:80])
        return self._READERS[tag](self, content)

    def _items(self, content: object) -> List[object]:
        return [self.value(item) for item in _list(content)]

    def _new(self, value: T) -> T:
        self._begun.append(value)
        return value

    def _filled(self, target: Dict[Hashable, object], content: object) -> object:
        self._begun.append(target)
        for pair in _list(content):
            key, item = _list(pair, 2)
            name = _key(self.value(key))
            target[name] = self.value(item)
        return target

    def _defaultdict(self, content: object) -> object:
        form, items = _list(content, 2)
        factory = self.value(form)
        for known in _FACTORIES:
            if factory is known:
                return self._filled(collections.defaultdict(known), items)
        raise Forbidden(
            "a defaultdict has another default_factory than servers accept: use one of %s"
            % ", ".join(cls.__name__ if cls else "None" for cls in _FACTORIES)
        )

    def _same(self, content: object) -> object:
        return self._begun[whole(0, len(self._begun) - 1)(content)]

    def _class(self, content: object) -> type:
        name = text(content)
        return self._allowed.get(name) or _VALUES.get(name) or _refuse_classes([name])

    def _object(self, content: object) -> object:
        name, attributes = _list(content, 2)
        cls = self._allowed.get(text(name)) or _refuse_classes([text(name)])
        if not _is_made_plainly(cls):
            raise Forbidden(
                "servers make no object of the class %s: use a class without __reduce__() and "
                "__slots__, and without a built-in base class such as dict" % name
            )
        made: object = self._new(object.__new__(cls))
        if not isinstance(attributes, dict):
            raise TypeError("the attributes of an object are a JSON object")
        _check_names(cls, attributes)
        state = {key: self.value(item) for key, item in attributes.items()}
        if _has_own(cls, "__setstate__"):
            getattr(cls, "__setstate__")(made, state)  # noqa: B009  # mypy does not know the method
        else:
            vars(made).update(state)
        return made

    _READERS: Dict[str, Callable[["_Reader", object], object]] = {
        "float": lambda self, content: float(text(content)),
        "complex": lambda self, content: complex(text(content)),
        "bytes": lambda self, content: _bytes(content),
        "bytearray": lambda self, content: self._new(bytearray(_bytes(content))),
        "tuple": lambda self, content: tuple(self._items(content)),
        "set": lambda self, content: self._new(set(map(_key, self._items(content)))),
        "frozenset": lambda self, content: frozenset(map(_key, self._items(content))),
        "dict": lambda self, content: self._filled({}, content),
        "OrderedDict": lambda self, content: self._filled(collections.OrderedDict(), content),
        "defaultdict": _defaultdict,
        "array": lambda self, content: self._new(_array(content)),
        "scalar": lambda self, content: _array(content)[()],
        "dtype": lambda self, content: numpy.dtype(one_of(*NUMBERS)(content)),
        "class": _class,
        "object": _object,
        "same": _same,
    }


def _refuse_classes(missing: Sequence[str]) -> NoReturn:
    """Raise Forbidden with the names of all `missing` classes, and how to declare them."""
    declared = [re.sub("^__main__:", "my_module:", name) for name in missing[:_NAMED]]
    raise Forbidden(
        "the optimizer has objects of %s, which servers do not accept: put a class of your own "
        "into a module beside the script, and declare each class for the job with -e '%s'"
        % (some(list(missing), _NAMED), json.dumps({"server_classes": declared}))
    )


def _state(value: object, where: str) -> Dict[str, object]:
    """Return the attributes of an object, from its class's own __getstate__ if there is one."""
    if _has_own(type(value), "__getstate__"):
        state: object = getattr(value, "__getstate__")()  # noqa: B009
    else:
        state = getattr(value, "__dict__", None)
    if isinstance(state, dict) and all(type(name) is str for name in state):
        return state
    raise Forbidden(
        "%s, a %s, has no dict of attributes: return a dict from __getstate__()"
        % (where, type(value).__name__)
    )


def _has_own(cls: type, name: str) -> bool:
    """Return True if `cls` or a base class other than `object` defines `name`."""
    return any(name in vars(one) for one in cls.__mro__[:-1])


def _is_made_plainly(cls: type) -> bool:
    """Return True if a dict of attributes is the whole content of an object of `cls`."""
    return not any(
        "__reduce__" in vars(one)
        or "__reduce_ex__" in vars(one)
        or vars(one).get("__slots__")
        or not one.__flags__ & _IN_PYTHON
        for one in cls.__mro__[:-1]
    )


def _check_names(cls: type, names: Iterable[str]) -> None:
    """Raise Forbidden if an object of `cls` must not have an attribute with one of the `names`."""
    for name in names:
        if _PROTOCOL.match(name):
            raise Forbidden(
                "the attribute %r of a %s is forbidden: rename this attribute"
                % (name[:80], cls.__name__)
            )
        found = next((vars(one)[name] for one in cls.__mro__ if name in vars(one)), None)
        if callable(found) or hasattr(type(found), "__get__"):
            raise Forbidden(
                "the attribute %r is a method or property of the class %s: rename the attribute"
                % (name, cls.__name__)
            )


def _key(key: object) -> Hashable:
    """Return `key` if it is plain data or a tuple of plain data, else raise Forbidden.

    A comparison of plain keys is fast, and calls no method of the objects in the JSON.
    """
    if type(key) in _PLAIN or (isinstance(key, tuple) and all(type(one) in _PLAIN for one in key)):
        return key
    raise Forbidden(
        "a dict or set has a %s as a key: use only numbers, strings, bytes, None and tuples of "
        "these as keys" % type(key).__name__
    )


def _list(content: object, size: Optional[int] = None) -> List[object]:
    """Return `content` if it is a list, of `size` items if `size` is given. Raises TypeError."""
    if not isinstance(content, list) or size not in (None, len(content)):
        raise TypeError("a list%s is required" % ("" if size is None else " of %d" % size))
    return content


def _whole(digits: str) -> int:
    if len(digits) > _DIGITS:
        raise Forbidden(
            "a number has %d digits: servers accept at most %d digits, so shorten this number in "
            "the optimizer's attributes" % (len(digits), _DIGITS)
        )
    return int(digits)


def _bytes(content: object) -> bytes:
    return base64.b64decode(_BASE64(content))


def _name(dtype: numpy.dtype, where: str) -> str:
    """Return the name of a dtype of numbers. Raises Forbidden for another dtype."""
    if dtype.name not in NUMBERS:
        raise Forbidden(
            "%s has numpy's dtype %s: servers accept dtypes of numbers only, so use such a dtype, "
            "for example float32" % (where, dtype.name)
        )
    return str(dtype.name)


def _numbers(array: numpy.ndarray, where: str) -> Numbers:
    name = _name(array.dtype, where)
    little = array.astype(array.dtype.newbyteorder("<")).tobytes()
    data = base64.b64encode(little).decode("ascii")
    return Numbers(dtype=name, shape=list(array.shape), data=data)


def _array(content: object) -> numpy.ndarray:
    """Return the array of the `Numbers` in `content`. Raises Forbidden if size and shape differ."""
    numbers = Numbers.decode(content)
    data, dtype = _bytes(numbers.data), numpy.dtype(numbers.dtype).newbyteorder("<")
    size = dtype.itemsize
    for length in numbers.shape:
        size *= length
    if size != len(data) or any(length > max(1, len(data)) for length in numbers.shape):
        raise Forbidden(
            "an array of numpy has %d bytes, which do not fit the shape %r: copy the array with "
            "numpy.array()" % (len(data), numbers.shape)
        )
    flat = numpy.frombuffer(data, dtype=dtype) if data else numpy.empty((0,), dtype=dtype)
    return flat.reshape(numbers.shape).astype(numbers.dtype)
