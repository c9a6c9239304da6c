"""A program: ask the libraries of driver, CUDA, cuDNN and NCCL for their versions and GPUs.

`python -m mxcluster.node.cuda_probe FOLDER` prints the answer as JSON. FOLDER is the folder of the
CUDA installation. The program calls the libraries through ctypes, because NVIDIA's deviceQuery
comes in a package that requires another driver. A broken library may end the process, so the
module gpu_check runs this program as a child.

The numbers of attributes and the arguments of the calls come from CUDA's header cuda.h.
"""

import binascii
import ctypes
import glob
import itertools
import json
import os
import sys
from typing import Callable, List, Optional, TypeVar, Union

from mxcluster.model.check_answer import CallError, CudaDriver, CudaGpu, CudaProbe, CudaRuntime

T = TypeVar("T")

MAJOR, MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR


class Failed(Exception):
    """Error for a call that returned another status than 0.

    Args: `call` the name of the called function; `status` the returned number.
    """

    def __init__(self, call: str, status: int):
        super(Failed, self).__init__("%s returned %d" % (call, status))
        self.call, self.status = call, status


class Library:
    """A shared library whose functions return a status, 0 for success.

    Args: `name` the soname or path. Raises OSError if the linker cannot find or load the library.
    """

    def __init__(self, name: str):
        self.loaded = ctypes.CDLL(name)

    def call(self, name: str, *arguments: object) -> None:
        """Call the function `name`. Raises Failed, or AttributeError for a missing function."""
        status = getattr(self.loaded, name)(*arguments)
        if status != 0:
            raise Failed(name, status)

    def number(self, name: str, *arguments: object) -> int:
        """Return the number that the function writes to its first argument, an int."""
        found = ctypes.c_int()
        self.call(name, ctypes.byref(found), *arguments)
        return found.value


def driver() -> CudaDriver:
    """Ask libcuda.so.1 for the newest CUDA that the driver supports, and for the GPUs."""
    library = Library("libcuda.so.1")
    library.call("cuInit", 0)
    count = library.number("cuDeviceGetCount")
    return CudaDriver(
        version=library.number("cuDriverGetVersion"),
        gpus=[gpu(library, index) for index in range(count)],
        peers=[
            pair
            for pair in itertools.permutations(range(count), 2)
            if library.number("cuDeviceCanAccessPeer", *pair)
        ],
    )


def gpu(library: Library, index: int) -> CudaGpu:
    """Return the GPU `index`."""
    device = library.number("cuDeviceGet", index)
    text = ctypes.create_string_buffer(256)
    library.call("cuDeviceGetName", text, len(text), device)
    name = text.value.decode("ascii", "replace")
    library.call("cuDeviceGetPCIBusId", text, len(text), device)
    major, minor = (library.number("cuDeviceGetAttribute", one, device) for one in (MAJOR, MINOR))
    return CudaGpu(
        uuid=uuid(library, device),
        bus=text.value.decode("ascii", "replace").lower(),
        name=name,
        capability="%d.%d" % (major, minor),
    )


def uuid(library: Library, device: int) -> Optional[str]:
    """Return the UUID of a GPU in nvidia-smi's form, "GPU-8932f937-...".

    Returns None for a driver before 396, which lacks the function for UUIDs.
    """
    if not hasattr(library.loaded, "cuDeviceGetUuid"):
        return None
    raw = ctypes.create_string_buffer(16)
    library.call("cuDeviceGetUuid", raw, device)
    digits = binascii.hexlify(raw.raw).decode("ascii")
    return "GPU-" + "-".join(
        digits[begin:end] for begin, end in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32))
    )


def runtime(folder: str) -> CudaRuntime:
    """Ask libcudart in `folder` for its version and the number of GPUs."""
    library = Library(in_folder(folder, "libcudart.so.*"))
    version = library.number("cudaRuntimeGetVersion")
    return CudaRuntime(version=version, count=library.number("cudaGetDeviceCount"))


def answer(ask: Callable[[], T]) -> Union[CallError, T]:
    """Return the answer of a library, or the error without the library or after a failed call."""
    try:
        return ask()
    except Failed as failed:
        return CallError(error=str(failed), status=failed.status)
    except (OSError, AttributeError) as error:
        return CallError(error=str(error))


def cudnn(folder: str) -> Optional[str]:
    """Load cuDNN in `folder`, and return the version, such as "7.6.5", or None without cuDNN.

    A folder may hold the cuDNN 7 of an earlier installation beside cuDNN 8. The link libcudnn.so
    belongs to the last installation.
    """
    try:
        linked = os.path.join(folder, "lib64", "libcudnn.so")
        path = linked if os.path.exists(linked) else in_folder(folder, "libcudnn.so.[0-9]")
        version = ctypes.CDLL(path).cudnnGetVersion
    except (OSError, AttributeError):
        return None
    version.restype = ctypes.c_size_t
    major, rest = divmod(version(), 1000)
    return "%d.%d.%d" % (major, rest // 100, rest % 100)


def nccl(folder: str) -> Optional[str]:
    """Load NCCL in `folder`, and return the version, such as "2.7.8", or None without NCCL.

    NCCL returns 2708 for 2.7.8, and 21104 for 2.11.4. The second form begins with NCCL 2.9.
    """
    try:
        version = Library(in_folder(folder, "libnccl.so.2")).number("ncclGetVersion")
    except (OSError, AttributeError, Failed):
        return None
    major, rest = divmod(version, 10000 if version >= 10000 else 1000)
    return "%d.%d.%d" % (major, rest // 100, rest % 100)


def in_folder(folder: str, pattern: str) -> str:
    """Return the first file in the folder lib64 of `folder` that matches the glob `pattern`.

    Raises OSError if no file matches.
    """
    found = sorted(glob.glob(os.path.join(folder, "lib64", pattern)))
    if not found:
        raise OSError("%s/lib64 has no %s" % (folder, pattern))
    return found[0]


def main(argv: List[str]) -> None:
    """Print the answer for the CUDA in the folder `argv[0]`."""
    folder = argv[0]
    found = CudaProbe(
        driver=answer(driver),
        runtime=answer(lambda: runtime(folder)),
        cudnn=cudnn(folder),
        nccl=nccl(folder),
    )
    print(json.dumps(found.encode()))


if __name__ == "__main__":
    main(sys.argv[1:])
