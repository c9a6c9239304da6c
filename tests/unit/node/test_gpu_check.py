"""The look at a node's GPUs, with a simulated nvidia-smi and libraries that the tests compile."""

import os
import pathlib
import shutil
import subprocess

import pytest

import mxcluster
from mxcluster.cluster.verify import gpus as judged
from mxcluster.model.check_answer import CudaDriver, CudaGpu, CudaRuntime, GpuFacts
from mxcluster.model.node_record import Cuda
from mxcluster.node import cuda_probe, gpu_check

HERE = pathlib.Path(__file__).parent
SMI = """#!/bin/sh
case "$*" in
  *query-gpu=index,uuid,pci.bus_id,name,driver_version*)
    i=0
    while [ $i -lt ${FAKE_GPUS:-2} ]; do
      u=$(printf '%x' $((160 + i)))
      printf '%d, GPU-%s, 00000000:%X:00.0, Fake %d, 470.256.02\\n' $i \\
        "$u$u$u$u-$u$u-$u$u-$u$u-$u$u$u$u$u$u" $((59 + i)) $i
      i=$((i + 1))
    done ;;
esac
"""
GPU = [{"uuid": "GPU-a0a0a0a0-a0a0-a0a0-a0a0-a0a0a0a0a0a0", "bus": "0000:3b:00.0"}]
GPU.append({"uuid": "GPU-a1a1a1a1-a1a1-a1a1-a1a1-a1a1a1a1a1a1", "bus": "0000:3c:00.0"})
WANTED = {
    "version": "9.2",
    "release": "9.2.148",
    "driver": "396.37",
    "cudnn": "7.6.5.32",
    "nccl": "2.7.8",
    "sass": ["3.0", "7.0"],
    "gpus": 2,
}
# What a node answers besides the probe.
HEALTHY = {
    "listed": [dict(gpu, bus="0000" + gpu["bus"]) for gpu in GPU],
    "driver": "470.256.02",
    "nouveau": False,
    "nvcc": "9.2.148",
    "cudnn": "7.6.5",
    "unresolved": [],
    "trials": {"0": None, "1": None, "0 -> 1": None, "1 -> 0": None},
}


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    """The path of the compiled libraries, which are one file."""
    path = tmp_path_factory.mktemp("fake") / "libfake.so"
    source = str(HERE / "fake_cuda.c")
    subprocess.run(["gcc", "-shared", "-fPIC", "-Wall", "-o", str(path), source], check=True)
    return path


@pytest.fixture
def cuda(tmp_path, monkeypatch, library):
    """The value `installed` of a node with nvidia-smi, a driver, CUDA, cuDNN and NCCL."""
    folder = tmp_path / "cuda-9.2"
    for name in ("libcuda.so.1", "libcudart.so.9.2", "libcudnn.so.7", "libnccl.so.2"):
        (folder / "lib64").mkdir(parents=True, exist_ok=True)
        shutil.copy(str(library), str(folder / "lib64" / name))  # one file would be loaded once
    for name, text in (
        ("bin/nvcc", "#!/bin/sh\necho 'Cuda compilation tools, release 9.2, V9.2.148'\n"),
        (
            "include/cudnn.h",
            "#define CUDNN_MAJOR 7\n#define CUDNN_MINOR 6\n#define CUDNN_PATCHLEVEL 5\n",
        ),
        ("smi/nvidia-smi", SMI),
    ):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder / "smi"), prepend=os.pathsep)
    monkeypatch.setattr(gpu_check, "trials", lambda number, _: HEALTHY["trials"])
    return dict(WANTED, folder=str(folder))


def results(cuda, answer=None):
    """Return {check: (result, why)} of verify.yml for a node, whose libraries are asked."""
    probe = gpu_check.probe(cuda["folder"], gpu_check.variables(cuda["folder"]))
    facts = GpuFacts.decode(dict(answer or HEALTHY, probe=None)).replaced(probe=probe)
    node = judged.Node(facts, Cuda.decode(cuda))
    return {label: _result(check, node) for label, check in judged.CHECKS}


