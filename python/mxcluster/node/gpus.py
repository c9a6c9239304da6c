"""List the NVIDIA GPUs of a node, and test whether MXNet can compute on each GPU."""

import glob
import importlib.util
import json
import os
import re
import subprocess
import sys
from typing import Any, Dict, List, NamedTuple, Optional

from mxcluster.environment import GPU_ORDER

Json = Dict[str, Any]
Gpu = NamedTuple("Gpu", [("number", int), ("uuid", str), ("name", str), ("driver", str)])

PROC = "/proc/driver/nvidia/gpus"
SECONDS = 20  # timeout of nvidia-smi, which may have to load the driver
FIRST_SECONDS = 300  # timeout of MXNet on all GPUs: the driver may first compile MXNet's code
# The test from MXNet's page "Validate your installation"
# (mxnet.apache.org/get_started/validate_mxnet), for every GPU.
ONES = """
import json, sys
from mxcluster.node import mxnet_compat
mx = mxnet_compat.import_mxnet()
for number in range(int(sys.argv[1])):
    try:
        there = (mx.nd.ones((2, 3), mx.gpu(number)) * 2 + 1).asnumpy()
        why = None if (there == 3).all() else "ones * 2 + 1 is %s" % there.tolist()
    except Exception as error:
        why = str(error).strip().splitlines()[0]
    print("\\nGPU " + json.dumps([number, why]), flush=True)
"""


def ask(option: str) -> List[List[str]]:
    """Run nvidia-smi with the query `option`, and return the rows, each a list of strings.

    Returns [] if nvidia-smi is missing or fails, for example because the versions of driver and
    library differ.
    """
    said = said_by(["nvidia-smi", option, "--format=csv,noheader"], seconds=SECONDS) or ""
    return [re.split(r",\s*", line.strip()) for line in said.splitlines() if line.strip()]


def listed() -> List[Gpu]:
    """Return the GPUs that the driver lists, sorted by number.

    Returns [] if nvidia-smi is missing, fails or lists no GPU.
    """
    rows = ask("--query-gpu=index,uuid,name,driver_version")
    return sorted(Gpu(int(row[0]), *row[1:4]) for row in rows if len(row) >= 4 and row[0].isdigit())


def count() -> int:
    """Return the number of NVIDIA GPUs from nvidia-smi, else from the driver's files in /proc."""
    return len(listed()) or len(glob.glob(PROC + "/*"))


def users() -> Dict[str, List[str]]:
    """Return {uuid of a busy GPU: [program, ...]}, with programs such as "python3 (pid 4711)"."""
    found = {}  # type: Dict[str, List[str]]
    for row in ask("--query-compute-apps=gpu_uuid,pid,process_name"):
        if len(row) >= 3:
            found.setdefault(row[0], []).append("%s (pid %s)" % (os.path.basename(row[2]), row[1]))
    return found


def problems(wanted: List[int]) -> List[str]:
    """Return [message] if GPUs of `wanted` (GPU numbers) are missing on this node, else [].

    The message names the missing GPUs and the cure.
    """
    number = count()
    missing = [one for one in wanted if not 0 <= one < number]
    if not missing:
        return []
    cure = (
        "; the node has GPUs %s: correct -e gpus" % ", ".join(map(str, range(number)))
        if number
        else ": nvidia-smi and %s show no GPU; set -e gpus='' to train on the CPU, "
        "or install the driver" % PROC
    )
    return [
        "GPU%s %s %s not on this node%s"
        % (
            "s" if len(missing) > 1 else "",
            ", ".join(map(str, missing)),
            "are" if len(missing) > 1 else "is",
            cure,
        )
    ]


def unlike(wanted: Optional[Json]) -> Optional[str]:
    """Return a message if this node has another number of GPUs than provision.yml found, else None.

    `wanted`: {"record": number of GPUs that provision.yml found, "bus": number of GPUs on the PCI
    bus if provision.yml chose an MXNet for GPUs, else 0}. `wanted` and the result are None for a
    job that does not use all GPUs.
    """
    if not wanted:
        return None
    bus = int(wanted["bus"])
    there = len(listed()) if bus else count()
    if there < bus:
        return (
            "the PCI bus has %d GPUs and the driver shows %d: see `nvidia-smi` and `dmesg` on this "
            "node, load the driver or restart the node, and run provision.yml; or train on the CPU "
            "with -e gpus=''" % (bus, there)
        )
    if there != wanted["record"]:
        return (
            "the node has %d GPUs now, and had %d at its last provision.yml: see `nvidia-smi` on "
            "this node, and run provision.yml; or train on the CPU with -e gpus=''"
            % (there, wanted["record"])
        )
    return None


