"""A program that computes nothing and uses a GPU: it holds memory until its stdin ends.

`python -m tests.gpu.hold` uses the first GPU that CUDA_VISIBLE_DEVICES leaves, through libcuda
alone. It prints a line when it holds the memory.
"""

import contextlib
import ctypes
import os
import subprocess
import sys

from mxcluster.node.cuda_probe import Library

MEMORY = 256 << 20  # bytes, more than a driver keeps for a context of its own


def hold():
    """Hold the memory until stdin ends. Raises OSError or `cuda_probe.Failed`."""
    library = Library("libcuda.so.1")
    library.call("cuInit", 0)
    device = library.number("cuDeviceGet", 0)
    context, address = ctypes.c_void_p(), ctypes.c_uint64()
    library.call("cuCtxCreate_v2", ctypes.byref(context), 0, device)
    library.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(MEMORY))
    print("holds", flush=True)
    sys.stdin.read()


@contextlib.contextmanager
def held(environment):
    """Run this program while the block runs, and yield its process.

    The block may kill the process. Fails with the last line of stderr if the program holds nothing.

    Args: `environment` all variables of the program.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.gpu.hold"],
        env=environment,
        cwd=os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        if process.stdout.readline().strip() != b"holds":
            lines = process.communicate()[1].decode(errors="replace").strip().splitlines()
            raise AssertionError("no program can use a GPU: %s" % (lines or ["no output"])[-1])
        yield process
    finally:
        process.kill()
        process.communicate()


if __name__ == "__main__":
    hold()
