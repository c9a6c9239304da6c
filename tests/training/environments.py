"""The MXNet environments of tests and benchmarks, built as provision.yml builds them on a node."""

import collections
import contextlib
import fcntl
import functools
import os
import pathlib
import shutil
import subprocess
import sys

from tests.pythons import available, find_python

PROJECT = pathlib.Path(__file__).resolve().parents[2]
# The environments by name: the versions of MXNet and of Python. None is the Python that runs the
# tests.
VERSIONS = {
    "1.9.1": ("1.9.1", None),
    "1.9.1-numpy2": ("1.9.1", "3.13"),
    "1.5.1": ("1.5.1", "3.11"),
    "1.2.1": ("1.2.1", "3.6"),
}
NEWEST = "1.9.1"  # the environment of most tests and of the playbooks
# The newest and the oldest that can be built here. Without Python 3.13 NEWEST takes its place, so
# that tests of the ends run at least there.
ENDS = ("1.9.1-numpy2" if available("3.13") else NEWEST, "1.2.1")

Environment = collections.namedtuple("Environment", "version python")


@contextlib.contextmanager
def _locked(name, operation):
    """Lock the environment of this name, which test processes share, and yield its folder."""
    home = PROJECT / ".state" / "tests" / name
    home.mkdir(parents=True, exist_ok=True)
    with open(str(home) + ".lock", "w") as lock:
        fcntl.flock(lock, operation)
        yield home


@functools.lru_cache(maxsize=None)
def mxnet_environment(name):
    """Return the Environment of this name; the role mxnet builds it once in .state/tests."""
    version, python = VERSIONS[name]
    # molecule sets variables for Ansible's own playbooks.
    own = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    with _locked(name, fcntl.LOCK_EX) as home:
        result = subprocess.run(
            [
                str(pathlib.Path(sys.executable).with_name("ansible-playbook")),
                "tests/training/environments.yml",
                *("-e", "mxnet_version=" + version),
                *("-e", "mxcluster_home=%s" % home),
                # The role packs wheels there and removes them. Versions are built at once.
                *("-e", "mxcluster_state_dir=%s" % home),
                *("-e", "mxnet_python=%s" % (find_python(python) if python else sys.executable)),
            ],
            cwd=str(PROJECT),
            env=dict(own, LC_ALL="C.UTF-8"),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    assert result.returncode == 0, result.stdout.decode(errors="replace")
    return Environment(version, home / "env" / "bin" / "python")


def copy_environment(name, folder):
    """Copy the environment of this name into the new `folder`, as if it was built there.

    A copy takes a second, a build takes half a minute of the processors. provision.yml finds the
    copy complete, except for the package mxcluster.
    """
    built = mxnet_environment(name).python.parents[1]
    with _locked(name, fcntl.LOCK_SH):  # The role may run in another process, and changes files.
        # Trainings write bytecode to such files, and rename them.
        drafts = shutil.ignore_patterns("*.pyc.*")
        shutil.copytree(str(built), str(folder), symlinks=True, ignore=drafts)
    for program in (folder / "bin").iterdir():  # their first lines hold the path of the environment
        if not program.is_symlink():
            program.write_bytes(
                program.read_bytes().replace(str(built).encode(), str(folder).encode())
            )
