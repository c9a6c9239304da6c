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
    assert gpus.problems([0, 1]) == []
    assert gpus.busy() == {1: "python3 (pid 4711)"}


def test_without_a_driver(smi):
    smi("exit 9")
    assert gpus.problems([0, 1])[0].startswith("GPUs 0, 1 are not on this node: neither nvidia-smi nor ")
    assert gpus.problems([0])[0].endswith("set -e gpus='' to train on the CPU, or install the driver")


def test_they_are_counted_under_proc_when_nvidia_smi_fails(smi):
    folder = smi("echo 'Driver/library version mismatch'; exit 18")
    for bus in ("0000:3b:00.0", "0000:86:00.0", "0000:af:00.0"):
        (folder / "gpus" / bus).mkdir(parents=True)
    assert gpus.count() == 3


def test_a_job_that_takes_all_gets_what_is_there_or_is_refused(smi):
    """A driver that was restarted by hand since provision.yml asked, and one that does not work."""
    smi(TWO % ":")
    assert gpus.unlike(None) is gpus.unlike({"record": 2, "bus": 2}) is gpus.unlike({"record": 2, "bus": 0}) is None
    assert gpus.unlike({"record": 0, "bus": 2}).startswith("the node has 2 GPUs now, and had 0 when provision.yml asked it: ")
    smi("exit 9")
    assert gpus.unlike({"record": 0, "bus": 0}) is None
    for wanted in ({"record": 0, "bus": 2}, {"record": 2, "bus": 2}):
        told = gpus.unlike(wanted)
        assert told.startswith("the PCI bus has 2 GPUs and the driver shows 0: see `nvidia-smi`") and told.endswith("-e gpus=''")
        assert "run provision.yml" in told


def test_a_driver_that_does_not_fit_its_library_gives_no_gpus_however_many_it_has_under_proc(smi):
    folder = smi("echo 'Driver/library version mismatch'; exit 18")
    for bus in ("0000:3b:00.0", "0000:86:00.0"):
        (folder / "gpus" / bus).mkdir(parents=True)
    assert gpus.unlike({"record": 2, "bus": 2}).startswith("the PCI bus has 2 GPUs and the driver shows 0: ")


def test_what_computes_counts_gpus_as_the_drivers_tools_do(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
    monkeypatch.setattr(gpus, "ONES", "import os, json; print('GPU', json.dumps([0, os.environ['CUDA_DEVICE_ORDER']]))")
    assert gpus.computes(1, {}) == {"0": "PCI_BUS_ID"}
    assert gpus.said_by(["sh", "-c", "echo $CUDA_DEVICE_ORDER"]).strip() == "PCI_BUS_ID"


CUDA = {"version": "9.2", "cudnn": "7.6.5.32"}


@pytest.fixture
def cuda(tmp_path):
    """A folder of CUDA with what is asked."""
    folder = tmp_path / "cuda-9.2"
    for name, text in (("bin/nvcc", "#!/bin/sh\necho 'Cuda compilation tools, release 9.2, V9.2.148'\n"),
                       ("extras/demo_suite/deviceQuery", "#!/bin/sh\necho many lines; echo 'Result = PASS'\n"),
                       ("include/cudnn.h", "#define CUDNN_MAJOR 7\n#define CUDNN_MINOR 6\n#define CUDNN_PATCHLEVEL 5\n")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return dict(CUDA, folder=str(folder))


def test_what_is_there_is_told(smi, cuda, monkeypatch):
    smi(TWO % ":")
    monkeypatch.setattr(gpus, "computes", lambda number, environment: {str(one): None for one in range(number)})
    answer = gpus.check(cuda)
    assert answer["listed"] == 2 and answer["driver"] == "470.256.02" and answer["computes"] == {"0": None, "1": None}
    assert (answer["nvcc"], answer["device_query"], answer["cudnn"]) == ("9.2.148", "Result = PASS", "7.6.5")
    assert answer["unresolved"] == ["libmxnet.so"]  # there is no MXNet where the tests run


def test_what_is_not_there_is_none(smi):
    smi("exit 9")
    answer = gpus.check(dict(CUDA, folder="/nowhere"))
    assert [answer[name] for name in ("driver", "nvcc", "device_query", "cudnn", "computes")] == [None, None, None, None, {}]


def test_a_gpu_that_does_not_compute_says_why(tmp_path, monkeypatch):
    (tmp_path / "numpy.py").write_text("bool = bool")
    (tmp_path / "mxnet.py").write_text("def gpu(number):\n    raise ValueError('GPU support is disabled\\nmore')\n"
                                       "class nd:\n    ones = staticmethod(lambda shape, gpu: None)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert gpus.computes(2, {}) == {"0": "GPU support is disabled", "1": "GPU support is disabled"}
    (tmp_path / "mxnet.py").write_text("import os; os.abort()")
    assert gpus.computes(1, {}) == {"0": "no answer"}
