"""The NVIDIA GPUs of a node, as its driver lists them. A number is always that of nvidia-smi."""

import glob
import os
import re
import subprocess
from typing import Any, Dict, List, NamedTuple, Optional

Json = Dict[str, Any]
Gpu = NamedTuple(
    "Gpu", [("number", int), ("uuid", str), ("bus", str), ("name", str), ("driver", str)]
)

PROC = "/proc/driver/nvidia/gpus"
SECONDS = 20  # for nvidia-smi, which may have to load the driver


def ask(option: str) -> List[List[str]]:
    """Return the rows of an nvidia-smi query with `option`, each a list of texts.

    Returns [] if nvidia-smi is missing or fails, for example because the versions of driver and
    library differ.
    """
    said = said_by(["nvidia-smi", option, "--format=csv,noheader"]) or ""
    return [re.split(r",\s*", line.strip()) for line in said.splitlines() if line.strip()]


def listed() -> List[Gpu]:
    """Return the GPUs that the driver lists, sorted by number, or [] if it lists none."""
    rows = ask("--query-gpu=index,uuid,pci.bus_id,name,driver_version")
    return sorted(Gpu(int(row[0]), *row[1:5]) for row in rows if len(row) >= 5 and row[0].isdigit())


def count() -> int:
    """Return the number of NVIDIA GPUs: from nvidia-smi, else from the driver's files in /proc."""
    return len(listed()) or len(glob.glob(PROC + "/*"))


def users() -> Dict[str, List[str]]:
    """Return {uuid of a GPU: the programs that compute on it, such as "python3 (pid 4711)"}."""
    found = {}  # type: Dict[str, List[str]]
    for row in ask("--query-compute-apps=gpu_uuid,pid,process_name"):
        if len(row) >= 3:
            found.setdefault(row[0], []).append("%s (pid %s)" % (os.path.basename(row[2]), row[1]))
    return found


def problems(wanted: List[int]) -> List[str]:
    """Return a line with the GPU numbers of `wanted` that this node lacks, and the cure.

    Returns [] if the node has all of these GPUs.
    """
    number = count()
    missing = [one for one in wanted if not 0 <= one < number]
    if not missing:
        return []
    cure = (
        "; the node has GPUs %s: correct -e gpus" % ", ".join(map(str, range(number)))
        if number
        else ": neither nvidia-smi nor %s shows any; set -e gpus='' to train on the CPU, "
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
    """Return why a job that uses all GPUs would not get all of them, or None if it gets all.

    `wanted`: {"record": number of GPUs that provision.yml found, "bus": number on the PCI bus if
    provision.yml chose an MXNet for GPUs, else 0}, or None for a job that does not use all GPUs.
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
    """Return {number of a busy GPU: the programs that compute on it}."""
    there = listed()
    programs = users() if there else {}
    return {gpu.number: ", ".join(programs[gpu.uuid]) for gpu in there if programs.get(gpu.uuid)}


def said_by(
    argv: List[str], environment: Optional[Dict[str, str]] = None, seconds: float = SECONDS
) -> Optional[str]:
    """Return the stdout of the program `argv`, None if it cannot run, fails or does not end.

    `environment`: all variables of the program, by default those of this process. `seconds`: the
    time limit.
    """
    try:
        return subprocess.check_output(
            argv,
            env=environment,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=seconds,
        ).decode(errors="replace")
    except (OSError, subprocess.SubprocessError):
        return None
