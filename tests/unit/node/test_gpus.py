"""The GPUs of a node, with a simulated nvidia-smi."""

import os

import pytest

from mxcluster.errors import BadInput
from mxcluster.model.node_requests import AllGpus
from mxcluster.node import gpus

TWO = """case "$*" in
  *query-gpu=*) printf '%%s:00.0, Tesla V100-PCIE-16GB, 470.256.02\\n' \\
    '0, GPU-8f, 00000000:3B' '1, GPU-a0, 00000000:AF' ;;
  *query-compute-apps=*) %s ;;
esac"""


@pytest.fixture
def smi(tmp_path, monkeypatch):
    """Return a function that writes an nvidia-smi."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(gpus, "PROC", str(tmp_path / "gpus"))

    def write(text):
        (tmp_path / "nvidia-smi").write_text("#!/bin/sh\n" + text)
        (tmp_path / "nvidia-smi").chmod(0o755)
        return tmp_path

    return write


def test_gpus_are_listed(smi):
    smi(TWO % ":")
    assert gpus.count() == 2 and gpus.users() == {}
    assert gpus.listed()[1] == gpus.Gpu(
        1, "GPU-a0", "00000000:AF:00.0", "Tesla V100-PCIE-16GB", "470.256.02"
    )
    assert gpus.problems([0, 1]) == gpus.problems([]) == []
    assert gpus.problems([1, 2]) == [
        "GPU 2 is not on this node; the node has GPUs 0, 1: correct -e gpus"
    ]


@pytest.mark.parametrize(
    "told, numbers",
    [(None, None), ("", []), ("NoDevFiles", []), ("1", [1]), ("GPU-a0,GPU-8f", [1, 0])],
)
def test_gpus_of_a_batch_system(smi, told, numbers):
    smi(TWO % ":")
    assert gpus.granted({} if told is None else {"CUDA_VISIBLE_DEVICES": told}) == numbers


def test_a_gpu_that_does_not_exist_is_refused(smi):
    smi(TWO % ":")
    with pytest.raises(BadInput, match="gives the GPU 2 .* nvidia-smi shows the GPUs 0 to 1"):
        gpus.granted({"CUDA_VISIBLE_DEVICES": "2"})


def test_a_busy_gpu_is_named_with_its_process(smi):
    smi(TWO % "printf 'GPU-a0, 4711, /usr/bin/python3\\n'")
    assert gpus.problems([0, 1]) == []
    assert gpus.busy() == {1: "python3 (pid 4711)"}


def test_gpus_without_a_driver_are_a_problem(smi):
    smi("exit 9")
    assert gpus.problems([0, 1])[0].startswith("GPUs 0, 1 are not on this node: nvidia-smi and ")
    assert gpus.problems([0])[0].endswith(
        "set -e gpus='' to train on the CPU, or install the driver"
    )


def test_gpus_are_counted_in_proc_when_nvidia_smi_fails(smi):
    folder = smi("echo 'Driver/library version mismatch'; exit 18")
    for bus in ("0000:3b:00.0", "0000:86:00.0", "0000:af:00.0"):
        (folder / "gpus" / bus).mkdir(parents=True)
    assert gpus.count() == 3


def test_a_changed_number_of_gpus_is_refused_for_gpus_auto(smi):
    """A driver restarted by hand after provision.yml, and a driver that does not work."""
    smi(TWO % ":")
    for fitting in (None, AllGpus(record=2, bus=2), AllGpus(record=2, bus=0)):
        assert gpus.unlike(fitting) is None
    assert gpus.unlike(AllGpus(record=0, bus=2)).startswith(
        "the node has 2 GPUs now, and had 0 at its last provision.yml: "
    )
    smi("exit 9")
    assert gpus.unlike(AllGpus(record=0, bus=0)) is None
    for wanted in (AllGpus(record=0, bus=2), AllGpus(record=2, bus=2)):
        told = gpus.unlike(wanted)
        assert told.startswith("the PCI bus has 2 GPUs and the driver shows 0: see `nvidia-smi`")
        assert "run provision.yml" in told and told.endswith("-e gpus=''")


def test_a_driver_that_does_not_match_its_library_shows_no_gpu(smi):
    folder = smi("echo 'Driver/library version mismatch'; exit 18")
    for bus in ("0000:3b:00.0", "0000:86:00.0"):
        (folder / "gpus" / bus).mkdir(parents=True)
    assert gpus.unlike(AllGpus(record=2, bus=2)).startswith(
        "the PCI bus has 2 GPUs and the driver shows 0: "
    )


def test_cards_are_counted_on_the_bus_without_a_driver(tmp_path):
    devices = {"card": ("0x10de", "0x030200"), "sound": ("0x10de", "0x040300")}
    devices["other"] = ("0x8086", "0x030000")
    for name, values in devices.items():
        (tmp_path / name).mkdir()
        for file, value in zip(("vendor", "class"), values):
            (tmp_path / name / file).write_text(value + "\n")
    assert gpus.cards(str(tmp_path)) == 1 and gpus.cards(str(tmp_path / "none")) == 0
