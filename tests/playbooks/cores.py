"""Environments of the controller with the lines of ansible-core that do not run the tests."""

import fcntl
import os
import pathlib
import subprocess
import sys

from ansible import __version__ as CORE

from tests import pythons
from tools import bundle

PROJECT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = PROJECT / ".state" / "tests" / "cores"
NEWEST = (3, 13)  # the newest Python of a controller
MINORS = range(10, NEWEST[1] + 1)
LINES = sorted({line for minor in MINORS for line in bundle.lines((3, minor))})
OTHERS = [line for line in LINES if not CORE.startswith(line + ".")]


def programs_of(line):
    """Return the folder of ansible-playbook in an environment with this line of ansible-core.

    `tools/venv.sh` makes the environment as for users, without Ansible's collections. The
    environment stays in .state/tests, and is made again when its requirements have changed. The
    test is skipped if no Python here runs the line.
    """
    python = python_for(line)
    folder = FOLDER / ("%s-%s" % (line, os.path.basename(os.path.realpath(python))))
    FOLDER.mkdir(parents=True, exist_ok=True)
    with open(str(FOLDER / (line + ".lock")), "w") as lock:  # tests run in parallel
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = subprocess.run(
            [str(PROJECT / "tools" / "venv.sh"), "controller", str(folder)],
            env=dict(os.environ, CORE=line, PYTHON=python, BUNDLE=""),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    assert made.returncode == 0, made.stdout.decode(errors="replace")
    return folder / "bin"


def home_of(line):
    """Return the folder of the nodes' environment under this line."""
    return FOLDER / (line + "-nodes")


def python_for(line):
    """Return the newest Python here that runs this line; skip the test if there is none."""
    for minor in reversed(MINORS):
        if line in bundle.lines((3, minor)):
            if sys.version_info[:2] == (3, minor):
                return sys.executable
            found = pythons.available("3.%d" % minor)
            if found:
                return found
    # `make test` names one of these Pythons as missing.
    suitable = ["3.%d" % minor for minor in reversed(MINORS) if line in bundle.lines((3, minor))]
    return pythons.find_python(next(one for one in suitable if one in pythons.USES))
