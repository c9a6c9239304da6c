"""Loading MXNet's C library, with an imported MXNet and without an import."""

import ctypes
import sys
import types

import pytest

from mxcluster.errors import MxclusterError
from mxcluster.training import mxnet_library

# A short version of MXNet's libinfo.py. tests/training/test_library.py shows the real one.
LIBINFO = """
import os

def find_lib_path():
    folders = os.environ.get("LD_LIBRARY_PATH", "").split(":") + [os.path.dirname(__file__)]
    paths = [os.path.join(folder, "libmxnet.so") for folder in folders]
    found = [path for path in paths if os.path.isfile(path)]
    if not found:
        raise RuntimeError("Cannot find the MXNet library.")
    return found
"""


class Library:
    """Replace the library."""

    class MXGetLastError:
        restype = None

        def __new__(cls):
            return b"[10:00:00] van.cc: Check failed"


@pytest.fixture
def imported(monkeypatch):
    monkeypatch.setitem(sys.modules, "mxnet.base", types.SimpleNamespace(_LIB=Library))


def test_the_library_of_an_imported_mxnet_is_used(imported):
    assert mxnet_library.load() is Library


def test_an_error_has_mxnets_message(imported):
    assert mxnet_library.check(0) is None
    with pytest.raises(MxclusterError, match="van.cc: Check failed"):
        mxnet_library.check(-1)
    assert Library.MXGetLastError.restype is ctypes.c_char_p


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """Return the folder of an MXNet that fails on import, beside two more libraries.

    The simulated loader returns the path of the library.
    """
    for name in ("mxnet/libmxnet.so", "linked/libmxnet.so"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("")
    (tmp_path / "mxnet" / "__init__.py").write_text("raise ImportError('this takes a second')\n")
    (tmp_path / "mxnet" / "libinfo.py").write_text(LIBINFO)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name.split(".")[0] == "mxnet"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    monkeypatch.setattr(mxnet_library.ctypes, "CDLL", lambda path, mode: path)
    mxnet_library._loaded.cache_clear()
    yield tmp_path
    mxnet_library._loaded.cache_clear()


def test_the_library_is_searched_once(installed, monkeypatch):
    """The scheduler changes its folder, so a relative path would not work later."""
    first = mxnet_library.load()
    monkeypatch.setenv("LD_LIBRARY_PATH", str(installed / "linked"))
    assert mxnet_library.load() is first


def test_a_missing_library_is_an_error(installed, monkeypatch):
    (installed / "mxnet" / "libmxnet.so").unlink()
    with pytest.raises(RuntimeError, match="Cannot find the MXNet library"):
        mxnet_library.load()
    monkeypatch.setattr(mxnet_library.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="has no MXNet"):
        mxnet_library.load()
