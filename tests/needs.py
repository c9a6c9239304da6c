"""List the needs of tests beside Pythons (`tests/pythons.py`). No other file skips a test.

Before the first test and after the last, `make test` names what the machine lacks (`limits` in
tools/suite.py). Without `make test`, a test whose program is missing fails.
"""

import os
import re
import shutil
import sys

import pytest

from tests import pythons

STATUS = "/proc/self/status"
CAP_SYS_ADMIN = 21  # the number of the bit
# The programs of the scenario container, and what the tests lose without them.
OF_CONTAINER = {"podman": "containers with podman", "dockerd": "two nodes with different engines"}


def may_mount():
    """Return True for root with CAP_SYS_ADMIN, which root of a container often lacks."""
    with open(STATUS) as stream:
        rights = int(re.search(r"CapEff:\s*(\w+)", stream.read()).group(1), 16)
    return os.geteuid() == 0 and bool(rights >> CAP_SYS_ADMIN & 1)


def lacking():
    """Return {need: what the tests lose} of the needs that this machine does not meet."""
    needs = {
        "root": (os.geteuid() == 0, "rights, files and processes of several users"),
        "CAP_SYS_ADMIN": (may_mount(), "network namespaces, a small disk"),
        "chromium": (shutil.which("chromium") is not None, "pages in a real browser"),
        "another-python-than-3.13": (sys.version_info[:2] != (3, 13), "nodes with two Pythons"),
    }
    return {need: loss for need, (is_met, loss) in needs.items() if not is_met}


root = pytest.mark.skipif("root" in lacking(), reason="it takes root")
mounts = pytest.mark.skipif("CAP_SYS_ADMIN" in lacking(), reason="it takes CAP_SYS_ADMIN")
two_pythons = pytest.mark.skipif(
    "another-python-than-3.13" in lacking(), reason="both nodes would have Python 3.13"
)


def find_program(name):
    """Return the path of a program; skip the test if `make test` named it as missing."""
    if pythons.named_missing(name):
        pytest.skip("make test runs without %s here" % name)
    found = shutil.which(name)
    assert found, "these tests need the program %s: install it" % name
    return found
