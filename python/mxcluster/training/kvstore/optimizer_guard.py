"""Read the optimizer that a worker has pickled, and refuse all other pickles.

MXNet's servers unpickle every message, and a pickle can call any function by name. So this module
does not use Python's pickle module. A small interpreter reads pickle protocol 0, which MXNet
writes, and builds values of listed types. docs/security.md describes the attacker.

- A pickle may name only listed (module, name) pairs, and cannot read attributes of objects.
- The reader adds items only to objects of exactly the classes list, dict, OrderedDict and
  defaultdict. Keys are numbers, strings, bytes, None, and tuples of these. The reader calls no
  method of an item or key.
- The reader makes objects of listed classes without a call of the class. The reader sets the
  attributes of an object once, from a dict. An attribute must not have the name of a method or
  property of the class, or of a protocol such as __array_interface__. If the class has its own
  __setstate__ (MXNet's Optimizer, a declared class), the reader passes the dict to this method.
- An array holds numbers, copied from bytes. The number of bytes must match the array's shape. The
  reader computes this size with Python's unbounded integers.
"""

import _compat_pickle
import collections
import contextlib
import importlib
import json
import os
import re
import sys
from typing import (
    Any,
    Callable,
    Dict,
    FrozenSet,
    Hashable,
    Iterable,
    List,
    Sequence,
    Set,
    Tuple,
    Type,
)

import numpy

from mxcluster.errors import BadInput, MxclusterError, some
from mxcluster.package import SCRIPT_FOLDER

# The modules of MXNet's own optimizers and schedules, with all modules in them. `import mxnet`
# loads all of them, so a worker and a server of one MXNet allow the same classes. MXNet defines
# further optimizers elsewhere, which only the process of the script has imported.
_OF_MXNET = re.compile(r"mxnet\.(optimizer|lr_scheduler)(\.|$)")

# Opcodes of pickle that the reader refuses, with their names for messages.
_OTHERS = {
    b"S": "STRING",
    b"i": "INST",
    b"P": "PERSID",
    b"\x80": "PROTO",
    b"\x8c": "SHORT_BINUNICODE",
    b"\x82": "EXT1",
}
_NUMBERS = (
    "float16",
    "float32",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
)
# Opcodes with an argument that ends with the line, besides GLOBAL with two of them.
_WITH_LINE = (b"F", b"I", b"L", b"V", b"g", b"p")
_RECONSTRUCTOR = ("copyreg", "_reconstructor")
_NAMED = 20  # most names in a message
_PLAIN_DTYPE = re.compile(r"[biuf][1248]$")
_PROTOCOL = re.compile(r"__|_.*_$")  # attributes that Python, numpy or ctypes look up themselves
_DIGITS = 400  # most digits of a number; the time to read n digits grows with n squared
_DIMENSIONS = 32
_NUMBER_TYPES = (
    (bool, int, float, complex) + tuple(getattr(numpy, name) for name in _NUMBERS) + (numpy.bool_,)
)
_PLAIN = _NUMBER_TYPES + (str, bytes, type(None))


class Forbidden(MxclusterError):
    """The error for a pickle with an element that the servers refuse."""


class Names(object):
    """The values and classes that a pickle may name.

    Attributes:
        values: {(module, name): object}.
        made: the frozenset of the classes whose objects the pickle may make and fill.
    """

    def __init__(self, values: Dict[Tuple[str, str], Any], made: Iterable[type]) -> None:
        self.values, self.made = values, frozenset(made)


def declared_classes() -> List[str]:
    """Return the knob `server_classes` as strings "module:Class".

    If the list is not empty, put the folder of the job's script first into sys.path.
    """
    declared = [text for text in os.environ.get("MXCLUSTER_SERVER_CLASSES", "").split(",") if text]
    folder = os.path.join(os.environ.get("MXCLUSTER_JOB_DIR", "."), SCRIPT_FOLDER)
    if declared and os.path.isdir(folder) and folder not in sys.path:
        sys.path.insert(0, folder)
    return declared


