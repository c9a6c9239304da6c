"""Shorten `import mxnet`: make each operator function of MXNet at its first call.

The import writes and compiles the source of some 2,500 functions, one for each operator of
``mx.nd``, ``mx.sym`` and ``mx.np``. This work takes 60 % of the import's CPU time (0.8 of 1.4 s,
MXNet 1.9.1), in each process of a job. A training program calls some 50 of these functions.

The module wraps only the two functions of ``mxnet.base`` that register the operators. A wrapped
function registers a placeholder for each operator. At the first call, the placeholder makes the
real function with MXNet's code. A placeholder has the signature ``(*args, **kwargs)``, and an empty
docstring.
"""

import importlib
import importlib.machinery
import sys
import types

_MODULE = "mxnet.base"
_DOWNLOADS = "requests"  # MXNet uses this package for downloads only; its import takes 0.1 s
_REGISTERS = ("_init_op_module", "_init_np_op_module")  # MXNet 1.6 added the second function


class Finder(object):  # importlib.abc has a base class, whose import takes 0.01 s
    """A finder that loads ``mxnet.base`` as Python does, but with lazy operators."""

    def find_spec(self, name, path=None, target=None):
        """Return the spec of ``mxnet.base``, and None for any other module."""
        if name != _MODULE:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(object):
    def __init__(self, loader):
        self._loader = loader

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        self._loader.exec_module(module)
        for name in _REGISTERS:
            if hasattr(module, name):
                setattr(module, name, _with_lazy_maker(getattr(module, name)))


class Later(types.ModuleType):
    """A placeholder that imports the module of the same name at the first use of an attribute."""

    def __getattr__(self, name):
        """Return the attribute `name` of the real module."""
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


class during_import(object):
    """A context manager that makes the operators and `requests` lazy in `import mxnet`."""

    def __enter__(self):
        self._finder = Finder()
        sys.meta_path.insert(0, self._finder)
        self._later = None
        # MXNet itself accepts that the package is missing.
        if _DOWNLOADS not in sys.modules and importlib.machinery.PathFinder.find_spec(_DOWNLOADS):
            self._later = sys.modules[_DOWNLOADS] = Later(_DOWNLOADS)

    def __exit__(self, *error):
        sys.meta_path.remove(self._finder)
        if self._later is sys.modules.get(_DOWNLOADS, self):
            del sys.modules[_DOWNLOADS]  # a later import in a user's script imports the package


def _with_lazy_maker(register):
    def register_lazily(*args, **kwargs):
        # MXNet passes the maker by name, or as the last argument.
        if "make_op_func" in kwargs:
            kwargs["make_op_func"] = lazy_maker(kwargs["make_op_func"])
        else:
            args = args[:-1] + (lazy_maker(args[-1]),)
        return register(*args, **kwargs)

    return register_lazily


def lazy_maker(make):
    """Return a maker of placeholders, which call the maker `make` only at the first call.

    A maker takes handle (a ctypes pointer), name (str) and func_name (str), and returns the
    function of one operator.
    """

    def make_lazily(handle, name, func_name):
        made = []

        def operator(*args, **kwargs):
            if not made:
                made.append(make(handle, name, func_name))
            return made[0](*args, **kwargs)

        operator.__name__ = operator.__qualname__ = func_name
        operator.__doc__ = ""  # MXNet edits the text
        return operator

    return make_lazily
