"""MXNet's C library: MXNet's own where it is imported, and nothing of MXNet's Python where it need not be."""
import ctypes
import ctypes.util
import os
import sys
import types

import pytest

from mxcluster import library
from mxcluster.errors import MxclusterError


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


def test_it_is_loaded_once_and_without_mxnet(tmp_path, monkeypatch):
    """The C library of the system stands for it."""
    (tmp_path / "mxnet").mkdir()
    (tmp_path / "mxnet" / "__init__.py").write_text("raise ImportError('this takes a second')\n")
    (tmp_path / "mxnet" / "libmxnet.so").symlink_to(ctypes.util.find_library("c"))
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name.split(".")[0] == "mxnet"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setenv("MXNET_LIBRARY_PATH", ctypes.util.find_library("c"))  # as MXNet has it, it comes first
    assert library.load() is library.load() and library.load().getpid() == os.getpid()
    monkeypatch.delenv("MXNET_LIBRARY_PATH")
    monkeypatch.setattr(library, "_loaded", lambda path: path)
    monkeypatch.setattr(library.os.path, "isfile", os.path.islink)
    assert library.load() == str(tmp_path / "mxnet" / "libmxnet.so")
