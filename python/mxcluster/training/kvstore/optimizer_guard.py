"""Read the optimizer that a worker has pickled, and refuse all other pickles.

MXNet's servers unpickle any message, and a pickle may call any function that it can name. Here no
part of Python's pickle module runs. A small interpreter reads protocol 0, which MXNet writes, and
builds values of exact types. docs/security.md describes the attacker.

- A pickle may name only the (module, name) pairs of a list, and never gets an attribute of an
  object.
- A list, dict, OrderedDict or defaultdict gets items only if it is exactly of this class. Keys are
  plain. The reader calls no method of an item or key.
- Objects are of listed classes. The reader makes an object without calling its class, and sets the
  object's attributes once, from a dict. The reader refuses an attribute with the name of a method
  or property of the class, or of a protocol such as __array_interface__. If the class has its own
  __setstate__ (MXNet's Optimizer, a declared class), the reader passes the dict to this method.
- Arrays hold numbers, copied from bytes. There must be exactly as many bytes as the shape needs,
  computed with Python's integers.
"""

import _compat_pickle
import collections
import importlib
import os
import re
import sys

import numpy

from mxcluster.errors import BadInput, MxclusterError
from mxcluster.package import SCRIPT_FOLDER

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
_PLAIN_DTYPE = re.compile(r"[biuf][1248]$")
_PROTOCOL = re.compile(r"__|_.*_$")  # attributes that Python, numpy or ctypes look up themselves
_DIGITS = 400  # most digits of a number; the time to read n digits grows with n squared
_DIMENSIONS = 32
_NUMBER_TYPES = (
    (bool, int, float, complex) + tuple(getattr(numpy, name) for name in _NUMBERS) + (numpy.bool_,)
)
_PLAIN = _NUMBER_TYPES + (str, bytes, type(None))


class Forbidden(MxclusterError):
    """A pickle holds an element that the servers do not accept."""


class Names(object):
    """The values and classes that a pickle may name.

    Attributes: ``values`` {(module, name): object}; ``made`` the classes whose objects the pickle
    may make and fill.
    """

    def __init__(self, values, made):
        self.values, self.made = values, frozenset(made)


def declared_classes():
    """Return the values of the knob `server_classes`: a list of texts "module:Class".

    If the list is not empty, the folder of the job's script becomes the first folder of imports.
    """
    declared = [text for text in os.environ.get("MXCLUSTER_SERVER_CLASSES", "").split(",") if text]
    folder = os.path.join(os.environ.get("MXCLUSTER_JOB_DIR", "."), SCRIPT_FOLDER)
    if declared and os.path.isdir(folder) and folder not in sys.path:
        sys.path.insert(0, folder)
    return declared


def names(declared=()):
    """Return the Names for MXNet's own optimizers and schedules, and for the classes `declared`.

    `declared` is a list of texts "module:Class". Raises BadInput if a text has another form or its
    class cannot be imported.
    """
    from mxnet.lr_scheduler import LRScheduler
    from mxnet.optimizer import Optimizer

    # Collect these before the import of a declared module, which may derive classes from Optimizer.
    classes = [
        cls
        for base in (Optimizer, LRScheduler)
        for cls in _family(base)
        if cls.__module__.startswith("mxnet.")
    ]
    return names_of(classes + [declared_class(text) for text in declared])


def names_of(classes):
    """Return the Names for objects of `classes`, and for plain data."""
    values = {(cls.__module__, cls.__name__): cls for cls in classes}
    values.update(_data())
    return Names(values, classes)


def declared_class(text):
    """Return the class that `text` ("module:Class") names.

    Raises BadInput if `text` has another form, or if the module defines no such class.
    """
    module, _, name = text.partition(":")
    if not re.match(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$", module) or not re.match(
        r"[A-Za-z_]\w*$", name
    ):
        raise BadInput(
            "server_classes: %r must be module:Class, with a class at the top level of the module"
            % (text,)
        )
    try:
        found = vars(importlib.import_module(module)).get(name)
    except Exception as error:
        raise BadInput(
            "server_classes: the module of %r cannot be imported (%s: %s): put the module beside "
            "the script, or install it on the nodes" % (text, type(error).__name__, error)
        ) from error
    if not isinstance(found, type) or (found.__module__, found.__name__) != (module, name):
        raise BadInput(
            "server_classes: the module %s defines no class %r%s"
            % (
                module,
                name,
                ": use %s:%s, the place of the definition" % (found.__module__, found.__name__)
                if isinstance(found, type)
                else ": correct the name, or define the class at the top level of the module",
            )
        )
    return found