def names(declared: Sequence[str] = ()) -> Names:
    """Return the Names that allow MXNet's optimizers and schedules, and the classes `declared`.

    Args:
        declared: strings "module:Class".

    The result is the same on workers and servers, whatever a script has imported. Raises BadInput
    if a string has another form, or if the import of a class fails.
    """
    from mxnet.lr_scheduler import LRScheduler
    from mxnet.optimizer import Optimizer

    classes = [
        cls
        for base in (Optimizer, LRScheduler)
        for cls in _family(base)
        if _OF_MXNET.match(cls.__module__)
    ]
    return names_of(classes + [declared_class(text) for text in declared])


def names_of(classes: Sequence[type]) -> Names:
    """Return the Names that allow plain data, and objects of `classes`."""
    values: Dict[Tuple[str, str], Any] = {(cls.__module__, cls.__name__): cls for cls in classes}
    values.update(_data())
    return Names(values, classes)


def declared_class(text: str) -> type:
    """Return the class that `text` ("module:Class") names.

    Raises BadInput if `text` has another form, or if the module defines no such class.
    """
    module, _, name = text.partition(":")
    if not re.match(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$", module) or not re.match(
        r"[A-Za-z_]\w*$", name
    ):
        raise BadInput(
            "%r in server_classes must be module:Class, with a class at the top level of the "
            "module: correct this entry, for example to my_module:MyOptimizer" % (text,)
        )
    try:
        found = vars(importlib.import_module(module)).get(name)
    except Exception as error:
        raise BadInput(
            "the module of %r in server_classes cannot be imported (%s: %s): put the module beside "
            "the script, or install the module on the nodes" % (text, type(error).__name__, error)
        ) from error
    if not isinstance(found, type) or (found.__module__, found.__name__) != (module, name):
        raise BadInput(
            "the module %s in server_classes defines no class %r%s"
            % (
                module,
                name,
                ": use %s:%s, the defining module and class" % (found.__module__, found.__name__)
                if isinstance(found, type)
                else ": correct the name, or define the class at the top level of the module",
            )
        )
    return found


def read(data: bytes, allowed: Names) -> Any:
    """Return the object in the pickle `data`, which may use only the names `allowed`.

    Raises Forbidden, with the reason, if the pickle uses other names or is not valid.
    """
    try:
        return _Reader(data, allowed).read()
    except (ValueError, IndexError, KeyError, TypeError, OverflowError) as error:
        raise Forbidden(
            "the data is not a complete pickle of protocol 0 (%s: %s): use pickle.dumps(optimizer, "
            "0)" % (type(error).__name__, error)
        ) from error


def check_optimizer(found: Any) -> Any:
    """Return `found` if it is an MXNet Optimizer, else raise Forbidden.

    The ``lr_scheduler`` of the optimizer must be an MXNet LRScheduler or None.
    """
    from mxnet.lr_scheduler import LRScheduler
    from mxnet.optimizer import Optimizer

    if not isinstance(found, Optimizer):
        raise Forbidden(
            "the pickle must contain an mxnet.optimizer.Optimizer, not a %s: pass an Optimizer to "
            "set_optimizer()" % type(found).__name__
        )
    schedule = getattr(found, "lr_scheduler", None)
    if schedule is not None and not isinstance(schedule, LRScheduler):
        raise Forbidden(
            "the optimizer's lr_scheduler is a %s: use an mxnet.lr_scheduler.LRScheduler or None"
            % type(schedule).__name__
        )
    return found


