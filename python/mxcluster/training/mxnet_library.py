"""MXNet's C library, without the rest of MXNet where nothing else is needed: that takes a second of the machine to import."""
import ctypes
import functools
import importlib.machinery
import importlib.util
import sys

from .errors import MxclusterError


def load():
    """The library (a ctypes.CDLL): that of MXNet where it is imported, or else loaded as MXNet would."""
    base = sys.modules.get("mxnet.base")
    return base._LIB if base else _loaded()


def check(status):
    """What MXNet's functions return is 0, or this raises MxclusterError with MXNet's words."""
    if status != 0:
        message = load().MXGetLastError
        message.restype = ctypes.c_char_p
        raise MxclusterError(message().decode("utf-8", "replace"))


@functools.lru_cache(maxsize=None)  # a path may be relative, and the scheduler leaves its folder
def _loaded():
    return ctypes.CDLL(_libinfo().find_lib_path()[0], ctypes.RTLD_LOCAL)


def _libinfo():
    """MXNet's own libinfo.py, which alone knows where this MXNet looks, and in which order; it imports nothing of MXNet."""
    package = importlib.util.find_spec("mxnet")
    # Python's own find_spec("mxnet.libinfo") would import mxnet first.
    spec = package and importlib.machinery.PathFinder.find_spec("mxnet.libinfo", package.submodule_search_locations)
    if not spec:
        raise ImportError("%s has no MXNet" % sys.executable)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
