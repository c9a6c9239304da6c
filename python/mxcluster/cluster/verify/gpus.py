"""Make the verdict's lines about GPUs from the check results of the nodes with GPUs."""

from typing import List, Mapping, NamedTuple, Tuple, TypeVar, Union

from mxcluster.cluster.version_table import has_code, number
from mxcluster.lists import several
from mxcluster.model.check_answer import (
    CallError,
    CheckError,
    CudaDriver,
    CudaProbe,
    CudaRuntime,
    GpuFacts,
)
from mxcluster.model.cluster_verdict import Line, line, skipped
from mxcluster.model.node_record import Cuda

T = TypeVar("T", CudaDriver, CudaRuntime)

NO_GPU = "no driver shows a GPU"


class Fault(Exception):
    """A failed check. The message has the fault and the cure."""


class NotRun(Exception):
    """A check without facts. The message is the reason."""


class Node(NamedTuple):
    """The GPUs of a node, and the CUDA of the plan for this node."""

    facts: GpuFacts
    wanted: Cuda


def judge(nodes: Mapping[str, Node]) -> List[Line]:
    """Return the verdict's lines about GPUs.

    The list is empty if no node has GPUs. If a check could not run on some nodes, one line "not
    run" names these nodes.

    Args: `nodes` {host: its GPUs}.
    """
    if not nodes:
        return []
    lines = []
    for label, check in CHECKS:
        faults, reasons = [], {}
        for host, node in sorted(nodes.items()):
            try:
                check(node)
            except Fault as fault:
                faults.append("%s: %s" % (host, fault))
            except NotRun as skip:
                reasons[host] = str(skip)
        if len(reasons) < len(nodes):
            lines.append(line(label, faults))
        if reasons:
            reason = next(iter(reasons.values()))
            lines.append(skipped(label, "%s: %s" % (", ".join(reasons), reason)))
    return lines


def driver(node: Node) -> None:
    """Check that a new enough driver is loaded and shows all GPUs of the PCI bus."""
    facts, wanted, on_bus = node.facts, node.wanted, node.wanted.gpus
    if not facts.driver:
        raise Fault(
            "the PCI bus has %s, but nvidia-smi shows none: install driver version %s or "
            "newer. If such a driver is installed, restart the node"
            % (several(on_bus, "GPU") if on_bus else "NVIDIA GPUs", wanted.driver)
        )
    if number(facts.driver) < number(wanted.driver or ""):
        raise Fault(
            "driver %s is older than %s, which CUDA %s needs: install a newer driver"
            % (facts.driver, wanted.driver, wanted.version)
        )
    if on_bus is None:
        raise NotRun("the node record has no number of GPUs: run provision.yml")
    if len(facts.listed) != on_bus:
        raise Fault(
            "nvidia-smi shows %s, but the PCI bus has %d: see dmesg on this node"
            % (several(len(facts.listed), "GPU"), on_bus)
        )


def nouveau(node: Node) -> None:
    """Check that the driver nouveau, which conflicts with NVIDIA's driver, is not loaded."""
    if node.facts.nouveau:
        raise Fault("the driver nouveau is loaded: restart the node")


def nvcc(node: Node) -> None:
    """Check that CUDA's compiler nvcc has the planned release."""
    found, release = node.facts.nvcc, node.wanted.release or ""
    if found is None:
        raise NotRun("only CUDA's libraries are installed")
    if found.split(".")[:2] != release.split(".")[:2]:
        raise Fault("nvcc has version %s, not %s: run provision.yml" % (found, release))


def libraries(node: Node) -> None:
    """Check that the dynamic linker finds all libraries that libmxnet.so needs."""
    if node.facts.unresolved:
        raise Fault(
            "libmxnet.so needs %s, which the linker does not find: run provision.yml"
            % ", ".join(node.facts.unresolved)
        )