def read(data, allowed):
    """Return the object in the pickle `data` (bytes), which uses only the Names `allowed`.

    Raises Forbidden, with the reason, for any other pickle.
    """
    try:
        return _Reader(data, allowed).read()
    except (ValueError, IndexError, KeyError, TypeError, OverflowError) as error:
        raise Forbidden(
            "the data is no complete pickle of protocol 0 (%s: %s)" % (type(error).__name__, error)
        ) from error


def check_optimizer(found):
    """Return `found` if it is an Optimizer with a valid schedule or none, else raise Forbidden."""
    from mxnet.lr_scheduler import LRScheduler
    from mxnet.optimizer import Optimizer

    if not isinstance(found, Optimizer):
        raise Forbidden(
            "the pickle contains no mxnet.optimizer.Optimizer but a %s" % type(found).__name__
        )
    schedule = getattr(found, "lr_scheduler", None)
    if schedule is not None and not isinstance(schedule, LRScheduler):
        raise Forbidden(
            "the optimizer's lr_scheduler is no mxnet.lr_scheduler.LRScheduler but a %s"
            % type(schedule).__name__
        )
    return found


class _Call(object):
    """A function that a pickle may name and call (REDUCE), but not put into other data."""

    def __init__(self, function):
        self.function = function


class _Unfilled(object):
    """An array without numbers. Only the opcode BUILD accepts and fills it."""