class _Call(object):
    """A function that a pickle may call (opcode REDUCE), but may not store in other data."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function


class _Unfilled(object):
    """A numpy array without numbers, which only the opcode BUILD accepts and fills."""


class _Reader(object):
    """An interpreter that reads the pickle `data`, opcode by opcode.

    The pickle may use only the names `allowed`.
    """

    def __init__(self, data: bytes, allowed: Names) -> None:
        self._data, self._at, self._allowed = data, 0, allowed
        self._stack: List[Any] = []
        self._marks: List[int] = []
        self._memo: Dict[str, Any] = {}
        self._filled: Dict[int, Any] = {}

    def read(self) -> Any:
        """Return the object that the pickle builds.

        Raises Forbidden for an opcode outside _STEPS, or for a name that is not allowed.
        """
        while True:
            code = self._data[self._at : self._at + 1]
            self._at += 1
            if code == b".":
                return self._taken()
            if code not in self._STEPS:
                raise Forbidden(
                    "the pickle has the opcode %s: servers accept only pickles of protocol 0, so "
                    "use pickle.dumps(optimizer, 0)" % _OTHERS.get(code, repr(code))
                )
            self._STEPS[code](self)

    def _line(self) -> bytes:
        end = self._data.index(b"\n", self._at)
        text, self._at = self._data[self._at : end], end + 1
        return text

    def _number(self) -> str:
        text = self._line().decode("ascii")
        if len(text) > _DIGITS:
            raise Forbidden(
                "the pickle has a number of %d digits: servers accept at most %d digits, so "
                "shorten this number in the optimizer's attributes" % (len(text), _DIGITS)
            )
        return text

    def _push(self, value: Any) -> None:
        self._stack.append(value)

    def _pop(self) -> Any:
        """Remove and return the top value of the stack.

        Raises ValueError if the stack has no value above the last mark.
        """
        if len(self._stack) <= (self._marks[-1] if self._marks else 0):
            raise ValueError("the stack is empty")
        return self._stack.pop()

    def _taken(self) -> Any:
        """Remove and return the top value of the stack, after a check by `_whole`."""
        return _whole(self._pop())

    def _items(self) -> List[Any]:
        """Remove the last mark and all values above the mark. Return these values."""
        start = self._marks.pop()
        items = self._stack[start:]
        del self._stack[start:]
        return [_whole(item) for item in items]

    def _mark(self) -> None:
        self._marks.append(len(self._stack))

    def _pop_or_unmark(self) -> None:
        if self._marks and self._marks[-1] == len(self._stack):
            self._marks.pop()
        else:
            self._pop()

    def _float(self) -> None:
        self._push(float(self._number()))

    def _int(self) -> None:
        text = self._number()
        self._push({"00": False, "01": True}[text] if text in ("00", "01") else int(text))

    def _long(self) -> None:
        self._push(int(self._number().rstrip("L")))

    def _text(self) -> None:
        self._push(self._line().decode("raw-unicode-escape"))

    def _list(self) -> None:
        self._push(self._items())

    def _tuple(self) -> None:
        self._push(tuple(self._items()))

    def _dict(self) -> None:
        items = self._items()
        if len(items) % 2:
            raise ValueError("a key without a value")
        self._push({_key(key): value for key, value in zip(items[::2], items[1::2])})

    def _append(self) -> None:
        item, target = self._taken(), self._last()
        if type(target) is not list:
            raise Forbidden(
                "the pickle appends to a %s: servers accept appends to a list only, so keep the "
                "items in an attribute that is a list" % _described(target)
            )
        target.append(item)

    def _set_item(self) -> None:
        value, key, target = self._taken(), self._taken(), self._last()
        if type(target) not in (dict, collections.OrderedDict, collections.defaultdict):
            raise Forbidden(
                "the pickle sets an item of a %s: servers accept items of a dict only, so keep the "
                "items in an attribute that is a dict" % _described(target)
            )
        target[_key(key)] = value

    def _last(self) -> Any:
        value = self._pop()
        self._push(value)
        return value

    def _put(self) -> None:
        self._memo[self._number()] = self._last()

    def _get(self) -> None:
        self._push(_one(self._memo[self._number()]))

    def _copy(self) -> None:
        self._push(_one(self._last()))

    def _global(self) -> None:
        pair = self._pair()
        if pair == _RECONSTRUCTOR:
            self._push(_Call(self._new))
            return
        if pair not in self._allowed.values:
            missing = list(dict.fromkeys([pair] + self._rest_missing()))
            called = [
                "my_module:" + name if of == "__main__" else of + ":" + name for of, name in missing
            ]
            raise Forbidden(
                "the pickle names %s, which servers do not accept: put a class of your own into a "
                "module beside the script, and declare each class for the job with -e '%s'"
                % (
                    some([":".join(one) for one in missing], _NAMED),
                    json.dumps({"server_classes": called[:_NAMED]}),
                )
            )
        self._push(self._allowed.values[pair])

    def _pair(self) -> Tuple[str, str]:
        """Read and return the (module, name) after the opcode GLOBAL, as Python 3 names them."""
        module, name = self._line().decode("utf-8"), self._line().decode("utf-8")
        return _compat_pickle.NAME_MAPPING.get((module, name)) or (
            _compat_pickle.IMPORT_MAPPING.get(module, module),
            name,
        )

    def _rest_missing(self) -> List[Tuple[str, str]]:
        """Return the names in the rest of the pickle that are not allowed, and build no object.

        The list ends where the pickle ends, or where it is damaged. Afterwards the reader cannot go
        on.
        """
        missing = []
        with contextlib.suppress(ValueError):  # an incomplete line, or one that is no text
            while self._data[self._at : self._at + 1] in self._STEPS:
                code = self._data[self._at : self._at + 1]
                self._at += 1
                if code == b"c":
                    missing.append(self._pair())
                elif code in _WITH_LINE:
                    self._line()
        return [
            pair for pair in missing if pair != _RECONSTRUCTOR and pair not in self._allowed.values
        ]

    def _reduce(self) -> None:
        arguments, function = self._taken(), self._pop()
        if type(arguments) is not tuple:
            raise Forbidden(
                "the pickle calls a function with a %s: servers accept only a tuple of arguments, "
                "so return such a tuple from __reduce__()" % _described(arguments)
            )
        # A pickle may name some classes as values, and also call them. A call runs our function in
        # place of the class.
        function = _CALLED.get(function, function) if isinstance(function, type) else function
        if type(function) is not _Call:
            raise Forbidden(
                "the pickle calls %s, which servers do not accept: use plain data in place of the "
                "object that needs this call" % _shown(function)
            )
        self._push(function.function(*arguments))

    def _new(self, cls: Any, base: Any, state: Any) -> Any:
        """Return an object of `cls` without attributes.

        Args: `cls`, `base` and `state` the arguments of copyreg._reconstructor in the pickle.

        Raises Forbidden if the pickle may not make objects of `cls`.
        """
        if (
            not isinstance(cls, type)
            or cls not in self._allowed.made
            or base is not object
            or state is not None
        ):
            raise Forbidden(
                "the pickle makes an object of %s: servers accept only objects of MXNet and of "
                "server_classes. Declare the class there, without a built-in base class such as "
                "dict, or use plain data in place of the object" % _shown(cls)
            )
        return object.__new__(cls)

    def _build(self) -> None:
        state, target = self._taken(), self._pop()
        if type(target) is _Unfilled:
            array = _filled(state)
            self._memo = {
                number: array if value is target else value for number, value in self._memo.items()
            }
            target = array
        elif type(target) in self._allowed.made:
            self._fill(target, state)
        elif not (
            _is_plain(target)
            and type(state) is tuple
            and len(state) > 1
            and type(state[1]) is str
            and state[1] in ("<", "|")
        ):
            # The state of a dtype is a byte order. The reader accepts only this node's byte order.
            raise Forbidden(
                "the pickle sets the state of a %s to a %s, which servers do not accept: use plain "
                "data in place of this object" % (_described(target), _described(state))
            )
        self._push(target)

    def _fill(self, target: Any, state: Any) -> None:
        cls = type(target)
        if type(state) is not dict or id(target) in self._filled:
            raise Forbidden(
                "the pickle sets the state of a %s twice: servers accept one state for each "
                "object, so remove __reduce__() from the class" % _described(target)
                if id(target) in self._filled
                else "the pickle sets the state of a %s to a %s, not to a dict: return a dict from "
                "__getstate__()" % (_described(target), _described(state))
            )
        for name in state:
            if type(name) is not str or _PROTOCOL.match(name):
                raise Forbidden(
                    "the pickle sets the forbidden attribute %s of a %s: rename this attribute"
                    % (_shown(name), _described(target))
                )
            found = next((vars(one)[name] for one in cls.__mro__ if name in vars(one)), None)
            if callable(found) or hasattr(type(found), "__get__"):
                raise Forbidden(
                    "the pickle sets %r, a method or property of the class %s: rename the attribute"
                    % (name, _described(target))
                )
        self._filled[id(target)] = target  # kept, so that no other object gets this id
        if next((True for one in cls.__mro__[:-1] if "__setstate__" in vars(one)), False):
            target.__setstate__(dict(state))
        else:
            vars(target).update(state)

    _STEPS = {
        b"(": _mark,
        b"0": _pop_or_unmark,
        b"2": _copy,
        b"F": _float,
        b"I": _int,
        b"L": _long,
        b"N": lambda self: self._push(None),
        b"V": _text,
        b"a": _append,
        b"b": _build,
        b"c": _global,
        b"d": _dict,
        b"g": _get,
        b"l": _list,
        b"p": _put,
        b"R": _reduce,
        b"s": _set_item,
        b"t": _tuple,
    }


def _described(value: Any) -> str:
    return type(value).__name__


def _shown(value: Any) -> str:
    """Return `value` as a string for a message, without a call of the value's own methods."""
    return repr(value) if type(value) in _PLAIN or type(value) is type else "a " + _described(value)