def _result(check, node):
    try:
        check(node)
    except judged.Fault as fault:
        return False, str(fault)
    except judged.NotRun as reason:
        return None, str(reason)
    return True, ""


@pytest.mark.slow
def test_a_healthy_node_passes(cuda):
    facts = gpu_check.check(cuda["folder"])
    assert facts.unresolved == ["libmxnet.so"]  # the tests run without MXNet
    answer = dict(facts.encode(), unresolved=[])
    assert answer == dict(HEALTHY, probe=answer["probe"])
    assert set(results(cuda, answer).values()) == {(True, "")}
    assert facts.probe.driver == CudaDriver(
        version=11040,
        gpus=[
            CudaGpu(name="Fake %d" % number, capability="7.5", **gpu)
            for number, gpu in enumerate(GPU)
        ],
        peers=[[0, 1], [1, 0]],
    )
    assert facts.probe.runtime == CudaRuntime(version=9020, count=2)
    assert facts.probe.nccl == "2.7.8"


def test_cuda_counts_in_the_order_of_nvidia_smi(cuda, monkeypatch):
    """By default CUDA counts the fastest GPU first; a user's shell may hide GPUs."""
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert results(cuda)["CUDA shows the GPUs of nvidia-smi"] == (True, "")
    monkeypatch.setattr(gpu_check, "GPU_ORDER", {})
    result, why = results(cuda)["CUDA shows the GPUs of nvidia-smi"]
    assert result is False and why.startswith(
        "GPU 0 is GPU-a1a1a1a1-a1a1-a1a1-a1a1-a1a1a1a1a1a1 (bus 0000:3c:00.0) for CUDA, but G"
    )


@pytest.mark.parametrize("status", [min(judged.DRIVER), 719])
def test_a_status_of_the_driver_is_named_with_its_cure(cuda, monkeypatch, status):
    monkeypatch.setenv("FAKE_CALL", "cuInit")
    monkeypatch.setenv("FAKE_STATUS", str(status))
    name, cure = judged.DRIVER.get(status, ("", "see dmesg on this node"))
    said = "cuInit returned %d%s: %s" % (status, " (%s)" % name if name else "", cure)
    found = results(cuda)
    assert found["CUDA shows the GPUs of nvidia-smi"] == (False, said)
    assert found["MXNet's code for every GPU"] == (None, "CUDA shows no GPU")
    assert found["CUDA's runtime"] == (True, "")


@pytest.mark.parametrize("call", ["cuDeviceGetCount", "cuDeviceGetUuid", "cuDeviceCanAccessPeer"])
def test_a_failed_call_of_the_driver_is_named(cuda, monkeypatch, call):
    monkeypatch.setenv("FAKE_CALL", call)
    monkeypatch.setenv("FAKE_STATUS", "999")
    result, why = results(cuda)["CUDA shows the GPUs of nvidia-smi"]
    assert result is False
    assert why.startswith("%s returned 999 (unknown): /dev/nvidia-uvm is often missing" % call)


def test_a_failed_call_of_the_runtime_is_named_with_its_cure(cuda, monkeypatch):
    status, words = sorted(judged.RUNTIME.items())[0]
    monkeypatch.setenv("FAKE_CALL", "cudaGetDeviceCount")
    monkeypatch.setenv("FAKE_STATUS", str(status))
    found = results(cuda)
    text = "cudaGetDeviceCount returned %d (%s): %s" % ((status,) + words)
    assert found["CUDA's runtime"] == (False, text)
    assert found["CUDA shows the GPUs of nvidia-smi"] == (True, "")


def test_a_gpu_that_cuda_lacks_is_named(cuda):
    listed = GPU + [{"uuid": "GPU-a2", "bus": "0000:3d:00.0"}]
    result, why = results(cuda, dict(HEALTHY, listed=listed))["CUDA shows the GPUs of nvidia-smi"]
    assert result is False and why.startswith("CUDA shows 2 GPUs, but nvidia-smi 3: give the")