class _Reader(object):
    """Reads the pickle `data`, opcode by opcode, with the Names `allowed`."""

    def __init__(self, data, allowed):
        self._data, self._at, self._allowed = data, 0, allowed
        self._stack, self._marks, self._memo, self._filled = [], [], {}, {}

    def read(self):
        """Return the object that the pickle builds. Raises Forbidden for other opcodes or names."""
        while True:
            code = self._data[self._at : self._at + 1]
            self._at += 1
            if code == b".":
                return self._taken()
            if code not in self._STEPS:
                raise Forbidden(
                    "the pickle has the opcode %s; servers accept pickles of protocol 0 only"
                    % _OTHERS.get(code, repr(code))
                )
            self._STEPS[code](self)

    def _line(self):
        end = self._data.index(b"\n", self._at)
        text, self._at = self._data[self._at : end], end + 1
        return text

    def _number(self):
        text = self._line().decode("ascii")
        if len(text) > _DIGITS:
            raise Forbidden(
                "the pickle has a number of %d digits; at most %d are allowed"
                % (len(text), _DIGITS)
            )
        return text

    def _push(self, value):
        self._stack.append(value)

    def _pop(self):
        """Remove and return the last value since the last mark. Raises ValueError without one."""
        if len(self._stack) <= (self._marks[-1] if self._marks else 0):
            raise ValueError("the stack is empty")
        return self._stack.pop()

    def _taken(self):
        """Remove and return the last value, checked by `_whole`."""
        return _whole(self._pop())

    def _items(self):
        """Remove the last mark and all values after it. Return these values as a list."""
        start = self._marks.pop()
        items = self._stack[start:]
        del self._stack[start:]
        return [_whole(item) for item in items]

    def _mark(self):
        self._marks.append(len(self._stack))

    def _pop_or_unmark(self):
        if self._marks and self._marks[-1] == len(self._stack):
            self._marks.pop()
        else:
            self._pop()

    def _float(self):
        self._push(float(self._number()))

    def _int(self):
        text = self._number()
        self._push({"00": False, "01": True}[text] if text in ("00", "01") else int(text))

    def _long(self):
        self._push(int(self._number().rstrip("L")))

    def _text(self):
        self._push(self._line().decode("raw-unicode-escape"))

    def _list(self):
        self._push(self._items())

    def _tuple(self):
        self._push(tuple(self._items()))

    def _dict(self):
        items = self._items()
        if len(items) % 2:
            raise ValueError("a key without a value")
        self._push({_key(key): value for key, value in zip(items[::2], items[1::2])})

    def _append(self):
        item, target = self._taken(), self._last()
        if type(target) is not list:
            raise Forbidden(
                "the pickle appends to a %s; it may append to a list only" % _described(target)
            )
        target.append(item)

    def _set_item(self):
        value, key, target = self._taken(), self._taken(), self._last()
        if type(target) not in (dict, collections.OrderedDict, collections.defaultdict):
            raise Forbidden(
                "the pickle sets an item of a %s; only a dict may get items" % _described(target)
            )
        target[_key(key)] = value

    def _last(self):
        value = self._pop()
        self._push(value)
        return value

    def _put(self):
        self._memo[self._number()] = self._last()

    def _get(self):
        self._push(_one(self._memo[self._number()]))

    def _copy(self):
        self._push(_one(self._last()))

    def _global(self):
        module, name = self._line().decode("utf-8"), self._line().decode("utf-8")
        pair = _compat_pickle.NAME_MAPPING.get((module, name)) or (
            _compat_pickle.IMPORT_MAPPING.get(module, module),
            name,
        )
        if pair == ("copyreg", "_reconstructor"):
            self._push(_Call(self._new))
            return
        if pair not in self._allowed.values:
            called = "my_module:" + pair[1] if pair[0] == "__main__" else ":".join(pair)
            raise Forbidden(
                "the pickle names %s, which servers do not accept; put a class of your own into a "
                'module beside the script, and declare it for the job: -e \'{"server_classes": '
                '["%s"]}\'' % (":".join(pair), called)
            )
        self._push(self._allowed.values[pair])

    def _reduce(self):
        arguments, function = self._taken(), self._pop()
        if type(arguments) is not tuple:
            raise Forbidden(
                "the pickle calls a function with a %s, not with a tuple of arguments"
                % _described(arguments)
            )
        # A pickle may name some classes as values, and also call them. A call runs our function in
        # place of the class.
        function = _CALLED.get(function, function) if isinstance(function, type) else function
        if type(function) is not _Call:
            raise Forbidden("the pickle calls %s, which servers do not accept" % _shown(function))
        self._push(function.function(*arguments))

    def _new(self, cls, base, state):
        if (
            not isinstance(cls, type)
            or cls not in self._allowed.made
            or base is not object
            or state is not None
        ):
            raise Forbidden(
                "the pickle makes an object of %s in a way that servers do not accept" % _shown(cls)
            )
        return object.__new__(cls)

    def _build(self):
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
            # The state of a dtype is its byte order, and only this machine's order is accepted.
            raise Forbidden(
                "the pickle sets the state of a %s to a %s, which servers do not accept"
                % (_described(target), _described(state))
            )
        self._push(target)

    def _fill(self, target, state):
        cls = type(target)
        if type(state) is not dict or id(target) in self._filled:
            raise Forbidden(
                "the pickle sets the state of a %s twice" % _described(target)
                if id(target) in self._filled
                else "the pickle sets the state of a %s to a %s, not to a dict"
                % (_described(target), _described(state))
            )
        for name in state:
            if type(name) is not str or _PROTOCOL.match(name):
                raise Forbidden(
                    "the pickle sets the forbidden attribute %s of a %s"
                    % (_shown(name), _described(target))
                )
            found = next((vars(one)[name] for one in cls.__mro__ if name in vars(one)), None)
            if callable(found) or hasattr(type(found), "__get__"):
                raise Forbidden(
                    "the pickle sets %r of a %s, a method or property of this class"
                    % (name, _described(target))
                )
        self._filled[id(target)] = target  # kept, so that no other object gets its id
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


def _described(value):
    return type(value).__name__


def _shown(value):
    """Return `value` as text for a message, without calling any of its methods."""
    return repr(value) if type(value) in _PLAIN or type(value) is type else "a " + _described(value)


def _whole(value):
    """Return `value` if it may be a part of another value or the result, else raise Forbidden."""
    if type(value) is _Call:
        raise Forbidden("the pickle has a function where a value is required")
    return _one(value)


def _one(value):
    """Return `value` if the pickle may use the same value several times, else raise Forbidden."""
    if type(value) is _Unfilled:
        raise Forbidden("the pickle uses a numpy array that is not filled with numbers")
    return value


def _key(key):
    """Return `key` if a dict or set may have it, else raise Forbidden.

    A comparison of plain keys calls no method of an object and takes little time.
    """
    if type(key) not in _PLAIN and not (
        type(key) is tuple and all(type(part) in _PLAIN for part in key)
    ):
        raise Forbidden("a dict or set in the pickle has a %s as a key" % _described(key))
    return key


