"""A stand-in for a machine with GPUs, which runs the rows of `make gpu` where no GPU is.

FAKE_GPUS is the number of its GPUs. The variable marks a stand-in, also on a machine with a real
GPU, so no row of a stand-in is "passed". The libraries are those of the unit tests (fake_cuda.c,
fake_nvml.c).
"""

import os
import pathlib
import shutil
import subprocess

SOURCES = pathlib.Path(__file__).resolve().parents[1] / "unit" / "node"
LIBRARIES = {
    "libcuda.so.1": "fake_cuda.c",
    "libcudart.so.11.0": "fake_cuda.c",
    "libcudnn.so.8": "fake_cuda.c",
    "libnccl.so.2": "fake_cuda.c",
    "libnvidia-ml.so.1": "fake_nvml.c",
}
SMI = """#!/bin/sh
# A stand-in for nvidia-smi. A program uses a GPU while its pid is in the file FAKE_APPS, and runs.
gpus() { seq 0 $((FAKE_GPUS - 1)); }
uuid() { u=$(printf '%x' $((160 + $1))); echo "GPU-$u$u$u$u-$u$u-$u$u-$u$u-$u$u$u$u$u$u"; }
apps() {
  while read -r slot pid; do
    case $(cat "/proc/$pid/stat" 2>/dev/null) in ''|*') Z '*) ;; *) echo "$slot $pid" ;; esac
  done <"$FAKE_APPS"
}
case "$*" in
  *query-gpu=memory.used*)
    for i in $(gpus); do echo "$(($(apps | grep -c "^$i ") * 300)) MiB"; done ;;
  *query-gpu=*)
    for i in $(gpus); do
      printf '%d, %s, 00000000:%X:00.0, Stand-in %d, 470.256.02\\n' $i "$(uuid $i)" $((59 + i)) $i
    done ;;
  *query-compute-apps=*)
    apps | while read -r slot pid; do
      echo "$(uuid "$slot"), $pid, $(readlink "/proc/$pid/exe")"
    done ;;
esac
"""
HEADER = "#define CUDNN_MAJOR 7\n#define CUDNN_MINOR 6\n#define CUDNN_PATCHLEVEL 5\n"
# A GPU of MXNet is a device of the CPU.
ON_CPU = """

def gpu(device_id=0):
    return Context("cpu", device_id)
"""


def build(folder):
    """Make the stand-in in `folder`, and return the environment variables that use it."""
    cuda, programs, apps = folder / "cuda", folder / "bin", folder / "apps"
    (cuda / "lib64").mkdir(parents=True)
    (cuda / "include").mkdir()
    (cuda / "include" / "cudnn.h").write_text(HEADER)
    programs.mkdir()
    apps.touch()
    for name, source in LIBRARIES.items():
        command = ["gcc", "-shared", "-fPIC", "-o", str(cuda / "lib64" / name)]
        subprocess.run([*command, str(SOURCES / source)], check=True)
    (programs / "nvidia-smi").write_text(SMI)
    (programs / "nvidia-smi").chmod(0o755)
    return {
        "PATH": "%s:%s" % (programs, os.environ["PATH"]),
        "MXCLUSTER_GPU_CUDA": str(cuda),
        "FAKE_APPS": str(apps),
        "FAKE_GPUS": "2",
        "FAKE_RUNTIME": "11020",
    }


def package(source, folder):
    """Copy MXNet's package `source` into `folder`, with GPUs that are devices of the CPU.

    Returns its path, for the variable MXCLUSTER_GPU_MXNET.
    """
    target = folder / "mxnet"
    shutil.copytree(str(source), str(target), ignore=shutil.ignore_patterns("*.pyc"))
    with open(str(target / "context.py"), "a") as stream:
        stream.write(ON_CPU)
    return target