@pytest.mark.parametrize(
    "name, value, check, says",
    [
        ("FAKE_DRIVER", "9010", "CUDA's runtime", "supports CUDA up to 9.1, not 9.2: install"),
        ("FAKE_COUNT", "1", "CUDA's runtime", "libcudart shows 1 GPU, but nvidia-smi 2: run"),
        ("FAKE_CUDNN", "8204", "cuDNN", "cuDNN is 8.2.4, not 7.6.5.32: run provision.yml"),
        ("FAKE_NCCL", "21104", "NCCL", "NCCL is 2.11.4, not 2.7.8: run provision.yml"),
    ],
)
def test_another_answer_of_a_library_is_named(cuda, monkeypatch, name, value, check, says):
    monkeypatch.setenv(name, value)
    result, why = results(cuda)[check]
    assert result is False and says in why


@pytest.mark.parametrize(
    "lost, check, says",
    [
        ("libcuda.so.1", "CUDA shows the GPUs of nvidia-smi", "libcuda.so.1: cannot open shared"),
        ("libcudart.so.9.2", "CUDA's runtime", "lib64 has no libcudart.so.*"),
        ("libnccl.so.2", "NCCL", "NCCL is missing, not 2.7.8"),
    ],
)
def test_a_missing_library_is_named(cuda, lost, check, says):
    os.unlink(os.path.join(cuda["folder"], "lib64", lost))
    result, why = results(cuda)[check]
    assert result is False and says in why


def test_a_gpu_without_code_is_named(cuda):
    """It may be newer than the table of PCI numbers."""
    result, why = results(dict(cuda, sass=["5.0", "8.0"]))["MXNet's code for every GPU"]
    assert result is False and "not for GPU 0 (Fake 0, compute capability 7.5); GPU 1" in why


def test_without_a_driver_nothing_is_loaded(cuda, monkeypatch):
    monkeypatch.setenv("FAKE_GPUS", "0")
    facts = gpu_check.check("/nowhere")
    assert facts.listed == [] and facts.probe is None and facts.trials == {}
    assert (facts.driver, facts.nvcc, facts.cudnn) == (None, None, None)


def test_a_library_that_kills_its_process_is_named(cuda, tmp_path):
    broken = tmp_path / "broken.c"
    broken.write_text("#include <stdlib.h>\nint cuInit(unsigned flags) { abort(); }\n")
    target = os.path.join(cuda["folder"], "lib64", "libcuda.so.1")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", target, str(broken)], check=True)
    result, why = results(cuda)["CUDA shows the GPUs of nvidia-smi"]
    assert result is False and "no output" in why


def test_a_trial_that_ends_early_gives_its_error(tmp_path, monkeypatch):
    (tmp_path / "numpy.py").write_text("__version__ = '1.26.4'\n")
    (tmp_path / "mxnet.py").write_text("import os; os.abort()")
    package = os.path.dirname(os.path.dirname(mxcluster.__file__))
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join([str(tmp_path), package]))
    names = ("0", "1", "0 -> 1", "1 -> 0")
    assert gpu_check.trials(2, environment) == dict.fromkeys(names, "no output")
    (tmp_path / "mxnet.py").write_text("raise OSError('libcuda.so.1: cannot open')")
    assert gpu_check.trials(1, environment) == {
        "0": "cannot import MXNet: libcuda.so.1: cannot open"
    }


@pytest.mark.parametrize("linked, version", [("7", "7.6.5"), ("8", "8.2.4"), (None, "7.6.5")])
def test_the_cudnn_of_the_link_is_asked(tmp_path, monkeypatch, linked, version):
    """An earlier installation has left cuDNN 7 in the folder."""
    versions = {"libcudnn.so.7": 7605, "libcudnn.so.8": 8204}
    (tmp_path / "lib64").mkdir()
    for name in versions:
        (tmp_path / "lib64" / name).write_text("")
    if linked:
        (tmp_path / "lib64/libcudnn.so").symlink_to("libcudnn.so." + linked)

    class Loaded:
        def __init__(self, path):
            name = pathlib.Path(path).resolve().name
            self.cudnnGetVersion = lambda: versions[name]

    monkeypatch.setattr(cuda_probe.ctypes, "CDLL", Loaded)
    assert cuda_probe.cudnn(str(tmp_path)) == version