def _whole(value: Any) -> Any:
    """Return `value` if it is data. Raise Forbidden for a `_Call` or an `_Unfilled`."""
    if type(value) is _Call:
        raise Forbidden(
            "the pickle has a function where a value is required: servers accept only data, so "
            "leave functions out of the optimizer's attributes"
        )
    return _one(value)


def _one(value: Any) -> Any:
    """Return `value`, or raise Forbidden for an `_Unfilled`, which has no numbers yet."""
    if type(value) is _Unfilled:
        raise Forbidden(
            "the pickle uses a numpy array before the array has numbers: servers accept only "
            "complete arrays, so use arrays of plain numbers in the optimizer's attributes"
        )
    return value


def _key(key: Any) -> Hashable:
    """Return `key` if it is plain data or a tuple of plain data, else raise Forbidden.

    A comparison of plain keys is fast, and calls no method of the pickle's objects.
    """
    if type(key) not in _PLAIN and not (
        type(key) is tuple and all(type(part) in _PLAIN for part in key)
    ):
        raise Forbidden(
            "a dict or set in the pickle has a %s as a key: use only numbers, strings, bytes, None "
            "and tuples of these as keys" % _described(key)
        )
    return key


def _data() -> Dict[Tuple[str, str], Any]:
    """Return {(module, name): class or `_Call`} for plain data: containers, numbers and arrays."""
    values: Dict[Tuple[str, str], Any] = {
        ("builtins", cls.__name__): cls for cls in (object, dict, list, int, float)
    }
    values.update(
        {("builtins", cls.__name__): cls for cls in (set, frozenset, complex, bytearray, bytes)}
    )
    values[("collections", "OrderedDict")] = collections.OrderedDict
    values[("collections", "defaultdict")] = collections.defaultdict
    values[("_codecs", "encode")] = _Call(_bytes)
    values[("numpy", "ndarray")], values[("numpy", "dtype")] = numpy.ndarray, numpy.dtype
    values.update({("numpy", name): getattr(numpy, name) for name in _NUMBERS})
    for module in ("numpy.core.multiarray", "numpy._core.multiarray"):
        values[(module, "scalar")], values[(module, "_reconstruct")] = _Call(_scalar), _Call(_array)
    return values


