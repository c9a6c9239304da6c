"""MXNet's C library: MXNet's own where it is imported, and nothing of MXNet's Python where it need not be."""
import ctypes
import sys
import types

import pytest

from mxcluster import library
from mxcluster.errors import MxclusterError

# As MXNet's own, in short.
LIBINFO = """
import logging
import os

def find_lib_path():
    given = os.environ.get("MXNET_LIBRARY_PATH")
    if given and os.path.isfile(given):
        return [given]
    if given:
        logging.warning("MXNET_LIBRARY_PATH '%s' doesn't exist", given)
    folders = os.environ.get("LD_LIBRARY_PATH", "").split(":") + [os.path.dirname(__file__)]
    found = [path for path in (os.path.join(folder, "libmxnet.so") for folder in folders) if os.path.isfile(path)]
    if not found:
        raise RuntimeError("Cannot find the MXNet library.")
    return found
"""


class Library:
    """Stands for it."""

    class MXGetLastError:
        restype = None

        def __new__(cls):
            return b"[10:00:00] van.cc: Check failed"


@pytest.fixture
def imported(monkeypatch):
    monkeypatch.setitem(sys.modules, "mxnet.base", types.SimpleNamespace(_LIB=Library))


def test_it_is_mxnets_where_that_is_imported(imported):
    assert library.load() is Library


def test_an_error_has_mxnets_words(imported):
    assert library.check(0) is None
    with pytest.raises(MxclusterError, match="van.cc: Check failed"):
        library.check(-1)
    assert Library.MXGetLastError.restype is ctypes.c_char_p


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """The folder of an MXNet that must not be imported, in one with two more libraries; what is loaded is the path."""
    for name in ("mxnet/libmxnet.so", "given/mine.so", "linked/libmxnet.so"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("")
    (tmp_path / "mxnet" / "__init__.py").write_text("raise ImportError('this takes a second')\n")
    (tmp_path / "mxnet" / "libinfo.py").write_text(LIBINFO)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name.split(".")[0] == "mxnet"]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("MXNET_LIBRARY_PATH", "LD_LIBRARY_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(library.ctypes, "CDLL", lambda path, mode: path)
    library._loaded.cache_clear()
    yield tmp_path
    library._loaded.cache_clear()


@pytest.mark.parametrize("given, found, warns", [
    ({}, "mxnet/libmxnet.so", False),
    ({"LD_LIBRARY_PATH": "linked"}, "linked/libmxnet.so", False),
    ({"LD_LIBRARY_PATH": "given"}, "mxnet/libmxnet.so", False),
    ({"LD_LIBRARY_PATH": "linked", "MXNET_LIBRARY_PATH": "given/mine.so"}, "given/mine.so", False),
    ({"MXNET_LIBRARY_PATH": "gone.so"}, "mxnet/libmxnet.so", True)])
def test_it_is_where_mxnet_itself_finds_it(installed, monkeypatch, caplog, given, found, warns):
    for name, path in given.items():
        monkeypatch.setenv(name, str(installed / path))
    assert library.load() == str(installed / found) and "mxnet" not in sys.modules
    assert ("doesn't exist" in caplog.text) == warns


def test_it_is_looked_for_once(installed, monkeypatch):
    """The scheduler goes to a folder where a relative path leads nowhere."""
    first = library.load()
    monkeypatch.setenv("LD_LIBRARY_PATH", str(installed / "linked"))
    assert library.load() is first


def test_what_mxnet_does_not_find_is_an_error(installed, monkeypatch):
    (installed / "mxnet" / "libmxnet.so").unlink()
    with pytest.raises(RuntimeError, match="Cannot find the MXNet library"):
        library.load()
    monkeypatch.setattr(library.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="has no MXNet"):
        library.load()
