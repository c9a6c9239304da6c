"""Look at this machine for `make gpu`, with the functions that the product uses on a node."""

import glob
import os
import pathlib
import stat
import subprocess
import sys
from typing import Dict, List, NamedTuple, Optional, Union

from mxcluster.cluster.version_table import table
from mxcluster.model.check_answer import CheckError, CudaDriver, CudaGpu, CudaProbe, CudaRuntime
from mxcluster.node import driver, gpu_check, gpus
from tests.gpu import wheels

PROJECT = pathlib.Path(__file__).resolve().parents[2]
CUDA, MXNET = "MXCLUSTER_GPU_CUDA", wheels.NAMED  # the variables that name folders
CONTROL, MAJOR = "/dev/nvidiactl", 195  # NVIDIA's device number (Linux, devices.txt)
# Each stand-in sets this variable (stand_in.py). It is one on a machine with a real GPU, too.
STAND_IN = "FAKE_GPUS"
NOWHERE = "/nonexistent"  # the CUDA of a machine without one, for calls that need a folder


class Machine(NamedTuple):
    """The facts that decide which rows can run.

    `probe` is the answer of CUDA's libraries. `folder` is the folder of CUDA, "" without one.
    `mxnet` is None where no MXNet can run, and `without_mxnet` has the reason.
    """

    gpus: List[gpus.Gpu]
    cards: int
    busy: Dict[int, str]
    real: bool
    probe: Union[CheckError, CudaProbe]
    folder: str
    mxnet: Optional[wheels.Mxnet] = None
    without_mxnet: str = ""

    @property
    def cuda_gpus(self) -> List[CudaGpu]:
        """The GPUs that libcuda shows, [] after an error."""
        found = self.probe.driver if isinstance(self.probe, CudaProbe) else None
        return list(found.gpus) if isinstance(found, CudaDriver) else []

    @property
    def driver(self) -> Optional[str]:
        """The version of the driver."""
        return self.gpus[0].driver if self.gpus else None


def is_real(control: str = CONTROL, loaded: str = driver.LOADED) -> bool:
    """Return True if the kernel has NVIDIA's driver: its control device, and its file in /proc.

    A stand-in for nvidia-smi and libcuda has neither.
    """
    try:
        found = os.stat(control)
    except OSError:
        return False
    is_device = stat.S_ISCHR(found.st_mode) and os.major(found.st_rdev) == MAJOR
    return is_device and driver.loaded_version(loaded) is not None


def cuda_folders(environ, root: str = "/usr/local") -> List[str]:
    """Return the folders of CUDA with a libcudart: the named one first, then those in `root`."""
    named = [environ[CUDA]] if environ.get(CUDA) else []
    there = sorted(glob.glob(root + "/cuda-*")) + [root + "/cuda"]
    return [one for one in named + there if glob.glob(one + "/lib64/libcudart.so.*")]


def by_version(folders, version_in) -> Dict[str, str]:
    """Return {version of CUDA: folder} of folders, the first folder of each version.

    libcudart of a named folder may be of another release of CUDA 11 than its wheel: CUDA 11.3 and
    newer serve a wheel for 11.2 (NVIDIA, CUDA compatibility, minor version compatibility).

    Args: `version_in` a function that returns the answer of cudaRuntimeGetVersion in a folder, or
    None.
    """
    found: Dict[str, str] = {}
    for folder in folders:
        number = version_in(folder)
        if number is None:
            continue
        found.setdefault("%d.%d" % (number // 1000, number % 1000 // 10), folder)
        if 11020 < number < 12000:
            found.setdefault("11.2", folder)
    return {version: folder for version, folder in found.items() if version in table().cuda}


def probe(folder: str) -> Union[CheckError, CudaProbe]:
    """Return the answer of CUDA's libraries, with the CUDA in `folder`."""
    return gpu_check.probe(folder or NOWHERE, gpu_check.variables(folder or NOWHERE))


def runtime_of(folder: str) -> Optional[int]:
    """Return the answer of cudaRuntimeGetVersion in a folder, None without one."""
    found = probe(folder)
    runtime = found.runtime if isinstance(found, CudaProbe) else None
    return runtime.version if isinstance(runtime, CudaRuntime) else None


def version_of_package(folder: str) -> str:
    """Return the version of the package mxnet in `folder` without an import, "" for none."""
    program = "from mxcluster.node import software; print(software.versions()['mxnet'])"
    paths = [os.path.dirname(os.path.abspath(folder)), str(PROJECT / "python")]
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=dict(os.environ, PYTHONPATH=os.pathsep.join(paths)),
        stdout=subprocess.PIPE,
    )
    return done.stdout.decode().strip()


def look(environ=os.environ) -> Machine:
    """Return the facts of this machine."""
    folders = cuda_folders(environ)
    folder = folders[0] if folders else ""
    own = STAND_IN not in environ
    found = Machine(
        gpus=gpus.listed(),
        cards=gpus.cards() if own else 0,
        busy=gpus.busy(),
        real=own and is_real(),
        probe=probe(folder),
        folder=folder,
    )
    try:
        return found._replace(mxnet=_mxnet(found, environ, folders))
    except wheels.Lacking as reason:
        return found._replace(without_mxnet=str(reason))


def is_clone() -> bool:
    """Return True if git lists the files of the project, which the rows about MXNet copy."""
    try:
        done = subprocess.run(["git", "-C", str(PROJECT), "ls-files"], stdout=subprocess.DEVNULL)
    except OSError:
        return False
    return done.returncode == 0


def _mxnet(machine: Machine, environ, folders) -> wheels.Mxnet:
    """Return the Mxnet of a machine. Raises Lacking."""
    if not is_clone():
        raise wheels.Lacking("git lists no files here: install git, and run make gpu in a clone")
    package = environ.get(MXNET, "")
    if package:
        version = version_of_package(package)
        if version not in table().mxnet:
            raise wheels.Lacking(
                "%s=%s has no MXNet of a known version, but %r: name the folder of the package "
                "mxnet" % (MXNET, package, version)
            )
        return wheels.Mxnet(version, "", package, machine.folder)
    if not machine.real:
        raise wheels.Lacking("a stand-in for a GPU computes nothing")
    named = int(bool(environ.get(CUDA) and folders and folders[0] == environ[CUDA]))
    below = machine.probe.driver if isinstance(machine.probe, CudaProbe) else None
    return wheels.choose(
        [gpu.capability for gpu in machine.cuda_gpus],
        "%d.%d" % sys.version_info[:2],
        machine.driver or "0",
        below.version if isinstance(below, CudaDriver) else 0,
        by_version(folders[:named], runtime_of),
        by_version(folders[named:], runtime_of),
    )