def busy() -> Dict[int, str]:
    """Return {number of a busy GPU: the programs that compute on this GPU, as one string}."""
    there = listed()
    programs = users() if there else {}
    return {gpu.number: ", ".join(programs[gpu.uuid]) for gpu in there if programs.get(gpu.uuid)}


def check(cuda: Json) -> Json:
    """Return the GPU facts of a node for verify.yml.

    The result is {"listed": number of GPUs, "driver": version, "nouveau": True if this kernel
    module is loaded, "nvcc": version, "device_query": last line of deviceQuery, "cudnn": version,
    "unresolved": [library, ...], "computes": {"0": None or the error, ...}}. A version or line is
    None if the program, header or driver is missing. Without a driver "listed" is 0, and "computes"
    is {}.

    `cuda`: {"folder": path of the CUDA installation}. The function ignores other keys.
    """
    there = listed()
    paths = {"LD_LIBRARY_PATH": cuda["folder"] + "/lib64"}
    return {
        "listed": len(there),
        "driver": there[0].driver if there else None,
        "nouveau": os.path.isdir("/sys/module/nouveau"),
        "nvcc": nvcc(cuda["folder"]),
        "device_query": device_query(cuda["folder"]) if there else None,
        "cudnn": cudnn(cuda["folder"]),
        "unresolved": unresolved(paths),
        "computes": computes(len(there), paths) if there else {},
    }


def nvcc(folder: str) -> Optional[str]:
    """Return the version of CUDA's compiler in `folder`, such as "9.2.148".

    Returns None if the compiler is missing.
    """
    said = said_by([folder + "/bin/nvcc", "--version"])
    found = re.search(r"\bV(\d+(?:\.\d+)+)", said or "")
    return found.group(1) if found else None


def device_query(folder: str) -> Optional[str]:
    """Return the last line of NVIDIA's deviceQuery in `folder`, or None without this program."""
    program = folder + "/extras/demo_suite/deviceQuery"
    if not os.access(program, os.X_OK):
        return None
    return ((said_by([program]) or "").strip().splitlines() or ["an error or a timeout"])[-1]


def cudnn(folder: str) -> Optional[str]:
    """Return the version in cuDNN's header in `folder`, such as "7.6.5".

    Returns None if the header is missing or has no version.
    """
    numbers = {}  # type: Dict[str, str]
    for name in ("cudnn_version.h", "cudnn.h"):
        try:
            with open(
                os.path.join(folder, "include", name), encoding="utf-8", errors="replace"
            ) as stream:
                numbers.update(
                    re.findall(r"#define\s+CUDNN_(MAJOR|MINOR|PATCHLEVEL)\s+(\d+)", stream.read())
                )
        except OSError:
            continue
    return "%(MAJOR)s.%(MINOR)s.%(PATCHLEVEL)s" % numbers if len(numbers) == 3 else None


def unresolved(environment: Dict[str, str]) -> List[str]:
    """Return the libraries that libmxnet.so needs and that the linker cannot find.

    `environment`: further variables for the linker, such as LD_LIBRARY_PATH.
    """
    spec = importlib.util.find_spec("mxnet")
    if spec is None or not spec.origin:
        return ["libmxnet.so"]
    said = (
        said_by(["ldd", os.path.join(os.path.dirname(spec.origin), "libmxnet.so")], environment)
        or "ldd => not found"
    )
    return [line.split()[0] for line in said.splitlines() if "not found" in line]


def computes(number: int, environment: Dict[str, str]) -> Dict[str, Optional[str]]:
    """Compute with MXNet on each GPU, and return {"0": None, "1": the error, ...}.

    None stands for success. `number`: the number of GPUs to test. A child process with the
    variables `environment` runs MXNet.
    """
    child = subprocess.Popen(
        [sys.executable, "-c", ONES, str(number)],
        env=dict(os.environ, **dict(environment, **GPU_ORDER)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        out, err = child.communicate(timeout=FIRST_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        out, err = child.communicate()
    told = dict(
        json.loads(line[len("GPU ") :])
        for line in out.decode(errors="replace").splitlines()
        if line.startswith("GPU ")
    )
    last = (err.decode(errors="replace").strip().splitlines() or ["no output"])[-1]
    return {str(one): told.get(one, last) for one in range(number)}


def said_by(
    argv: List[str], environment: Optional[Dict[str, str]] = None, seconds: float = FIRST_SECONDS
) -> Optional[str]:
    """Run the program `argv`, and return its stdout, or None if the program fails or is missing.

    `environment`: further variables of the program. `seconds`: the timeout, after which the result
    is None.
    """
    try:
        return subprocess.check_output(
            argv,
            env=dict(os.environ, **dict(environment or {}, **GPU_ORDER)),
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=seconds,
        ).decode(errors="replace")
    except (OSError, subprocess.SubprocessError):
        return None
