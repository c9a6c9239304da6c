"""Code for nodes compiles under their Pythons: 2.7 for Ansible's modules, 3.6 for the package."""

import pathlib
import subprocess

import pytest

from tests.pythons import find_python

PROJECT = pathlib.Path(__file__).resolve().parents[2]
COMPILE = "import sys\nfor path in sys.argv[1:]: compile(open(path, 'rb').read(), path, 'exec')"


@pytest.mark.slow
@pytest.mark.parametrize(
    "version,files",
    [
        ("2.7", sorted(PROJECT.glob("plugins/module*/*.py"))),
        ("3.6", sorted(PROJECT.glob("python/mxcluster/**/*.py"))),
    ],
)
def test_files_compile(version, files):
    result = subprocess.run(
        [find_python(version), "-c", COMPILE, *map(str, files)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert files and result.returncode == 0, result.stdout
