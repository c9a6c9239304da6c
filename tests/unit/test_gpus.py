"""What is known of a node's GPUs, with a program that answers as nvidia-smi does."""
import os

import pytest

from mxcluster import gpus

TWO = """case "$*" in
  *query-gpu=*) printf '0, GPU-8f, Tesla V100-PCIE-16GB, 470.256.02\\n1, GPU-a0, Tesla V100-PCIE-16GB, 470.256.02\\n' ;;
  *query-compute-apps=*) %s ;;
esac"""


@pytest.fixture
def smi(tmp_path, monkeypatch):
    """Writes an nvidia-smi."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(gpus, "PROC", str(tmp_path / "gpus"))

    def write(text):
        (tmp_path / "nvidia-smi").write_text("#!/bin/sh\n" + text)
        (tmp_path / "nvidia-smi").chmod(0o755)
        return tmp_path
    return write


def test_they_are_listed(smi):
    smi(TWO % ":")
    assert gpus.count() == 2 and gpus.users() == {}
    assert gpus.listed()[1] == gpus.Gpu(1, "GPU-a0", "Tesla V100-PCIE-16GB", "470.256.02")
    assert gpus.problems([0, 1]) == gpus.problems([]) == []


def test_one_that_is_missing_is_named(smi):
    smi(TWO % ":")
    assert gpus.problems([1, 2]) == ["GPU 2 is not on this node; it has 0, 1: correct gpus"]


def test_one_that_is_busy_is_named_with_who_has_it(smi):
    smi(TWO % "printf 'GPU-a0, 4711, /usr/bin/python3\\n'")
    assert gpus.problems([0]) == []
    assert gpus.problems([0, 1]) == ["GPU 1 (Tesla V100-PCIE-16GB) is busy with python3 (pid 4711): end that, or take another "
                                     "with -e gpus=..."]


def test_without_a_driver(smi):
    smi("exit 9")
    assert gpus.problems([0, 1])[0].startswith("GPUs 0, 1 are not on this node: neither nvidia-smi nor ")
    assert gpus.problems([0])[0].endswith("set -e gpus='' to train on the CPU, or install the driver")


def test_they_are_counted_under_proc_when_nvidia_smi_fails(smi):
    folder = smi("echo 'Driver/library version mismatch'; exit 18")
    for bus in ("0000:3b:00.0", "0000:86:00.0", "0000:af:00.0"):
        (folder / "gpus" / bus).mkdir(parents=True)
    assert gpus.count() == 3