def cuda_sees(node: Node) -> None:
    """Check that CUDA's driver library shows the GPUs of nvidia-smi, in the same order."""
    gpus, listed = _answered(_of_driver(node), DRIVER).gpus, node.facts.listed
    for index, (gpu, smi) in enumerate(zip(gpus, listed)):
        if (gpu.uuid or smi.uuid) != smi.uuid or _bus(gpu.bus) != _bus(smi.bus):
            raise Fault(
                "GPU %d is %s (bus %s) for CUDA, but %s (bus %s) for nvidia-smi: remove "
                "CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER from the settings of the node's users"
                % (index, gpu.uuid, _bus(gpu.bus), smi.uuid, _bus(smi.bus))
            )
    if len(gpus) != len(listed):
        raise Fault(
            "CUDA shows %s, but nvidia-smi %d: give the training user the right to open all of "
            "/dev/nvidia*" % (several(len(gpus), "GPU"), len(listed))
        )


def code(node: Node) -> None:
    """Check that MXNet has machine code for every GPU, also for a GPU outside the table."""
    sass, found = node.wanted.sass, _of_driver(node)
    if not sass:
        raise NotRun("an earlier version of mxcluster wrote the node record: run provision.yml")
    if not isinstance(found, CudaDriver):
        raise NotRun("CUDA shows no GPU")
    bad = [
        "GPU %d (%s, compute capability %s)" % (index, gpu.name, gpu.capability)
        for index, gpu in enumerate(found.gpus)
        if not has_code(sass, gpu.capability)
    ]
    if bad:
        raise Fault(
            "MXNet has code for the compute capabilities %s, and not for %s: set another "
            "mxnet_version and cuda_version" % (", ".join(sass), "; ".join(bad))
        )


def runtime(node: Node) -> None:
    """Check CUDA's runtime library: the planned version, a driver for it, and all GPUs."""
    probe, below = node.facts.probe, _of_driver(node)
    found = _answered(probe.runtime if isinstance(probe, CudaProbe) else probe, RUNTIME)
    wanted, version = node.wanted, node.wanted.version or ""
    major, minor = number(version)
    # libcudart has the version of the toolkit: 9020 for 9.2.
    if found.version != 1000 * major + 10 * minor:
        raise Fault(
            "libcudart in %s has version %s, not %s: run provision.yml"
            % (wanted.folder, _cuda(found.version), version)
        )
    if isinstance(below, CudaDriver) and below.version < found.version:
        raise Fault(
            "the driver %s supports CUDA up to %s, not %s: install driver %s or newer"
            % (node.facts.driver, _cuda(below.version), version, wanted.driver)
        )
    if found.count != len(node.facts.listed):
        raise Fault(
            "libcudart shows %s, but nvidia-smi %d: %s"
            % (several(found.count, "GPU"), len(node.facts.listed), RIGHTS)
        )


def cudnn(node: Node) -> None:
    """Check that cuDNN's header and the loaded library have the planned version."""
    wanted, probe = node.wanted.cudnn, node.facts.probe
    if not wanted:
        raise NotRun("cudnn_version is none")
    loaded = probe.cudnn if isinstance(probe, CudaProbe) else None
    for found in [node.facts.cudnn] + [loaded] * (loaded is not None):
        if found != ".".join(wanted.split(".")[:3]):
            raise Fault("cuDNN is %s, not %s: run provision.yml" % (found or "missing", wanted))


def nccl(node: Node) -> None:
    """Check that the loaded NCCL has the planned version."""
    wanted, probe = node.wanted.nccl, node.facts.probe
    if not wanted:
        raise NotRun("this MXNet contains NCCL")
    if probe is None:
        raise NotRun(NO_GPU)
    found = probe.nccl if isinstance(probe, CudaProbe) else None
    if found != wanted:
        raise Fault("NCCL is %s, not %s: run provision.yml" % (found or "missing", wanted))


def computes(node: Node) -> None:
    """Check that MXNet's test computation succeeded on every GPU."""
    if not node.facts.trials:
        raise NotRun(NO_GPU)
    bad = ["GPU %s: %s" % one for one in _failures(node) if "->" not in one[0]]
    if bad:
        raise Fault("; ".join(bad))


