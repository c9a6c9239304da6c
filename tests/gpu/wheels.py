"""Choose the MXNet and the CUDA of `make gpu` for the GPUs, the Python and the driver here.

All functions are pure. The tables of the product say which wheel has code for which GPU.
"""

from typing import NamedTuple

from mxcluster.cluster import pairs
from mxcluster.cluster.version_table import number, table

# The CUDA whose wheel of MXNet gets its libraries from PyPI (requirements/gpu.txt), and the version
# of libcudart there, in the form of cudaRuntimeGetVersion.
CUDA_OF_PYPI, RUNTIME_OF_PYPI = "11.2", 11080
NAMED = "MXCLUSTER_GPU_MXNET"


class Pair(NamedTuple):
    """A version of MXNet, and the CUDA of its wheel."""

    mxnet: str
    cuda: str


class Mxnet(NamedTuple):
    """The MXNet of the rows.

    `cuda` is the CUDA of a wheel of PyPI, and "" for a prepared MXNet, whose folder is `package`.
    `libraries` is the folder of CUDA, or "" to fetch the libraries from PyPI.
    """

    version: str
    cuda: str
    package: str
    libraries: str

    @property
    def described(self):
        """The MXNet in words."""
        if self.package:
            return "%s, prepared (%s)" % (self.version, NAMED)
        source = "the CUDA in %s" % self.libraries if self.libraries else "libraries of PyPI"
        return "%s for CUDA %s, with %s" % (self.version, self.cuda, source)


class Lacking(Exception):
    """There is no MXNet for this machine. The message is the reason, and says what to do."""


def fitting(capabilities, python, driver):
    """Return the Pairs that work on a machine, the newest MXNet and then the newest CUDA first.

    Args: `capabilities` of all GPUs, such as ["7.0"]; `python` such as "3.11"; `driver` a version.
    """
    found = []
    for mxnet, row in table().mxnet.items():
        for wanted in row.wheels:
            cuda = pairs.cuda_of(wanted)
            if (
                cuda
                and not wanted.endswith("-mkl")
                and python in pairs.pythons(mxnet)
                and number(driver) >= number(table().cuda[cuda].driver)
                and all(pairs.runs_on(mxnet, wanted, one) for one in capabilities)
            ):
                found.append(Pair(mxnet, cuda))
    return sorted(found, key=lambda pair: (number(pair.mxnet), number(pair.cuda)), reverse=True)


def without_code(capabilities):
    """Return those of `capabilities` that no wheel of the tables has code for."""
    wheels = [
        (mxnet, wanted)
        for mxnet, row in table().mxnet.items()
        for wanted in row.wheels
        if pairs.cuda_of(wanted)
    ]
    return [
        one
        for one in sorted(set(capabilities), key=number)
        if not any(pairs.runs_on(*wheel, one) for wheel in wheels)
    ]


def choose(capabilities, python, driver, newest, named, others):
    """Return the Mxnet for a machine. Raises Lacking.

    Args:
        capabilities: of all GPUs.
        python: the version of the Python that runs the rows, such as "3.11".
        driver: its version.
        newest: the newest CUDA of the driver, in the form of cuDriverGetVersion.
        named: {version of CUDA: its folder} of the folder that the user has named.
        others: the same of the other folders here, which may lack cuDNN and NCCL. So the libraries
            of PyPI come before them.
    """
    if not capabilities:
        raise Lacking("libcuda shows no GPU")
    lacks = without_code(capabilities)
    if lacks:
        raise Lacking(
            "no wheel has code for a GPU with the compute capability %s: prepare an MXNet, and "
            "name its folder in %s" % (", ".join(lacks), NAMED)
        )
    found = fitting(capabilities, python, driver)
    for pair in found:
        if pair.cuda in named:
            return Mxnet(pair.mxnet, pair.cuda, "", named[pair.cuda])
    for pair in found:
        if pair.cuda == CUDA_OF_PYPI and newest >= RUNTIME_OF_PYPI:
            return Mxnet(pair.mxnet, pair.cuda, "", "")
        if pair.cuda in others:
            return Mxnet(pair.mxnet, pair.cuda, "", others[pair.cuda])
    if not found:
        raise Lacking(
            "no wheel fits all of these: compute capability %s, Python %s, driver %s"
            % (", ".join(sorted(set(capabilities), key=number)), python, driver)
        )
    raise Lacking(
        "the wheels that fit need CUDA %s: install one of them with cuDNN and NCCL into "
        "/usr/local/cuda-X.Y, or name its folder in MXCLUSTER_GPU_CUDA"
        % " or ".join(sorted({pair.cuda for pair in found}, key=number))
    )
