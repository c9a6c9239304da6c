"""Lazy operators, with a simulated mxnet that records when it writes an operator."""

import subprocess
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


def test_a_function_has_the_name_of_its_operator_and_a_text(simulated):
    dot = imported().dot
    assert (dot.__name__, dot.__qualname__, dot.__doc__) == ("dot", "dot", "")


def test_only_the_import_of_mxnet_sees_the_finder(simulated):
    before = list(sys.meta_path)
    with lazy_operators.during_import():
        import colorsys  # noqa: F401
    assert sys.meta_path == before


def test_an_mxnet_without_these_functions_is_imported_as_it_is(simulated, tmp_path):
    (tmp_path / "mxnet" / "base.py").write_text("def _init_op(make_op_func): return make_op_func")
    (tmp_path / "mxnet" / "__init__.py").write_text("from .base import _init_op\n")
    assert imported()._init_op(7) == 7


def test_a_python_without_mxnet_says_so(tmp_path):
    ran = subprocess.run(
        [
            sys.executable,
            "-S",
            "-c",
            "from mxcluster.node import lazy_operators\n"
            "with lazy_operators.during_import():\n    import mxnet\n",
        ],
        env={"PYTHONPATH": lazy_operators.__file__.rsplit("/mxcluster/", 1)[0]},
        stderr=subprocess.PIPE,
        universal_newlines=True,
    )
    assert ran.returncode == 1 and "No module named 'mxnet'" in ran.stderr, ran.stderr
