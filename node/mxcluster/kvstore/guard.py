"""Reads the optimizer that a worker has pickled, and nothing else.

MXNet's servers unpickle whatever they are sent, and a pickle may call whatever it can name.  Here it can name what is on
a list of exact (module, name) pairs, is never given an attribute of anything, makes objects of listed classes without
calling these, and calls a handful of functions that only build data.

Only opcodes of protocol 0 are taken, which is what MXNet writes; those that know dotted names, extensions or persistent
ids do not exist in it or are left out.
"""

import _compat_pickle
import collections
import importlib
import io
import pickle
import pickletools
import re

import numpy

from mxcluster.errors import BadInput, MxclusterError

# Protocol 0 (pickletools), without INST, which calls what it names, and PERSID.
_OPCODES = frozenset(("MARK", "STOP", "POP", "DUP", "FLOAT", "INT", "LONG", "NONE", "UNICODE", "APPEND", "BUILD",
                      "GLOBAL", "DICT", "GET", "LIST", "PUT", "REDUCE", "SETITEM", "TUPLE"))
_OURS = {"mxcluster.kvstore.merge": ("GroupMerge", "StaleUpdate", "RoundScheduler"), "mxcluster.kvstore.keys": ("KeyLayout",),
         "mxcluster.kvstore.step": ("Staleness",)}
_NUMBERS = ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_PLAIN_DTYPE = re.compile(r"[biuf][1248]")


class Forbidden(MxclusterError):
    """A pickle that wants what no optimizer needs."""


class Names(object):
    """What a pickle may name.

    ``values`` {(module, name): what it gets}; ``made`` the classes that it may make objects of and fill; ``called`` the
    functions that it may call.
    """

    def __init__(self, values, made, called):
        self.values, self.made, self.called = values, frozenset(made), called


def names(declared=()):
    """The Names for the MXNet that is imported, and for the classes that the job declares ("module:Class").

    Raises BadInput for a declaration that is not of that form or cannot be imported.
    """
    from mxnet.lr_scheduler import LRScheduler
    from mxnet.optimizer import Optimizer
    # Before any declared module is imported: what that derives from Optimizer is its own.
    classes = [cls for base in (Optimizer, LRScheduler) for cls in _family(base) if cls.__module__.startswith("mxnet.")]
    for module, listed in _OURS.items():
        classes += [vars(importlib.import_module(module))[name] for name in listed]
    return names_of(classes + [declared_class(text) for text in declared])


def names_of(classes):
    """The Names of objects of these classes, and of plain data."""
    values = {(cls.__module__, cls.__name__): cls for cls in classes}
    data = _data()
    values.update(data)
    return Names(values, classes, [value for value in data.values() if value not in _NOT_CALLED])


