"""The GPUs of a node, with a simulated nvidia-smi."""

import os

import pytest

from mxcluster.node import gpus

TWO = """case "$*" in
  *query-gpu=*) printf '%%s, Tesla V100-PCIE-16GB, 470.256.02\\n' '0, GPU-8f' '1, GPU-a0' ;;
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
    assert gpus.listed()[1] == gpus.Gpu(1, "GPU-a0", "Tesla V100-PCIE-16GB", "470.256.02")
    assert gpus.problems([0, 1]) == gpus.problems([]) == []


def test_a_missing_gpu_is_named(smi):
    smi(TWO % ":")
    assert gpus.problems([1, 2]) == [
        "GPU 2 is not on this node; the node has GPUs 0, 1: correct -e gpus"
    ]


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
    assert (
        gpus.unlike(None)
        is gpus.unlike({"record": 2, "bus": 2})
        is gpus.unlike({"record": 2, "bus": 0})
        is None
    )
    assert gpus.unlike({"record": 0, "bus": 2}).startswith(
        "the node has 2 GPUs now, and had 0 at its last provision.yml: "
    )
    smi("exit 9")
    assert gpus.unlike({"record": 0, "bus": 0}) is None
    for wanted in ({"record": 0, "bus": 2}, {"record": 2, "bus": 2}):
        told = gpus.unlike(wanted)
        assert told.startswith(
            "the PCI bus has 2 GPUs and the driver shows 0: see `nvidia-smi`"
        ) and told.endswith("-e gpus=''")
        assert "run provision.yml" in told


def test_a_driver_that_does_not_match_its_library_shows_no_gpu(smi):
    folder = smi("echo 'Driver/library version mismatch'; exit 18")
    for bus in ("0000:3b:00.0", "0000:86:00.0"):
        (folder / "gpus" / bus).mkdir(parents=True)
    assert gpus.unlike({"record": 2, "bus": 2}).startswith(
        "the PCI bus has 2 GPUs and the driver shows 0: "
    )


def test_cuda_numbers_gpus_in_the_order_of_the_pci_bus(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
    monkeypatch.setattr(
        gpus,
        "ONES",
        "import os, json; print('GPU', json.dumps([0, os.environ['CUDA_DEVICE_ORDER']]))",
    )
    assert gpus.computes(1, {}) == {"0": "PCI_BUS_ID"}
    assert gpus.said_by(["sh", "-c", "echo $CUDA_DEVICE_ORDER"]).strip() == "PCI_BUS_ID"


CUDA = {"version": "9.2", "cudnn": "7.6.5.32"}


@pytest.fixture
def cuda(tmp_path):
    """Return a folder of CUDA with nvcc, deviceQuery and cuDNN's header."""
    folder = tmp_path / "cuda-9.2"
    for name, text in (
        ("bin/nvcc", "#!/bin/sh\necho 'Cuda compilation tools, release 9.2, V9.2.148'\n"),
        ("extras/demo_suite/deviceQuery", "#!/bin/sh\necho many lines; echo 'Result = PASS'\n"),
        (
            "include/cudnn.h",
            "#define CUDNN_MAJOR 7\n#define CUDNN_MINOR 6\n#define CUDNN_PATCHLEVEL 5\n",
        ),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return dict(CUDA, folder=str(folder))


def test_check_reports_driver_cuda_and_computations(smi, cuda, monkeypatch):
    smi(TWO % ":")
    monkeypatch.setattr(
        gpus, "computes", lambda number, environment: {str(one): None for one in range(number)}
    )
    answer = gpus.check(cuda)
    assert (
        answer["listed"] == 2
        and answer["driver"] == "470.256.02"
        and answer["computes"] == {"0": None, "1": None}
    )
    assert (answer["nvcc"], answer["device_query"], answer["cudnn"]) == (
        "9.2.148",
        "Result = PASS",
        "7.6.5",
    )
    assert answer["unresolved"] == ["libmxnet.so"]  # the tests run without MXNet


def test_check_reports_none_for_missing_parts(smi):
    smi("exit 9")
    answer = gpus.check(dict(CUDA, folder="/nowhere"))
    assert [answer[name] for name in ("driver", "nvcc", "device_query", "cudnn", "computes")] == [
        None,
        None,
        None,
        None,
        {},
    ]


def test_a_gpu_that_does_not_compute_gives_the_error(tmp_path, monkeypatch):
    (tmp_path / "numpy.py").write_text("bool = bool")
    (tmp_path / "mxnet.py").write_text(
        "def gpu(number):\n    raise ValueError('GPU support is disabled\\nmore')\n"
        "class nd:\n    ones = staticmethod(lambda shape, gpu: None)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert gpus.computes(2, {}) == {"0": "GPU support is disabled", "1": "GPU support is disabled"}
    (tmp_path / "mxnet.py").write_text("import os; os.abort()")
    assert gpus.computes(1, {}) == {"0": "no output"}
