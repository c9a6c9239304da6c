"""Lazy operators, with a simulated mxnet that records when it writes an operator."""

import sys

import pytest

from mxcluster.node import lazy_operators

BASE = """
def _init_op_module(root_namespace, module_name, make_op_func):
    import mxnet
    for name in ("relu", "dot"):
        setattr(mxnet, name, make_op_func(1, name, name))
def _init_np_op_module(root_module_name, np_module_name, make_op_func):
    import mxnet
    mxnet.exp = make_op_func(2, "_np_exp", "exp")
"""
PACKAGE = """
from .base import _init_op_module, _init_np_op_module
written = []
def make(handle, name, func_name):
    written.append(func_name)
    return lambda *args, **kwargs: (handle, name, args, kwargs)
_init_op_module("mxnet", "ndarray", make)
_init_np_op_module(root_module_name="mxnet", np_module_name="numpy", make_op_func=make)
"""


@pytest.fixture
def simulated(tmp_path, monkeypatch):
    """Put a simulated package mxnet into the path of imports, and forget it afterwards."""
    (tmp_path / "mxnet").mkdir()
    (tmp_path / "mxnet" / "__init__.py").write_text(PACKAGE)
    (tmp_path / "mxnet" / "base.py").write_text(BASE)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("mxnet", "mxnet.base"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield
    for name in ("mxnet", "mxnet.base"):
        sys.modules.pop(name, None)


def imported():
    with lazy_operators.during_import():
        import mxnet
    return mxnet


def test_an_operator_is_written_once_at_its_first_call(simulated):
    mxnet = imported()
    assert mxnet.written == []
    assert mxnet.relu(3, out=4) == (1, "relu", (3,), {"out": 4})
    assert mxnet.relu() == (1, "relu", (), {})
    assert mxnet.exp(5) == (2, "_np_exp", (5,), {})
    assert mxnet.written == ["relu", "exp"]
    assert (mxnet.dot.__name__, mxnet.dot.__qualname__, mxnet.dot.__doc__) == ("dot", "dot", "")


def test_only_the_import_of_mxnet_sees_the_finder(simulated):
    before = list(sys.meta_path)
    with lazy_operators.during_import():
        import colorsys  # noqa: F401
    assert sys.meta_path == before


def test_an_mxnet_without_these_functions_is_imported_as_it_is(simulated, tmp_path):
    (tmp_path / "mxnet" / "base.py").write_text("def _init_op(make_op_func): return make_op_func")
    (tmp_path / "mxnet" / "__init__.py").write_text("from .base import _init_op\n")
    assert imported()._init_op(7) == 7


@pytest.fixture
def downloads(simulated, tmp_path, monkeypatch):
    """Let the simulated mxnet import a package `requests`, if a test puts one into the folder."""
    with open(str(tmp_path / "mxnet" / "__init__.py"), "a") as stream:
        stream.write("try:\n    import requests\nexcept ImportError:\n    requests = None\n")
    monkeypatch.delitem(sys.modules, "requests", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    yield tmp_path
    sys.modules.pop("requests", None)


def test_requests_is_imported_at_its_first_use(downloads):
    (downloads / "requests.py").write_text("def get(url): return 'got ' + url\n")
    mxnet = imported()
    assert "requests" not in sys.modules
    assert mxnet.requests.get("it") == "got it"
    import requests

    assert requests.get is mxnet.requests.get and not isinstance(requests, lazy_operators.Later)
    with pytest.raises(AttributeError, match="no attribute 'post'"):
        _ = mxnet.requests.post


def test_mxnet_sees_at_once_that_requests_is_missing(downloads):
    assert imported().requests is None


def test_requests_that_a_script_has_imported_stays(downloads):
    (downloads / "requests.py").write_text("value = 1\n")
    import requests

    assert imported().requests is requests and sys.modules["requests"] is requests


def test_an_mxnet_that_uses_requests_in_its_import_gets_it(downloads):
    (downloads / "requests").mkdir()
    (downloads / "requests" / "__init__.py").write_text("")
    (downloads / "requests" / "adapters.py").write_text("value = 3\n")
    with open(str(downloads / "mxnet" / "__init__.py"), "a") as stream:
        stream.write("import requests.adapters\nvalue = requests.adapters.value\n")
    assert imported().value == 3