def _set(*items: Any) -> Set[Hashable]:
    return {_key(item) for given in items for item in _exact(list, given)}


def _frozenset(*items: Any) -> FrozenSet[Hashable]:
    return frozenset(_set(*items))


def _complex(real: Any, imaginary: Any) -> complex:
    return complex(_exact(float, real), _exact(float, imaginary))


def _bytearray(text: Any = "", encoding: Any = "latin-1") -> bytearray:
    return bytearray(text if type(text) is bytes else _bytes(text, encoding))


def _ordered(*items: Any) -> collections.OrderedDict:
    pairs = [_exact(list, pair) for given in items for pair in _exact(list, given)]
    return collections.OrderedDict((_key(key), value) for key, value in pairs)


def _defaultdict(factory: Any = None) -> collections.defaultdict:
    if not any(factory is known for known in (None, dict, list, int, float, set)):
        raise Forbidden(
            "a defaultdict in the pickle calls %s, which servers do not accept: use dict, list, "
            "int, float, set or None as the default_factory" % _shown(factory)
        )
    return collections.defaultdict(factory)


def _bytes(text: Any = "", encoding: Any = "latin-1") -> bytes:
    """Return `text` (str) encoded in latin-1, because protocol 0 stores bytes as text.

    Raises Forbidden for another encoding, or if `text` is not a str.
    """
    if type(text) is not str or type(encoding) is not str or encoding not in ("latin1", "latin-1"):
        raise Forbidden(
            "the pickle encodes with %s: servers accept only strings in latin-1, so use a bytes "
            "object in place of the encoded string" % _shown(encoding)
        )
    return text.encode("latin-1")