def _data():
    """Return {(module, name): class or `_Call`} of plain data: containers, numbers, arrays."""
    values = {("builtins", cls.__name__): cls for cls in (object, dict, list, int, float)}
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


def _set(*items):
    return {_key(item) for given in items for item in _exact(list, given)}


def _frozenset(*items):
    return frozenset(_set(*items))


def _complex(real, imaginary):
    return complex(_exact(float, real), _exact(float, imaginary))


def _bytearray(text="", encoding="latin-1"):
    return bytearray(text if type(text) is bytes else _bytes(text, encoding))


def _ordered(*items):
    pairs = [_exact(list, pair) for given in items for pair in _exact(list, given)]
    return collections.OrderedDict((_key(key), value) for key, value in pairs)


def _defaultdict(factory=None):
    if not any(factory is known for known in (None, dict, list, int, float, set)):
        raise Forbidden(
            "a defaultdict in the pickle calls %s, which servers do not accept" % _shown(factory)
        )
    return collections.defaultdict(factory)


def _bytes(text="", encoding="latin-1"):
    """Return `text` encoded in latin-1, the form that bytes have in protocol 0.

    Raises Forbidden for another encoding, or if `text` is not a str.
    """
    if type(text) is not str or type(encoding) is not str or encoding not in ("latin1", "latin-1"):
        raise Forbidden("the pickle encodes to %s; only latin-1 is accepted" % _shown(encoding))
    return text.encode("latin-1")


def _dtype(kind, align=False, copy=True):
    """Return the numpy dtype `kind` of plain numbers. Raise Forbidden for any other dtype.

    Other dtypes hold objects, or let numpy read memory in a layout that the pickle chooses.
    """
    if type(kind) is not str or not _PLAIN_DTYPE.match(kind):
        raise Forbidden("the pickle has numpy's dtype %s; only numbers are accepted" % _shown(kind))
    return numpy.dtype(kind)


def _scalar(dtype, data):
    if not _is_plain(dtype) or type(data) is not bytes or len(data) != dtype.itemsize:
        raise Forbidden("the pickle has a numpy scalar whose bytes do not fit its dtype")
    return numpy.frombuffer(data, dtype=dtype)[0]


def _array(cls, shape, kind):
    """Return an `_Unfilled`, which the opcode BUILD turns into an array.

    Raises Forbidden if `cls` is not numpy.ndarray.
    """
    if cls is not numpy.ndarray:
        raise Forbidden("the pickle makes an array of another class than numpy.ndarray")
    return _Unfilled()


def _filled(state):
    """Return the array for numpy's `state`: (version, shape, dtype, Fortran order, bytes).

    Raises Forbidden if `state` does not describe an array of plain numbers.
    """
    if type(state) is not tuple or len(state) != 5:
        raise Forbidden(
            "the state of a numpy array in the pickle is no tuple of 5 values but a %s%s"
            % (_described(state), " of %d" % len(state) if type(state) is tuple else "")
        )
    _, shape, dtype, fortran, data = state
    if (
        type(shape) is not tuple
        or type(data) is not bytes
        or not _is_plain(dtype)
        or len(shape) > _DIMENSIONS
    ):
        raise Forbidden("the state of a numpy array in the pickle describes no array of numbers")
    wanted = dtype.itemsize
    for length in shape:
        if type(length) is not int or not 0 <= length <= max(1, len(data)):
            raise Forbidden(
                "a numpy array in the pickle has %d bytes, but a dimension with a length of %s"
                % (len(data), _shown(length))
            )
        wanted *= length
    if wanted != len(data):
        raise Forbidden(
            "a numpy array in the pickle has %d bytes, which do not fit the shape %r"
            % (len(data), shape)
        )
    flat = numpy.frombuffer(data, dtype=dtype) if data else numpy.empty((0,), dtype=dtype)
    order = "F" if type(fortran) in (bool, int) and fortran else "C"
    return numpy.array(flat.reshape(shape, order=order))


def _exact(kind, value):
    if type(value) is not kind:
        raise Forbidden(
            "the pickle has a %s where a %s is required" % (_described(value), kind.__name__)
        )
    return value


def _is_plain(dtype):
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


def _family(base):
    """Return the set of the class `base` and all its subclasses."""
    return {base}.union(*[_family(derived) for derived in base.__subclasses__()])
