"""The definition of the execution environment gives a build that installs pinned wheels only."""

import re
import subprocess
import sys

import pytest

from tools import hashes

PROJECT = hashes.PROJECT


@pytest.mark.slow
def test_the_build_installs_pinned_wheels(tmp_path):
    command = [sys.executable, "-m", "ansible_builder", "create", "--context", str(tmp_path)]
    command += ["--output-filename", "Dockerfile", "--file"]
    made = subprocess.run(
        [*command, str(PROJECT / "execution-environment.yml")],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert made.returncode == 0, made.stdout.decode()
    steps = (tmp_path / "Dockerfile").read_text()
    installed = re.search(r"pip install .*--require-hashes(.*)", steps).group(1)
    named = re.findall(r"-r (\S+)", installed)
    assert len(named) == 2, steps
    pinned = {}
    for name in [*named, "shared.txt"]:  # core-*.txt includes shared.txt
        text = (tmp_path / "_build" / "requirements" / name).read_text()
        pinned.update({one.lower(): version for one, version in hashes.requirements(text).values()})
    # The steps of ansible-builder, which name packages without a hash, find pinned wheels alone.
    before, after = steps.split(" > /etc/pip.conf\n")
    assert "no-index = true" in before and "pip install" not in before, before
    others = [line for line in re.findall(r"pip install (.*)", after) if "hashes" not in line]
    packages = " ".join(others).replace("--no-cache-dir", "").replace("'", "").split()
    assert len(packages) > 1
    for package in packages:
        name, _, version = package.partition("==")
        assert name in pinned and version in ("", pinned[name]), package