def _dtype(kind: Any, align: Any = False, copy: Any = True) -> numpy.dtype:
    """Return the numpy dtype of numbers with the name `kind` (str), such as "f4".

    Raises Forbidden for another dtype. Such a dtype could hold objects, or let numpy read memory in
    a layout that the pickle chooses. `align` and `copy` have no effect.
    """
    if type(kind) is not str or not _PLAIN_DTYPE.match(kind):
        raise Forbidden(
            "the pickle has numpy's dtype %s: servers accept dtypes of numbers only, so use such "
            "a dtype, for example float32" % _shown(kind)
        )
    return numpy.dtype(kind)


def _scalar(dtype: Any, data: Any) -> numpy.generic:
    if not _is_plain(dtype) or type(data) is not bytes or len(data) != dtype.itemsize:
        raise Forbidden(
            "the pickle has a numpy scalar whose bytes do not fit its dtype: servers accept only "
            "scalars of plain numbers, so convert the scalar with float() or int()"
        )
    return numpy.frombuffer(data, dtype=dtype)[0]


def _array(cls: Any, shape: Any, kind: Any) -> _Unfilled:
    """Return an `_Unfilled`, which the opcode BUILD turns into an array.

    Raises Forbidden unless `cls` is numpy.ndarray. `shape` and `kind` have no effect.
    """
    if cls is not numpy.ndarray:
        raise Forbidden(
            "the pickle makes an array of a class other than numpy.ndarray: convert the array with "
            "numpy.array()"
        )
    return _Unfilled()


def _filled(state: Any) -> numpy.ndarray:
    """Return the numpy array that `state` describes.

    `state` is (version, shape, dtype, True for Fortran order, bytes). Raises Forbidden if `state`
    does not describe an array of plain numbers.
    """
    if type(state) is not tuple or len(state) != 5:
        raise Forbidden(
            "the state of a numpy array in the pickle must be a tuple of 5 values, not a %s%s: "
            "copy the array with numpy.array(), and pickle the optimizer again"
            % (_described(state), " of %d" % len(state) if type(state) is tuple else "")
        )
    _, shape, dtype, fortran, data = state
    if (
        type(shape) is not tuple
        or type(data) is not bytes
        or not _is_plain(dtype)
        or len(shape) > _DIMENSIONS
    ):
        raise Forbidden(
            "the state of a numpy array in the pickle describes no array of numbers: servers "
            "accept only arrays of plain numbers, so convert the array with astype(numpy.float32)"
        )
    wanted = dtype.itemsize
    for length in shape:
        if type(length) is not int or not 0 <= length <= max(1, len(data)):
            raise Forbidden(
                "a numpy array in the pickle has %d bytes, but a dimension with a length of %s: "
                "copy the array with numpy.array(), and pickle the optimizer again"
                % (len(data), _shown(length))
            )
        wanted *= length
    if wanted != len(data):
        raise Forbidden(
            "a numpy array in the pickle has %d bytes, which do not fit the shape %r: copy the "
            "array with numpy.array(), and pickle the optimizer again" % (len(data), shape)
        )
    flat = numpy.frombuffer(data, dtype=dtype) if data else numpy.empty((0,), dtype=dtype)
    order: Any = "F" if type(fortran) in (bool, int) and fortran else "C"
    return numpy.array(flat.reshape(shape, order=order))


def _exact(kind: type, value: Any) -> Any:
    """Return `value` if the class of `value` is exactly `kind`, else raise Forbidden."""
    if type(value) is not kind:
        raise Forbidden(
            "the pickle has a %s where a %s is required: leave this value out of the optimizer"
            % (_described(value), kind.__name__)
        )
    return value


def _is_plain(dtype: Any) -> bool:
    return isinstance(dtype, numpy.dtype) and dtype.kind in "biuf"


_CALLED = {
    set: _Call(_set),
    frozenset: _Call(_frozenset),
    complex: _Call(_complex),
    bytearray: _Call(_bytearray),
    bytes: _Call(_bytes),
    collections.OrderedDict: _Call(_ordered),
    collections.defaultdict: _Call(_defaultdict),
    numpy.dtype: _Call(_dtype),
}


def _family(base: Type[Any]) -> Set[type]:
    """Return the set of the class `base` and all its subclasses."""
    return {base}.union(*[_family(derived) for derived in base.__subclasses__()])
