"""The Pythons that the tests need beside their own, from PATH or pyenv."""

import os
import pathlib
import shutil
import subprocess
import sys

# The Pythons that tests need, and their purposes.
USES = {
    "2.7": "Ansible's modules as on CentOS 7",
    "3.6": "the package as on CentOS 7, and MXNet 1.2.1",
    "3.11": "MXNet 1.5.1",
    "3.13": "MXNet 1.9.1 beside numpy 2, and the newest ansible-core",
}
# `make test` sets this variable to the programs that it names as missing before the first test,
# with blanks between them. The tests that need such a program are skipped. Otherwise they fail.
WITHOUT = "MXCLUSTER_TESTS_WITHOUT"


def search(version):
    """Return the path of `python<version>` from PATH or pyenv, None without such a Python."""
    program = shutil.which("python" + version)
    found = [program] if program else []
    pattern = ".pyenv/versions/%s.*/bin/python%s" % (version, version)
    found += sorted(map(str, pathlib.Path.home().glob(pattern)))
    for candidate in found:  # a pyenv shim may exist without a version behind it
        ran = subprocess.run(
            [candidate, "-c", ""], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        if ran.returncode == 0:
            return candidate
    return None


def named_missing(program):
    """Return True if `make test` has named `program` as missing before the first test."""
    return program in os.environ.get(WITHOUT, "").split()


def available(version):
    """Return the path of `python<version>`, None if it is missing or was named as missing."""
    return None if named_missing("python" + version) else search(version)


def find_python(version):
    """Return the path of `python<version>`; skip the test if `make test` named it as missing."""
    if named_missing("python" + version):
        import pytest

        pytest.skip("make test runs without Python %s here" % version)
    found = search(version)
    assert found, "these tests need Python %s: install it, for example with `pyenv install %s`" % (
        version,
        version,
    )
    return found


def python_of(name):
    """Return the path of a Python with the name "controller", the tests' own, or a version."""
    return sys.executable if name == "controller" else find_python(name)
