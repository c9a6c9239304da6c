"""The rows without MXNet: the driver, CUDA's libraries, and the product's code that asks them."""

import json
import os
import re
import subprocess
import sys

import pytest

from mxcluster.cluster.verify import gpus as judged
from mxcluster.errors import BadInput
from mxcluster.model.check_answer import CudaProbe, CudaRuntime, GpuFacts, ListedGpu
from mxcluster.model.node_record import Cuda
from mxcluster.node import driver, gpu_check, gpus
from tests import ansible_modules
from tests.gpu import machine
from tests.gpu.gates import CARD, CUDART, GPU, IDLE, KERNEL, LIBCUDA
from tests.gpu.hold import MEMORY, held
from tests.waiting import until

UUID = re.compile(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
BUS = re.compile(r"[0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]")
# A program that prints the UUIDs of the GPUs that libcuda shows, as JSON.
SHOW = "import json; from mxcluster.node import cuda_probe; " + (
    "print(json.dumps([gpu.uuid for gpu in cuda_probe.driver().gpus]))"
)
LOOK = "import json; from mxcluster.node import nvml; " + (
    "print(json.dumps(list((nvml.Nvml().look(0).memory or {}).items())))"
)


def environment(here, **more):
    """Return the variables of a program that uses CUDA as a worker does."""
    found = gpu_check.variables(here.folder) if here.folder else dict(os.environ)
    return dict(found, CUDA_DEVICE_ORDER="PCI_BUS_ID", **more)


def output_of(here, program, **more):
    """Return the output of a Python program, and fail with its last line of stderr."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment(here, **more),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    assert done.returncode == 0, (lines or ["no output"])[-1]
    return done.stdout.decode()


def judge(here, check):
    """Judge this machine as verify.yml does, with the CUDA that is here as the wanted one."""
    runtime = here.probe.runtime if isinstance(here.probe, CudaProbe) else None
    version = runtime.version if isinstance(runtime, CudaRuntime) else 0
    facts = GpuFacts(
        listed=[ListedGpu(uuid=gpu.uuid, bus=gpu.bus.lower()) for gpu in here.gpus],
        driver=here.driver,
        nouveau=os.path.isdir("/sys/module/nouveau"),
        nvcc=gpu_check.nvcc(here.folder),
        cudnn=gpu_check.cudnn(here.folder),
        unresolved=[],
        probe=here.probe,
        trials={},
    )
    wanted = Cuda(
        folder=here.folder or machine.NOWHERE,
        version="%d.%d" % (version // 1000, version % 1000 // 10),
        release=facts.nvcc,
        driver="0",
        gpus=len(here.gpus),
    )
    check(judged.Node(facts, wanted))


@pytest.mark.row("nvidia-smi lists the GPUs", GPU)
def test_nvidia_smi_is_parsed(here, seen):
    for number, gpu in enumerate(here.gpus):
        seen("GPU %d %s %s bus %s" % (gpu.number, gpu.name, gpu.uuid, gpu.bus))
        assert gpu.number == number and UUID.fullmatch(gpu.uuid) and BUS.fullmatch(gpu.bus), gpu
        assert re.fullmatch(r"[0-9]+(\.[0-9]+){1,2}", gpu.driver) and gpu.name, gpu
    assert gpus.count() == len(here.gpus)
    assert "not on this node" in gpus.problems([len(here.gpus)])[0]
    assert gpus.problems(list(range(len(here.gpus)))) == []


@pytest.mark.row("the PCI bus shows the GPUs of nvidia-smi", CARD)
def test_the_bus_shows_the_gpus(here, seen):
    seen("%d on the bus, %d in nvidia-smi" % (here.cards, len(here.gpus)))
    assert here.cards == len(here.gpus), "see `nvidia-smi` and dmesg: is the driver loaded?"


@pytest.mark.row("the loaded driver and its module", GPU, KERNEL)
def test_the_driver_is_read(here, seen):
    state = driver.state()
    seen("loaded %s, installed %s, nvidia-smi %s" % (state.loaded, state.installed, here.driver))
    assert state.loaded == here.driver and not state.nouveau, "the module is of another version"
    assert state.installed in (None, state.loaded), state.restart_reason()


@pytest.mark.row("the facts of the module mxcluster_machine", GPU, KERNEL)
def test_the_module_reads_the_machine(here, seen, tmp_path):
    answer = ansible_modules.run("mxcluster_machine", tmp_path, python=sys.executable)
    seen("driver %(driver)s, GPUs %(gpus)s, secure boot %(secure_boot)s" % answer)
    assert answer["rc"] == 0 and answer["driver"] == here.driver, "it reads another driver"
    assert len(answer["gpus"]) == here.cards, "it counts other GPUs on the bus: %d" % here.cards


@pytest.mark.row("libcuda: UUIDs, bus numbers and order of nvidia-smi", GPU)
def test_libcuda_shows_the_gpus_of_nvidia_smi(here, seen):
    for gpu in here.cuda_gpus:
        seen("%s %s capability %s" % (gpu.uuid, gpu.bus, gpu.capability))
    judge(here, judged.cuda_sees)


@pytest.mark.row("libcudart: version and number of GPUs", LIBCUDA, CUDART)
def test_libcudart_counts_the_gpus(here, seen):
    runtime = here.probe.runtime
    seen("cudaRuntimeGetVersion %s in %s" % (getattr(runtime, "version", runtime), here.folder))
    judge(here, judged.runtime)


@pytest.mark.row("nvcc, cuDNN and NCCL in the folder of CUDA", LIBCUDA, CUDART)
def test_the_versions_in_the_folder(here, seen):
    nvcc, header = gpu_check.nvcc(here.folder), gpu_check.cudnn(here.folder)
    seen("nvcc %s, cuDNN %s (header %s)" % (nvcc, here.probe.cudnn, header))
    seen("NCCL %s" % here.probe.nccl)
    assert os.path.exists(here.folder + "/bin/nvcc") == bool(nvcc)
    assert header is None or here.probe.cudnn in (None, header)


@pytest.mark.row("CUDA_VISIBLE_DEVICES by number, UUID and beginning of a UUID", LIBCUDA)
def test_visible_devices_choose_a_gpu(here, seen):
    everyone = [gpu.uuid for gpu in here.gpus]
    forms = {
        "number": lambda gpu: str(gpu.number),
        "UUID": lambda gpu: gpu.uuid,
        "beginning of the UUID": lambda gpu: _beginning(gpu, everyone),
    }
    for form, text in forms.items():
        for gpu in here.gpus:
            told = {"CUDA_VISIBLE_DEVICES": text(gpu)}
            assert gpus.granted(told) == [gpu.number], (form, told)
            assert json.loads(output_of(here, SHOW, **told)) == [gpu.uuid], (form, told)
        seen("by %s: each of %d GPUs" % (form, len(everyone)))
    backwards = ",".join(str(gpu.number) for gpu in reversed(here.gpus))
    shown = json.loads(output_of(here, SHOW, CUDA_VISIBLE_DEVICES=backwards))
    assert shown == everyone[::-1], "CUDA_VISIBLE_DEVICES=%s gives %s" % (backwards, shown)


def _beginning(gpu, everyone):
    """Return the shortest beginning of at least 12 characters that only this GPU's UUID has."""
    return next(
        gpu.uuid[:length]
        for length in range(12, len(gpu.uuid) + 1)
        if sum(uuid.startswith(gpu.uuid[:length]) for uuid in everyone) == 1
    )


@pytest.mark.row("no GPU is visible with an empty CUDA_VISIBLE_DEVICES", LIBCUDA)
def test_servers_see_no_gpu(here, seen):
    assert gpus.granted({"CUDA_VISIBLE_DEVICES": ""}) == []
    with pytest.raises(AssertionError, match="cuInit returned") as refused:
        output_of(here, SHOW, CUDA_VISIBLE_DEVICES="")
    seen(str(refused.value).splitlines()[0].split(": ")[-1])


@pytest.mark.row("a GPU that is not there is refused", GPU)
def test_another_gpu_is_refused(here, seen):
    absent = str(len(here.gpus))
    with pytest.raises(BadInput, match="gives the GPU %s " % absent) as refused:
        gpus.granted({"CUDA_VISIBLE_DEVICES": absent})
    seen(str(refused.value))


@pytest.mark.row("idle GPUs are not busy", GPU, IDLE)
def test_an_idle_gpu_is_not_busy(seen):
    assert gpus.busy() == {} and gpus.users() == {}
    seen("no program on a GPU")


@pytest.mark.row("a busy GPU is named with its program, and is idle after its end", LIBCUDA, IDLE)
def test_a_busy_gpu_is_named(here, seen):
    with held(environment(here, CUDA_VISIBLE_DEVICES=here.gpus[0].uuid)) as process:
        busy = until(gpus.busy, 30, "nvidia-smi names no program (another PID namespace?)")
        seen(busy.get(0, "GPU 0 is not busy"))
        assert list(busy) == [0] and "(pid %d)" % process.pid in busy[0], busy
        process.kill()
        until(lambda: not gpus.busy(), 60, gpus.busy)
    seen("idle after SIGKILL")


@pytest.mark.row("NVML tells the memory of a program", LIBCUDA, IDLE)
def test_nvml_tells_the_memory(here, seen):
    with held(environment(here, CUDA_VISIBLE_DEVICES=here.gpus[0].uuid)) as process:
        # NVML may write to stdout, too.
        lines = output_of(here, LOOK).splitlines()
        found = dict(json.loads(next(line for line in lines if line.startswith("["))))
        assert found and process.pid in found, "NVML tells the memory of the processes %s" % found
        seen("%d MiB of pid %d" % (found[process.pid] >> 20, process.pid))
        assert MEMORY <= found[process.pid] < MEMORY + (4 << 30)