def declared_class(text):
    """The class that "module:Class" names.  BadInput if it cannot be."""
    module, _, name = text.partition(":")
    if not re.match(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$", module) or not re.match(r"[A-Za-z_]\w*$", name):
        raise BadInput("server_classes: %r is refused: it must be module:Class, the class at the top of its module" % (text,))
    try:
        found = vars(importlib.import_module(module)).get(name)
    except Exception as error:
        raise BadInput("server_classes: %r is refused: %s cannot be imported (%s: %s); put it beside the script, or install "
                       "it on the nodes" % (text, module, type(error).__name__, error)) from error
    if not isinstance(found, type) or (found.__module__, found.__name__) != (module, name):
        raise BadInput("server_classes: %r is refused: %s defines no class of that name%s"
                       % (text, module, "; it has it from %s" % found.__module__ if isinstance(found, type) else ""))
    return found


def read(data, allowed):
    """The object in the pickle `data` (bytes).  Forbidden says what it must not have; other errors are its own."""
    for opcode, _, _ in pickletools.genops(data):
        if opcode.name not in _OPCODES:
            raise Forbidden("its pickle has the opcode %s, which no optimizer needs: pickle with protocol 0" % opcode.name)
    return _Reader(data, allowed).load()


def check_optimizer(found):
    """Refuse (Forbidden) all but an Optimizer, or a wrapper of ours around one."""
    from mxnet.lr_scheduler import LRScheduler
    from mxnet.optimizer import Optimizer

    from mxcluster.kvstore.merge import ServerUpdate
    optimizer = getattr(found, "base", None) if isinstance(found, ServerUpdate) else found
    if not isinstance(optimizer, Optimizer):
        raise Forbidden("it is no optimizer but %s" % type(optimizer).__name__)
    schedule = getattr(optimizer, "lr_scheduler", None)
    if schedule is not None and not isinstance(schedule, LRScheduler):
        raise Forbidden("its lr_scheduler is no LRScheduler but %s" % type(schedule).__name__)
    return found


class _Reader(pickle._Unpickler):
    """The unpickler that is written in Python, whose steps can be checked one by one.  Optimizers are small."""

    dispatch = dict(pickle._Unpickler.dispatch)

    def __init__(self, data, allowed):
        super(_Reader, self).__init__(io.BytesIO(data))
        self._allowed = allowed

    def find_class(self, module, name):
        pair = _compat_pickle.NAME_MAPPING.get((module, name)) or (_compat_pickle.IMPORT_MAPPING.get(module, module), name)
        if pair == ("copyreg", "_reconstructor"):
            return self._reconstructor
        if pair not in self._allowed.values:
            raise Forbidden("it names %s, which is on no list of what servers take; a class of your own has to stand in a "
                            "module beside the script, and the job has to name it: -e '{\"server_classes\": [\"%s\"]}'"
                            % (":".join(pair), "my_module:" + pair[1] if pair[0] == "__main__" else ":".join(pair)))
        return self._allowed.values[pair]

    def _reconstructor(self, cls, base, state):
        if cls not in self._allowed.made or base is not object or state is not None:
            raise Forbidden("it makes an object of %r in a way that is not for it" % (cls,))
        return object.__new__(cls)

    def load_reduce(self):
        function = self.stack[-2]
        if function != self._reconstructor and not any(function is known for known in self._allowed.called):
            raise Forbidden("it calls %r" % (function,))
        super(_Reader, self).load_reduce()

    dispatch[pickle.REDUCE[0]] = load_reduce

    def load_build(self):
        state, target = self.stack[-1], self.stack[-2]
        if type(target) in self._allowed.made:
            fits = type(state) is dict and "__setstate__" not in state  # the next BUILD would call it
        elif type(target) is numpy.ndarray:
            fits = type(state) is tuple and len(state) == 5 and type(state[4]) is bytes and _is_plain(state[2])
        else:  # of a dtype it would be the byte order, which is this machine's
            fits = _is_plain(target) and type(state) is tuple and state[1:2] in (("<",), ("|",))
            if fits:
                self.stack.pop()
                return
        if not fits:
            raise Forbidden("it fills %s with a %s" % (type(target).__name__, type(state).__name__))
        super(_Reader, self).load_build()

    dispatch[pickle.BUILD[0]] = load_build


_NOT_CALLED = (object, dict, list, int, float, numpy.ndarray) + tuple(getattr(numpy, name) for name in _NUMBERS)


def _data():
    """What data is made of: plain containers, numbers and arrays of numpy, by functions of ours where theirs can do more."""
    values = {("builtins", cls.__name__): cls for cls in (object, dict, list, int, float, set, frozenset, complex, bytearray)}
    values[("collections", "OrderedDict")] = collections.OrderedDict
    values[("collections", "defaultdict")] = _defaultdict
    values[("_codecs", "encode")] = _bytes
    values[("numpy", "ndarray")], values[("numpy", "dtype")] = numpy.ndarray, _dtype
    values.update({("numpy", name): getattr(numpy, name) for name in _NUMBERS})
    for module in ("numpy.core.multiarray", "numpy._core.multiarray"):
        values[(module, "scalar")], values[(module, "_reconstruct")] = _scalar, _array
    return values


def _defaultdict(factory=None):
    if factory not in (None, dict, list, int, float, set):
        raise Forbidden("its defaultdict calls %r" % (factory,))
    return collections.defaultdict(factory)


def _bytes(text, encoding):
    """Protocol 0 writes bytes as a text in latin-1."""
    if encoding != "latin1" or type(text) is not str:
        raise Forbidden("it encodes to %r" % (encoding,))
    return text.encode("latin-1")


def _dtype(kind, align=False, copy=True):
    """Numbers only: others hold objects, or make numpy read memory by a layout that the pickle gives."""
    if type(kind) is not str or not _PLAIN_DTYPE.match(kind) or len(kind) != 2:
        raise Forbidden("it has numpy's dtype %r" % (kind,))
    return numpy.dtype(kind)


def _is_plain(dtype):
    return isinstance(dtype, numpy.dtype) and dtype.kind in "biuf"


def _scalar(dtype, data):
    if not _is_plain(dtype) or type(data) is not bytes or len(data) != dtype.itemsize:
        raise Forbidden("it has a number of numpy's that is none")
    return numpy.frombuffer(data, dtype=dtype)[0]


def _array(cls, shape, kind):
    """An empty one, which is filled afterwards."""
    if cls is not numpy.ndarray or shape != (0,):
        raise Forbidden("it makes an array in a way that is not numpy's")
    return numpy.empty((0,), dtype="i1")


def _family(base):
    """A class and all that are derived from it."""
    return {base}.union(*[_family(derived) for derived in base.__subclasses__()])
