"""The README's commands on a fresh machine: a container of a bare Debian, with the way to PyPI.

The container has apt and nothing else. The line of the README installs the packages.
"""

import os
import pathlib
import re
import subprocess
import sys
import uuid

import pytest

from tests.often import seldom

PROJECT = pathlib.Path(__file__).resolve().parents[2]
HOME = "/root/mxcluster"


def run(*argv, **options):
    return subprocess.run(
        list(map(str, argv)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options
    )


class Machine:
    """A container of a bare Debian with a copy of the project.

    The container ends after an hour, if a test that was killed has not removed it.
    """

    def __init__(self, kind, image):
        self.name = "mxcluster-fresh-%s-%s" % (kind, uuid.uuid4().hex[:8])
        options = ["--detach", "--rm", "--name", self.name, *settings_of_this_machine()]
        started = run("docker", "run", *options, image, "sleep", 3600)
        assert started.returncode == 0, started.stdout.decode()

    def run(self, command):
        """Run a command of bash in the project's folder; return (exit status, output)."""
        done = run("docker", "exec", "--workdir", HOME, self.name, "bash", "-c", command)
        return done.returncode, done.stdout.decode(errors="replace")

    def copy_project(self):
        """Copy the files that git knows or would add."""
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        files = subprocess.check_output(listed, cwd=str(PROJECT))
        there = b"\0".join(
            name for name in files.split(b"\0") if os.path.lexists(PROJECT / os.fsdecode(name))
        )
        packed = run("tar", "-c", "--null", "-T", "-", cwd=str(PROJECT), input=there).stdout
        unpack = "mkdir -p %s && tar -x -C %s" % (HOME, HOME)
        copied = run("docker", "exec", "-i", self.name, "sh", "-c", unpack, input=packed)
        assert copied.returncode == 0, copied.stdout.decode()

    def remove(self):
        run("docker", "rm", "--force", "--volumes", self.name)


def settings_of_this_machine():
    """Return options of docker that give a container settings of this machine.

    These are the way to a package index, and OPENBLAS_CORETYPE, without which older OpenBLAS
    crashes on some processors.
    """
    pip = [sys.executable, "-m", "pip", "config"]
    # Files of settings, and the files and folders that the settings name.
    paths = {path for path in paths_in(run(*pip, "debug").stdout.decode()) if os.path.isfile(path)}
    for line in run(*pip, "list").stdout.decode().splitlines():
        if re.search("find-links|index-url", line):
            named = filter(os.path.exists, paths_in(line))
            # The pages of an index lead to files in a folder beside the index.
            paths.update(map(os.path.dirname, named) if "index-url" in line else named)
    # The container's package ca-certificates writes the folder of certificates.
    places = {path: "/mnt" + path if path.startswith("/etc/ssl/") else path for path in paths}
    given = {
        name: places.get(value, value)
        for name, value in sorted(os.environ.items())
        if name.startswith(("PIP_", "OPENBLAS_"))
    }
    return [
        *(word for place in sorted(places.items()) for word in ("--volume", "%s:%s:ro" % place)),
        *(word for pair in given.items() for word in ("--env", "%s=%s" % pair)),
    ]


def paths_in(text):
    """Return the absolute paths and the paths of file URLs in the output of `pip config`."""
    words = re.split(r"[\s',=]|\\n", text)
    found = [re.sub("^file://", "", word) for word in words if re.match("(file://)?/", word)]
    return list(map(os.path.normpath, found))


def line_of_the_readme():
    """Return the README's command that installs the packages."""
    (line,) = re.findall(r"^\$ (?:sudo )?(apt-get install .*?)(?: +#.*)?$", TEXT, re.MULTILINE)
    return line


TEXT = (PROJECT / "README.md").read_text()


@pytest.fixture(
    scope="module",
    params=[("bare-trixie", "3.13", "2.21"), seldom(("bare-bookworm", "3.11", "2.16"))],
    ids=lambda param: param[0],
)
def fresh(request):
    """Yield (Machine, version of its Python, line of ansible-core) with the README's packages."""
    kind, python, core = request.param
    image = subprocess.check_output([str(PROJECT / "tools" / "node-image.sh"), kind])
    machine = Machine(kind, image.decode().strip())
    try:
        machine.copy_project()
        code, output = machine.run(
            "apt-get update -qq && DEBIAN_FRONTEND=noninteractive %s -y --no-install-recommends"
            % line_of_the_readme()
        )
        assert code == 0, output
        yield machine, python, core
    finally:
        machine.remove()


def test_make_train_needs_the_readmes_packages_only(fresh):
    machine, python, core = fresh
    code, output = machine.run("make train")
    assert code == 0, output
    assert "with Python %s." % python in output and "and ansible-core %s " % core in output, output
    assert re.search(r"^OK +job \S+-dist_gsync .* all 9 processes exited with 0", output, re.M)
    accuracy = float(re.search(r"^accuracy +([\d.]+) on held-out", output, re.M).group(1))
    assert accuracy > 0.9, output


@pytest.mark.soak  # CI runs `make test` on a fresh machine
def test_make_test_brings_its_packages_and_names_what_cannot_run(fresh):
    machine, python, core = fresh
    code, output = machine.run("make test PLAN=1")
    assert code == 0, output
    assert "mxcluster: installing git openssh-client" in output, output
    for words in (
        "images (a docker engine cannot start",
        "tests that need python2.7 (Ansible's",
        "tests that need CAP_SYS_ADMIN",
    ):
        assert "cannot run here: " + words in output, output
    assert ("el7 (ansible-core 2.21" in output) == (core == "2.21"), output
    code, output = machine.run(
        "LC_ALL=C.UTF-8 PATH=.venv/bin:$PATH pytest -q tests/unit/job/plan 2>&1 | tail -n 30"
    )
    assert code == 0 and re.search(r"^\d+ passed", output, re.M), output
