"""Test the GPUs of a node for verify.yml: the driver, CUDA's libraries, and MXNet on each GPU.

Child processes load NVIDIA's libraries, because a broken library can end its process.
"""

import contextlib
import itertools
import json
import os
import re
import sys
from typing import Dict, List, Mapping, Optional, Tuple, Union

from mxcluster import calls
from mxcluster.environment import GPU_ORDER
from mxcluster.errors import DAMAGED
from mxcluster.model.check_answer import CheckError, CudaProbe, GpuFacts, ListedGpu
from mxcluster.node.gpus import listed, output_of
from mxcluster.node.software import library_of_mxnet

FIRST_SECONDS = 300  # timeout of MXNet on all GPUs: the driver may first compile MXNet's code


def check(folder: str) -> GpuFacts:
    """Return the GPU facts of a node for verify.yml.

    A version is None if the program, header or driver is missing. Without a driver there are no
    listed GPUs, no answer of the libraries and no trials.

    `folder`: the path of the CUDA installation.
    """
    there, paths = listed(), variables(folder)
    return GpuFacts(
        listed=[ListedGpu(uuid=gpu.uuid, bus=gpu.bus.lower()) for gpu in there],
        driver=there[0].driver if there else None,
        nouveau=os.path.isdir("/sys/module/nouveau"),
        nvcc=nvcc(folder),
        cudnn=cudnn(folder),
        unresolved=unresolved(paths),
        probe=probe(folder, paths) if there else None,
        trials=trials(len(there), paths) if there else {},
    )


def variables(folder: str) -> Dict[str, str]:
    """Return the environment variables of programs that use the CUDA in `folder` and all GPUs.

    The variables make CUDA number the GPUs like nvidia-smi. The function removes the variable
    CUDA_VISIBLE_DEVICES of the user's shell.
    """
    found = dict(os.environ, LD_LIBRARY_PATH=folder + "/lib64", **GPU_ORDER)
    found.pop("CUDA_VISIBLE_DEVICES", None)
    return found


def nvcc(folder: str) -> Optional[str]:
    """Return the version of CUDA's compiler in `folder`, such as "9.2.148".

    Returns None if the compiler is missing.
    """
    output = output_of([folder + "/bin/nvcc", "--version"])
    found = re.search(r"\bV(\d+(?:\.\d+)+)", output or "")
    return found.group(1) if found else None


def cudnn(folder: str) -> Optional[str]:
    """Return the version in cuDNN's header in `folder`, such as "7.6.5".

    Returns None if the header is missing or has no version.
    """
    numbers: Dict[str, str] = {}
    for name in ("cudnn_version.h", "cudnn.h"):
        path = os.path.join(folder, "include", name)
        with contextlib.suppress(OSError), open(path, errors="replace") as stream:
            numbers.update(
                re.findall(r"#define\s+CUDNN_(MAJOR|MINOR|PATCHLEVEL)\s+(\d+)", stream.read())
            )
    return "%(MAJOR)s.%(MINOR)s.%(PATCHLEVEL)s" % numbers if len(numbers) == 3 else None


def unresolved(environment: Mapping[str, str]) -> List[str]:
    """Return the libraries that libmxnet.so needs and that the linker cannot find.

    `environment`: the variables for the linker, such as LD_LIBRARY_PATH.
    """
    try:
        output = output_of(["ldd", library_of_mxnet()], environment) or "ldd => not found"
    except FileNotFoundError:
        return ["libmxnet.so"]
    return [line.split()[0] for line in output.splitlines() if "not found" in line]


def probe(folder: str, environment: Mapping[str, str]) -> Union[CheckError, CudaProbe]:
    """Run the module cuda_probe for the CUDA in `folder`, and return the answer.

    Returns the last line of the program's errors if the program prints no answer. `environment`:
    all variables of the program.
    """
    out, last = run(["mxcluster.node.cuda_probe", folder], environment)
    try:
        return CudaProbe.decode(json.loads(out.splitlines()[-1]))
    except (IndexError,) + DAMAGED:
        return CheckError(error=last)


def trials(
    number: int, environment: Mapping[str, str], python: str = sys.executable
) -> Dict[str, Optional[str]]:
    """Compute with MXNet on each GPU, copy between all pairs of GPUs, and return the errors.

    The result is {"0": None, "1": the error, "0 -> 1": None, ...}. None stands for success.

    `number`: the number of GPUs to test. `environment`: all variables of the program. `python`: the
    interpreter with MXNet.
    """
    out, last = run(["mxcluster.node.gpu_trial", str(number)], environment, python)
    marked = [line[len("TRIAL ") :] for line in out.splitlines() if line.startswith("TRIAL ")]
    results = dict(json.loads(line) for line in marked)
    names = [str(one) for one in range(number)]
    names += ["%s -> %s" % pair for pair in itertools.permutations(names, 2)]
    return {name: results.get(name, last) for name in names}


def run(
    module: List[str], environment: Mapping[str, str], python: str = sys.executable
) -> Tuple[str, str]:
    """Run a module of this package as a program, and return (stdout, last line of stderr).

    `module`: the name of the module and the arguments. `environment`: all variables of the program.
    `python`: the interpreter.
    """
    ended = calls.run([python, "-m"] + module, FIRST_SECONDS, environment)
    return ended.out, ended.last_line or "no output"
