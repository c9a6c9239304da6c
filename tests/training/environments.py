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

PROJECT = pathlib.Path(__file__).resolve().parents[2]
# MXNet versions and the Python versions of the tests; None is the Python that runs the tests.
VERSIONS = {"1.9.1": None, "1.5.1": "3.11", "1.2.1": "3.6"}
ENDS = ("1.9.1", "1.2.1")  # the newest and the oldest
NEWEST = ENDS[0]

Environment = collections.namedtuple("Environment", "version python")


@contextlib.contextmanager
def _locked(version, operation):
    """Lock the environment with this MXNet, which test processes share, and yield its folder."""
    home = PROJECT / ".state" / "tests" / version
    home.mkdir(parents=True, exist_ok=True)
    with open(str(home) + ".lock", "w") as lock:
        fcntl.flock(lock, operation)
        yield home


@functools.lru_cache(maxsize=None)
def mxnet_environment(version):
    """Return the Environment with this MXNet; the role mxnet builds it once in .state/tests."""
    with _locked(version, fcntl.LOCK_EX) as home:
        result = subprocess.run(
            [
                str(pathlib.Path(sys.executable).with_name("ansible-playbook")),
                "tests/training/environments.yml",
                "-e",
                "mxnet_version=" + version,
                "-e",
                "mxcluster_home=%s" % home,
                # The role packs wheels there and removes them. Versions are built at once.
                "-e",
                "mxcluster_state_dir=%s" % home,
                "-e",
                "mxnet_python=%s"
                % (find_python(VERSIONS[version]) if VERSIONS[version] else sys.executable),
            ],
            cwd=str(PROJECT),
            env=dict(os.environ, LC_ALL="C.UTF-8"),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    assert result.returncode == 0, result.stdout.decode(errors="replace")
    return Environment(version, home / "env" / "bin" / "python")


def copy_environment(version, folder):
    """Copy the environment with this MXNet into the new `folder`, as if it was built there.

    A copy takes a second, a build takes half a minute of the processors. provision.yml finds the
    copy complete, except for the package mxcluster.
    """
    built = mxnet_environment(version).python.parents[1]
    with _locked(version, fcntl.LOCK_SH):  # The role may run in another process, and changes files.
        # Trainings write bytecode to such files, and rename them.
        drafts = shutil.ignore_patterns("*.pyc.*")
        shutil.copytree(str(built), str(folder), symlinks=True, ignore=drafts)
    for program in (folder / "bin").iterdir():  # their first lines hold the path of the environment
        if not program.is_symlink():
            program.write_bytes(
                program.read_bytes().replace(str(built).encode(), str(folder).encode())
            )


@functools.lru_cache(maxsize=None)
def find_python(version):
    """Return the interpreter `python<version>` from PATH or pyenv; fail if there is none."""
    found = []
    program = shutil.which("python" + version)
    if program:
        found.append(program)
    found += sorted(
        map(str, pathlib.Path.home().glob(".pyenv/versions/%s.*/bin/python%s" % (version, version)))
    )
    for candidate in found:  # a pyenv shim may exist without a version behind it
        if (
            subprocess.run(
                [candidate, "-c", ""], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            ).returncode
            == 0
        ):
            return candidate
    raise AssertionError(
        "these tests need Python %s: install it, for example with `pyenv install %s`"
        % (version, version)
    )