def copies(node: Node) -> None:
    """Check that data arrive unchanged in copies between all pairs of GPUs."""
    if not any("->" in one for one in node.facts.trials):
        raise NotRun("the driver shows fewer than two GPUs")
    bad = [one for one in _failures(node) if "->" in one[0]]
    below = _of_driver(node)
    peers = below.peers if isinstance(below, CudaDriver) else []
    direct = any([int(end) for end in one.split(" -> ")] in peers for one, _ in bad)
    if bad:
        raise Fault(
            "copies from GPU %s%s"
            % (
                "; ".join("%s: %s" % one for one in bad[:6]),
                ". The GPUs have direct access to each other, and an IOMMU or ACS of the PCI "
                "bridges may change the data. Switch off the IOMMU in the BIOS (intel_iommu=off, "
                "amd_iommu=off), or set MXNET_ENABLE_GPU_P2P=0 for the job"
                if direct
                else ": see dmesg on this node",
            )
        )


def _failures(node: Node) -> List[Tuple[str, str]]:
    """Return (GPU or pair of GPUs, fault) of each failed test computation and copy."""
    return [(what, why) for what, why in sorted(node.facts.trials.items()) if why]


def _of_driver(node: Node) -> Union[CudaDriver, CheckError, None]:
    """Return the facts of CUDA's driver library."""
    probe = node.facts.probe
    return probe.driver if isinstance(probe, CudaProbe) else probe


def _answered(found: Union[T, CheckError, None], known: Mapping[int, Tuple[str, str]]) -> T:
    """Return the facts `found`. Raises Fault for an error, and NotRun without an answer.

    Args: `known` {status of a call: (its meaning, the cure)}.
    """
    if found is None:
        raise NotRun(NO_GPU)
    if not isinstance(found, CheckError):
        return found
    status = found.status if isinstance(found, CallError) else None
    name, cure = known.get(status or 0, ("", "see dmesg on this node"))
    raise Fault("%s%s: %s" % (found.error, " (%s)" % name if name else "", cure))


def _bus(text: str) -> str:
    """Return a PCI address with four digits of the domain. nvidia-smi writes eight digits."""
    return text.lower()[-len("0000:3b:00.0") :]


def _cuda(version: int) -> str:
    """Return a version of CUDA's libraries as text, such as "9.2" for 9020."""
    return "%d.%d" % (version // 1000, version % 1000 // 10)


# The meaning of a status of libcuda (cuda.h, enum CUresult), and the cure.
RIGHTS = "run `nvidia-smi` as the training user, and give this user the right to open /dev/nvidia*"
RESTART = "restart the node"
UVM = "/dev/nvidia-uvm is often missing: run `nvidia-modprobe -u -c=0` as root"
DRIVER = {
    1: ("invalid value", RESTART),
    2: ("out of memory", "find the program on this GPU with `nvidia-smi`, and end this program"),
    3: ("not initialized", RESTART),
    34: ("stub library", "remove the folder stubs of the CUDA toolkit from the linker's path"),
    46: ("device unavailable", "end the program on this GPU, or run `nvidia-smi -c DEFAULT`"),
    100: ("no device", RIGHTS),
    101: ("invalid device", RESTART),
    304: ("operating system", RIGHTS),
    800: ("not permitted", RIGHTS),
    802: ("system not ready", "start nvidia-fabricmanager, and wait until it has started"),
    803: ("driver and library differ", "the loaded module has another version: restart the node"),
    804: ("compatibility package", "remove cuda-compat from the linker's path"),
    999: ("unknown", UVM),
}
# The meaning of a status of libcudart (driver_types.h, enum cudaError). CUDA 10.1 changed numbers.
RUNTIME = {
    35: ("driver too old", "install a newer driver, or set an older cuda_version"),
    38: ("no device", RIGHTS),
    30: ("unknown", UVM),
    **DRIVER,
}
CHECKS = (
    ("a driver that CUDA works with", driver),
    ("no nouveau", nouveau),
    ("CUDA shows the GPUs of nvidia-smi", cuda_sees),
    ("MXNet's code for every GPU", code),
    ("CUDA's compiler", nvcc),
    ("CUDA's runtime", runtime),
    ("the libraries that MXNet needs", libraries),
    ("cuDNN", cudnn),
    ("NCCL", nccl),
    ("MXNet computes on every GPU", computes),
    ("MXNet copies between all GPUs", copies),
)
