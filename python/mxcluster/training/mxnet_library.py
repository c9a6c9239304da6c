"""Load MXNet's C library without the rest of MXNet, whose import takes a second of CPU time."""

import ctypes
import functools
import importlib.machinery
import importlib.util
import sys

from mxcluster.errors import MxclusterError
from mxcluster.node.mxnet_types import Library, Package


def load() -> Library:
    """Return MXNet's C library without importing MXNet.

    If this process has imported MXNet already, the function returns the library of that MXNet.
    """
    base = sys.modules.get("mxnet.base")
    return base._LIB if base else _loaded()


def check(status: int) -> None:
    """Raise MxclusterError with MXNet's message if `status` is not 0.

    `status` is the result of a function of MXNet's C library.
    """
    if status != 0:
        message = load().MXGetLastError
        message.restype = ctypes.c_char_p
        raise MxclusterError(message().decode("utf-8", "replace"))


@functools.lru_cache(maxsize=None)  # because a path may be relative, and the scheduler changes cwd
def _loaded() -> Library:
    return ctypes.CDLL(_libinfo().find_lib_path()[0], ctypes.RTLD_LOCAL)


def _libinfo() -> Package:
    """Return MXNet's own libinfo.py as a module, without importing the rest of MXNet.

    Only libinfo.py defines where, and in which order, MXNet looks for its library. Raises
    ImportError if this Python has no MXNet.
    """
    package = importlib.util.find_spec("mxnet")
    # Python's own find_spec("mxnet.libinfo") would import mxnet first.
    spec = package and importlib.machinery.PathFinder.find_spec(
        "mxnet.libinfo", package.submodule_search_locations
    )
    if not spec or not spec.loader:
        raise ImportError(
            "%s has no MXNet: run provision.yml, or use the Python of an environment with MXNet"
            % sys.executable
        )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
