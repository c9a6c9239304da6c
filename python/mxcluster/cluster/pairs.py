"""Decide which MXNet works with which CUDA, Python, GPU and driver, and what the pair needs.

A pair is an MXNet version and a target such as "cu92". For each GPU wheel, gpu_wheels.yml lists the
libraries that its libmxnet.so needs, and the GPUs for which the wheel has code.
"""

import re
from typing import Iterable, List, NamedTuple, Optional, Sequence

from mxcluster.cluster.version_table import (
    chip,
    cuda_row,
    gpu_wheel,
    has_code,
    mxnet_row,
    nearest,
    number,
    row,
    table,
)
from mxcluster.errors import BadInput
from mxcluster.model.software import Build, Environment, LibraryFile

# The files of the tables, in messages about a missing row.
_MXNET = "python/mxcluster/cluster/mxnet.yml: "
_VERSIONS = "python/mxcluster/cluster/versions.yml: "
CPU = "cpu"
ON_CPU = 'set cuda_version: "" to train on the CPU'


class Needs(NamedTuple):
    """The libraries that a wheel needs from the node. A wheel without a need contains the library.

    Attributes:
        cudnn: the major version of cuDNN such as "8", or None.
        nccl: whether the wheel needs NCCL.
        libcuda: whether the wheel needs libcuda.so.1, a library of the driver.
    """

    cudnn: Optional[str]
    nccl: bool
    libcuda: bool


class Node(NamedTuple):
    """The facts of a node that limit the pairs."""

    python: Optional[str]  # a version such as "3.6", None if unknown
    gpus: Sequence[str]  # PCI device numbers
    driver: Optional[str]  # the version of the node's driver
    libcuda: bool  # True if the node has a driver, or if mxcluster installs one


class Misfit(BadInput):
    """Error for a pair that does not work on a node. The message is the reason.

    Args: `reason` the message; `cures` remedies beside another pair, as imperatives.
    """

    def __init__(self, reason: str, cures: Sequence[str] = ()) -> None:
        super().__init__(reason)
        self.cures = list(cures)


def target(cuda: str, mkl: bool = False) -> str:
    """Return the target of a wheel, such as "cpu", "cu92", "cpu-mkl" or "cu92-mkl".

    Args: `cuda` a version such as "9.2", or "" for a CPU target; `mkl` True for a target with MKL.
    """
    return ("cu" + cuda.replace(".", "") if cuda else CPU) + ("-mkl" if mkl else "")


def spoken(wanted: str) -> str:
    """Return a target as words for messages, such as "CUDA 9.2 with MKL" for "cu92-mkl"."""
    cuda = cuda_of(wanted)
    return ("CUDA " + cuda if cuda else "CPUs only") + (
        " with MKL" if wanted.endswith("-mkl") else ""
    )


def cuda_of(wanted: str) -> str:
    """Return the CUDA version of a target, such as "9.2" for "cu92-mkl", or "" for "cpu"."""
    digits = re.sub(r"\D", "", wanted)
    return "%s.%s" % (digits[:-1], digits[-1]) if digits else ""


def wheel(mxnet: str, wanted: str) -> str:
    """Return the wheel of an MXNet version for a target.

    The result for ("1.2.1", "cu92") is "mxnet-cu92==1.2.1.post1". Raises Misfit if the table has no
    such wheel.

    Args: `mxnet` the version; `wanted` the target, as `target` returns it.
    """
    wheels = mxnet_row(mxnet).wheels
    if wanted not in wheels:
        raise Misfit(
            "MXNet %s has no wheel for %s" % (mxnet, spoken(wanted)),
            ["set mxnet_build: openblas"] if wanted.endswith("-mkl") else [],
        )
    return wheels[wanted]


