"""Fingerprints of a node's MXNet and numpy, taken without an import."""

import os
import shutil
import sys

import pytest

from mxcluster.model.node_requests import Versions
from mxcluster.node import software


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Return the folder of an environment with a large library and a numpy."""
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("mxnet", "numpy", "numpy/core"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('imported')")
    with (tmp_path / "mxnet" / "libmxnet.so").open("wb") as library:
        library.write(b"\x7fELF")
        library.truncate(300 << 20)
    (tmp_path / "numpy" / "version.py").write_text("version = '1.23.5'")
    (tmp_path / "numpy" / "core" / "_multiarray_umath.cpython-310-x86_64-linux-gnu.so").write_bytes(
        b"x" * 100000
    )
    for name in ("mxnet", "numpy"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def recorded():
    return Versions(
        python_version="%d.%d.%d" % sys.version_info[:3], fingerprints=software.fingerprints()
    )


def test_unchanged_software_is_no_problem(installed):
    known = recorded()
    assert set(known.fingerprints) == {"libmxnet.so", "numpy"}
    os.utime(str(installed / "mxnet" / "libmxnet.so"), (1, 1))
    # A copy of the same files, as on another node.
    shutil.copytree(str(installed / "numpy"), str(installed / "again"))
    assert software.problems(known) == [] == software.problems(Versions())


@pytest.mark.parametrize(
    "path, text, version",
    [
        ("numpy/version.py", "short_version = '1.14.6'\nversion = '1.14.6'", "1.14.6"),
        ("numpy/_version.py", '{\n "dirty": false,\n "version": "1.21.6"\n}', "1.21.6"),
        (
            "numpy/version.py",
            '"""\nModule\n"""\n\nversion = "2.2.6"\n__version__ = version',
            "2.2.6",
        ),
        ("mxnet/libinfo.py", '# version\n__version__ = "1.9.1"', "1.9.1"),
        ("mxnet/libinfo.py", "__version__ = None", ""),
    ],
)
def test_versions_need_no_import(installed, path, text, version):
    (installed / "numpy" / "version.py").write_text("from numpy import _version")
    (installed / path).write_text(text)
    package = path.partition("/")[0]
    assert software.versions()[package] == version


@pytest.mark.parametrize(
    "path, change, name",
    [
        ("mxnet/libmxnet.so", lambda stream: stream.truncate((300 << 20) + 1), "libmxnet.so"),
        (
            "mxnet/libmxnet.so",
            lambda stream: stream.seek(150 << 20) and stream.write(b"x" * (10 << 20)),
            "libmxnet.so",
        ),
        ("numpy/version.py", lambda stream: stream.write(b"version = '1.19.5'"), "numpy"),
    ],
)
def test_changed_software_is_named_with_the_remedy(installed, path, change, name):
    known = recorded()
    with (installed / path).open("r+b") as stream:
        change(stream)
    problems = software.problems(known)
    assert len(problems) == 1 and problems[0].startswith(
        "%s has changed since the node's last provision.yml: " % name
    )
    assert problems[0].endswith(
        "remove %s on this node, and run provision.yml, which makes this Python environment again"
        % sys.prefix
    )


def test_missing_software_is_named_and_a_system_python_is_not_to_be_removed(installed, monkeypatch):
    known = recorded().replaced(python_version="3.6.8")
    shutil.rmtree(str(installed / "mxnet"))
    (installed / "mxnet").mkdir()
    (installed / "mxnet" / "__init__.py").write_text("")
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    python, library = software.problems(known)
    assert python.startswith("Python is ")
    assert "was 3.6.8 at the node's last provision.yml" in python
    assert library.startswith("libmxnet.so is gone since ") and "remove" not in library
