"""MXNet's C library, without the rest of MXNet where nothing else is needed: that takes a second of the machine to import."""
import ctypes
import functools
import importlib.util
import os
import sys

from .errors import MxclusterError


def load():
    """The library (a ctypes.CDLL): that of MXNet where it is imported, or else loaded as MXNet would."""
    base = sys.modules.get("mxnet.base")
    if base is None:
        path = os.environ.get("MXNET_LIBRARY_PATH") or _path()
        if not path:
            from .compat import import_mxnet  # the library is where only MXNet finds it
            import_mxnet()
            base = sys.modules["mxnet.base"]
    return base._LIB if base else _loaded(path)


def check(status):
    """What MXNet's functions return is 0, or this raises MxclusterError with MXNet's words."""
    if status != 0:
        message = load().MXGetLastError
        message.restype = ctypes.c_char_p
        raise MxclusterError(message().decode("utf-8", "replace"))


def _path():
    """Where a wheel has it; None if it is not there."""
    spec = importlib.util.find_spec("mxnet")
    path = os.path.join(os.path.dirname(spec.origin), "libmxnet.so") if spec and spec.origin else ""
    return path if os.path.isfile(path) else None


@functools.lru_cache(maxsize=None)
def _loaded(path):
    return ctypes.CDLL(path, ctypes.RTLD_LOCAL)