def environment(mxnet: str, wanted: str) -> Environment:
    """Return the wheels of an MXNet version for a target, for each Python that this MXNet supports.

    Raises Misfit if MXNet has no wheel for the target.

    Args: `mxnet` the version; `wanted` the target.
    """
    first = wheel(mxnet, wanted)
    known, builds, hashes = mxnet_row(mxnet), [], {}
    for numpy, versions in known.pythons.items():
        for python in versions:
            stand = row(table().pythons, _MXNET + "pythons", python)
            wheels = [first, numpy, stand.graphviz, *stand.beside]
            builds.append(Build(python=[python], pip=stand.pip, wheels=wheels))
            for one in [*wheels, stand.pip]:
                hashes[one] = row(table().wheel_sha256, _MXNET + "wheel_sha256", one)
    name = "MXNet %s for %s" % (mxnet, spoken(wanted))
    return Environment(builds=builds, hashes=hashes, name=name, note=known.note)


def pythons(mxnet: str) -> List[str]:
    """Return the versions of Python that the MXNet version `mxnet` supports, the oldest first."""
    return sorted(
        (python for known in mxnet_row(mxnet).pythons.values() for python in known), key=number
    )


def check(mxnet: str, wanted: str, node: Node) -> None:
    """Raise BadInput if a pair does not work on a node.

    The message has the reason, the nearest pairs that work on this node, and other cures.

    Args: `mxnet` the version; `wanted` the target.
    """
    try:
        _check(mxnet, wanted, node)
    except Misfit as misfit:
        cures = _nearest_pairs(mxnet, wanted, node) + misfit.cures
        if not cures and cuda_of(wanted):
            cures = [ON_CPU]
        raise BadInput("%s: %s" % (misfit, "; or ".join(cures))) from None


def _check(mxnet: str, wanted: str, node: Node) -> None:
    wheel(mxnet, wanted)
    check_python(mxnet, node.python)
    if cuda_of(wanted):
        check_gpus(mxnet, wanted, node.gpus)
        check_driver(cuda_of(wanted), node.driver)
        if needs(mxnet, wanted).libcuda and not node.libcuda:
            raise Misfit(
                "the node has GPUs and no driver, but the import of MXNet %s for %s needs a driver"
                % (mxnet, spoken(wanted)),
                ["install driver %s or newer" % cuda_row(cuda_of(wanted)).driver, ON_CPU],
            )


def _works(mxnet: str, wanted: str, node: Node) -> bool:
    try:
        _check(mxnet, wanted, node)
    except Misfit:
        return False
    return True


def _nearest_pairs(mxnet: str, wanted: str, node: Node) -> List[str]:
    """Return the settings of the nearest pairs that work on the node, as imperatives.

    If possible, a setting changes only the MXNet version or only the CUDA version. Otherwise the
    function returns one imperative that changes both versions.
    """
    mkl = wanted.endswith("-mkl")
    cuda = cuda_of(wanted)

    def cudas(version: str) -> List[str]:
        every = list(table().cuda) if cuda else [""]
        return [one for one in every if _works(version, target(one, mkl), node)]

    by_mxnet = {version: cudas(version) for version in table().mxnet}
    same = [version for version, found in by_mxnet.items() if cuda in found]
    cures = []
    if same:
        cures.append('set mxnet_version: "%s"' % nearest(mxnet, same))
    if by_mxnet[mxnet]:
        cures.append('set cuda_version: "%s"' % nearest(cuda, by_mxnet[mxnet]))
    others = [version for version, found in by_mxnet.items() if found]
    if others and not cures:
        other = nearest(mxnet, others)
        cures.append(
            'set mxnet_version: "%s" and cuda_version: "%s"'
            % (other, nearest(cuda, by_mxnet[other]))
        )
    return cures


def check_python(mxnet: str, python: Optional[str]) -> None:
    """Raise BadInput if the MXNet version `mxnet` does not support a version of Python.

    Args: `python` a version such as "3.6". The function accepts None, an unknown version.
    """
    if python is None or python in pythons(mxnet):
        return
    if number(python) < (3, 6):
        raise BadInput(
            "Python %s is too old for mxcluster's nodes: install Python 3.6 (CentOS 7: yum install "
            "python3), and set mxnet_python to the path of Python 3.6" % python
        )
    raise Misfit(
        "MXNet %s does not run on Python %s, only on %s. %s"
        % (mxnet, python, ", ".join(pythons(mxnet)), mxnet_row(mxnet).note.rstrip(".")),
        ["set mxnet_python to another interpreter"],
    )


