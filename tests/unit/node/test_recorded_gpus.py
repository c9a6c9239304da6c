"""The readers of NVIDIA's programs and files, with facts that people have recorded on real GPUs.

Each fact has the public thread that it comes from. The rows of nvidia-smi have the recorded values
in the order of our query, which no thread has exactly.
"""

import os

import pytest

from mxcluster.cluster.verify import gpus as judged
from mxcluster.model.check_answer import (
    CallError,
    CudaDriver,
    CudaGpu,
    CudaProbe,
    GpuFacts,
    ListedGpu,
)
from mxcluster.model.node_record import Cuda
from mxcluster.node import driver, gpus

# github.com/akash-network/provider-configs/pull/12: nvidia-smi and nvidia-smi -L of two GPUs
QUADRO = """\
0, GPU-c7b57be0-94ff-d352-a59b-d0ee00aeed43, 00000000:06:00.0, Quadro RTX 4000, 535.129.03
1, GPU-d6de6afc-bdfe-75c4-5273-0544439153fc, 00000000:07:00.0, Quadro RTX 4000, 535.129.03
"""
# github.com/presbrey/nvidia-munin-plugin/issues/2: the buses of four GPUs in two PCI domains. UUIDs
# and names are of github.com/psalias2006/gpu-hot/issues/64; the driver is made up.
DOMAINS = """\
0, GPU-e1924eea-b9bb-d537-39f2-b345087fa145, 00000000:B0:00.0, NVIDIA GeForce RTX 3090, 570.1
1, GPU-899c71bf-27be-b6a0-ae8f-d8afe5ba0f85, 00000000:D6:00.0, NVIDIA GeForce RTX 3090, 570.1
2, GPU-acd314e9-4c7a-4824-eb0f-b6e38b1ec38c, 00000001:B0:00.0, NVIDIA GeForce RTX 3090, 570.1
3, GPU-2639988f-1756-0583-db8f-faee38effce2, 00000001:D6:00.0, NVIDIA GeForce RTX 3090, 570.1
"""
# The exit statuses are those of the man page of nvidia-smi, quoted in
# github.com/Ricks-Lab/gpu-utils/issues/88.
FAILURES = {
    6: "No devices were found",
    9: "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
    18: "Failed to initialize NVML: Driver/library version mismatch",
}
# The file /proc/driver/nvidia/version: github.com/nix-community/nixGL/issues/121 and 186. The last
# is made up, in the proprietary form of github.com/NVIDIA/open-gpu-kernel-modules/issues/171.
VERSIONS = {
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  525.60.11  Release Build  "
    "(archlinux-builder@localhost)  \nGCC version:  gcc version 12.2.0 (GCC) \n": "525.60.11",
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  565.57.01  Release Build  "
    "(dvs-builder@U16-A24-9-2)  Thu Oct 10 12:15:00 UTC 2024\nGCC version:  gcc version 13.3.0 "
    "(Ubuntu 13.3.0-6ubuntu2~24.04)\n": "565.57.01",
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.256.02  Thu May  2 14:37:44 UTC 2024\n"
    "GCC version:  gcc version 4.8.5 20150623 (Red Hat 4.8.5-44) (GCC) \n": "470.256.02",
}


@pytest.fixture
def says(tmp_path, monkeypatch):
    """Return a function that writes an nvidia-smi with answers and an exit status."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(gpus, "PROC", str(tmp_path / "none"))

    def write(listed, apps="", status=0):
        for name, text in (("listed", listed), ("apps", apps)):
            (tmp_path / name).write_text(text)
        program = tmp_path / "nvidia-smi"
        program.write_text(
            "#!/bin/sh\ncd %s\ncase $1 in --query-gpu=*) cat listed ;; *) cat apps ;; esac\n"
            "exit %d\n" % (tmp_path, status)
        )
        program.chmod(0o755)

    return write


def test_two_gpus_are_listed(says):
    says(QUADRO)
    assert gpus.listed()[1] == gpus.Gpu(
        1,
        "GPU-d6de6afc-bdfe-75c4-5273-0544439153fc",
        "00000000:07:00.0",
        "Quadro RTX 4000",
        "535.129.03",
    )
    assert gpus.granted({"CUDA_VISIBLE_DEVICES": "GPU-d6de6afc,GPU-c7b57be0"}) == [1, 0]


@pytest.mark.parametrize("status, text", FAILURES.items())
def test_an_nvidia_smi_that_fails_lists_no_gpu(says, status, text):
    says(text + "\n", status=status)
    assert gpus.listed() == [] and gpus.count() == 0 and gpus.busy() == {}


def test_gpus_of_two_pci_domains_are_told_apart(says):
    """libcuda writes a domain with four digits (cuda.h, cuDeviceGetPCIBusId)."""
    says(DOMAINS)
    listed = gpus.listed()

    def node(order):
        shown = [
            CudaGpu(uuid=None, bus=listed[at].bus.lower()[4:], name="", capability="8.6")
            for at in order
        ]
        facts = GpuFacts(
            listed=[ListedGpu(uuid=gpu.uuid, bus=gpu.bus.lower()) for gpu in listed],
            driver="570.1",
            nouveau=False,
            nvcc=None,
            cudnn=None,
            unresolved=[],
            probe=CudaProbe(
                driver=CudaDriver(version=12080, gpus=shown, peers=[]),
                runtime=CallError(error=""),
                cudnn=None,
                nccl=None,
            ),
            trials={},
        )
        return judged.Node(facts, Cuda(folder="/cuda"))

    judged.cuda_sees(node([0, 1, 2, 3]))
    with pytest.raises(judged.Fault, match="GPU 0 is None .bus 0001:b0:00.0. for CUDA, but"):
        judged.cuda_sees(node([2, 1, 0, 3]))


def test_programs_of_a_desktop_are_users_of_a_gpu(says):
    """A public log of two RTX 4080 has these pids and programs among the computing programs."""
    uuid = "GPU-c7b57be0-94ff-d352-a59b-d0ee00aeed43"
    rows = ["5627, /usr/libexec/gnome-remote-desktop-daemon", "6374, /usr/NX/bin/nxnode.bin"]
    says(QUADRO, "".join("%s, %s\n" % (uuid, row) for row in rows))
    assert gpus.busy() == {0: "gnome-remote-desktop-daemon (pid 5627), nxnode.bin (pid 6374)"}


@pytest.mark.parametrize("text, version", VERSIONS.items(), ids=VERSIONS.values())
def test_the_version_of_the_module_is_read(tmp_path, text, version):
    (tmp_path / "version").write_text(text)
    assert driver.loaded_version(str(tmp_path / "version")) == version
