"""The NVIDIA GPUs of a node, as its driver shows them."""
import glob
import os
import re
import shutil
import subprocess
from typing import Any, Dict, List, NamedTuple, Optional

Json = Dict[str, Any]
Gpu = NamedTuple("Gpu", [("number", int), ("uuid", str), ("name", str), ("driver", str)])

PROC = "/proc/driver/nvidia/gpus"
SECONDS = 20  # for nvidia-smi, which wakes the driver up


def ask(*options: str) -> Optional[List[List[str]]]:
    """The rows that nvidia-smi prints for a query, None if there is no nvidia-smi or it fails."""
    program = shutil.which("nvidia-smi")
    if not program:
        return None
    try:
        said = subprocess.check_output([program, *options, "--format=csv,noheader"], stderr=subprocess.DEVNULL, timeout=SECONDS)
    except (OSError, subprocess.SubprocessError):  # a driver that does not fit its library
        return None
    return [re.split(r",\s*", line.strip()) for line in said.decode(errors="replace").splitlines() if line.strip()]


def listed() -> List[Gpu]:
    """What the driver shows, by number; [] if it shows none."""
    rows = ask("--query-gpu=index,uuid,name,driver_version") or []
    return sorted(Gpu(int(row[0]), *row[1:4]) for row in rows if len(row) >= 4 and row[0].isdigit())


def count() -> int:
    """How many NVIDIA GPUs this node has: as nvidia-smi lists them, else as the driver shows them under /proc."""
    return len(listed()) or len(glob.glob(PROC + "/*"))


def users() -> Dict[str, List[str]]:
    """{uuid of a GPU: ["python3 (pid 4711)", ...]}: the programs that compute on it."""
    found = {}  # type: Dict[str, List[str]]
    for row in ask("--query-compute-apps=gpu_uuid,pid,process_name") or []:
        if len(row) >= 3:
            found.setdefault(row[0], []).append("%s (pid %s)" % (os.path.basename(row[2]), row[1]))
    return found


def problems(wanted: List[int]) -> List[str]:
    """Which of the GPUs with these numbers this node does not have, and which are busy, each with its cure."""
    there = listed()
    number = len(there) or count()
    missing = [one for one in wanted if not 0 <= one < number]
    texts = []
    if missing:
        named = "GPU%s %s %s not on this node" % ("s" if len(missing) > 1 else "", ", ".join(map(str, missing)),
                                                  "are" if len(missing) > 1 else "is")
        texts.append(named + ("; it has %s: correct gpus" % ", ".join(map(str, range(number))) if number else
                              ": neither nvidia-smi nor %s shows any; set -e gpus='' to train on the CPU, or install the driver"
                              % PROC))
    busy = users() if wanted else {}
    for gpu in there:
        if gpu.number in wanted and busy.get(gpu.uuid):
            texts.append("GPU %d (%s) is busy with %s: end that, or take another with -e gpus=..."
                         % (gpu.number, gpu.name, ", ".join(busy[gpu.uuid])))
    return texts