def runs_on(mxnet: str, wanted: str, capability: str) -> bool:
    """Return True if a pair's wheel has machine code for GPUs of a compute capability.

    The function ignores PTX. The driver would compile MXNet's kernels from PTX for a newer GPU, but
    cuBLAS and cuDNN of that CUDA do not support the newer GPU.

    Args: `mxnet` the version; `wanted` the target; `capability` such as "3.7".
    """
    return has_code(compiled_for(mxnet, wanted), capability)


def compiled_for(mxnet: str, wanted: str) -> Sequence[str]:
    """Return the compute capabilities of the machine code in a pair's wheel: ["3.0", ...]."""
    return gpu_wheel(wheel(mxnet, wanted)).sass


def check_gpus(mxnet: str, wanted: str, devices: Iterable[str]) -> None:
    """Raise Misfit if a pair's wheel has no code for a GPU of a node.

    Args: `devices` PCI device numbers (hexadecimal texts).
    """
    sass = compiled_for(mxnet, wanted)
    for device in sorted(set(devices)):
        name, capability = chip(device)
        # the table lacks newer devices: accept an unknown device
        if capability is None or has_code(sass, capability):
            continue
        raise Misfit(
            "MXNet %s for %s has no code for the GPU %s (%s, compute capability %s), only for the "
            "compute capabilities %s"
            % (mxnet, spoken(wanted), device, name, capability, ", ".join(sass)),
            ["remove the GPU from the node", ON_CPU],
        )


def check_driver(cuda: str, driver: Optional[str]) -> None:
    """Raise Misfit if a node's driver is too old for a CUDA version.

    Args: `cuda` such as "9.2"; `driver` the driver's version, None without a driver.
    """
    least = cuda_row(cuda).driver
    if driver and number(driver) < number(least):
        raise Misfit(
            "the driver %s is too old for CUDA %s, which needs %s or newer" % (driver, cuda, least),
            ["install a newer driver"],
        )


def needs(mxnet: str, wanted: str) -> Needs:
    """Return the libraries that a pair's wheel needs from the node."""
    needed = gpu_wheel(wheel(mxnet, wanted)).needed
    majors = [one.split(".so.")[1] for one in needed if one.startswith("libcudnn.so.")]
    return Needs(
        cudnn=majors[0] if majors else None,
        nccl="libnccl.so.2" in needed,
        libcuda="libcuda.so.1" in needed,
    )


def cudnn(mxnet: str, wanted: str, version: str = "") -> Optional[LibraryFile]:
    """Return the cuDNN for a pair, or None for no cuDNN.

    Args: `mxnet` the version; `wanted` the target; `version` such as "7.6.5" or "7.6.5.32", "" for
    the table's choice, "none" for no cuDNN.

    Raises BadInput if the table has no such cuDNN, or if the wheel needs another major version.
    """
    cuda, major = cuda_of(wanted), needs(mxnet, wanted).cudnn
    rows = row(table().cudnn, _VERSIONS + "cudnn", cuda)
    fitting = [known for known in rows if major in (None, known.split(".")[0])]
    if version == "none" and major is None:
        return None
    found = (
        [one for one in fitting if one == version or one.startswith(version + ".")]
        if version
        else [cuda_row(cuda).cudnn]
    )
    if not found:
        reason = "mxcluster's table has no cuDNN %s for CUDA %s" % (version, cuda)
        if major:
            reason = "MXNet %s for %s needs cuDNN %s, but " % (mxnet, spoken(wanted), major)
            reason += "cudnn_version is " + version
        cure = "set cudnn_version to %s, or remove the setting" % " or ".join(fitting)
        raise BadInput("%s: %s" % (reason, cure))
    return row(rows, _VERSIONS + "cudnn.%s" % cuda, found[-1])


def nccl(mxnet: str, wanted: str) -> Optional[LibraryFile]:
    """Return the NCCL for a pair, or None for no NCCL.

    A wheel that needs no NCCL contains NCCL.
    """
    if not needs(mxnet, wanted).nccl:
        return None
    return row(table().nccl, _VERSIONS + "nccl", cuda_of(wanted))
