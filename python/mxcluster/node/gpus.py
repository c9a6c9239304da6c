"""List the NVIDIA GPUs of a node. The number of a GPU is always the number in nvidia-smi."""

import glob
import os
import re
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence

from mxcluster import calls
from mxcluster.errors import BadInput
from mxcluster.lists import grouped
from mxcluster.model.node_requests import AllGpus

Gpu = NamedTuple(
    "Gpu", [("number", int), ("uuid", str), ("bus", str), ("name", str), ("driver", str)]
)

PROC = "/proc/driver/nvidia/gpus"
PCI = "/sys/bus/pci/devices"
NVIDIA, DISPLAY = "0x10de", "0x03"  # a vendor, and the first byte of the class of a PCI device
SECONDS = 20  # timeout of nvidia-smi, which may have to load the driver


def ask(option: str) -> List[List[str]]:
    """Run nvidia-smi with the query `option`, and return the rows, each a list of strings.

    Returns [] if nvidia-smi is missing or fails, for example because the versions of driver and
    library differ.
    """
    output = output_of(["nvidia-smi", option, "--format=csv,noheader"]) or ""
    return [re.split(r",\s*", line.strip()) for line in output.splitlines() if line.strip()]


def listed() -> List[Gpu]:
    """Return the GPUs that the driver lists, sorted by number.

    Returns [] if nvidia-smi is missing, fails or lists no GPU.
    """
    rows = ask("--query-gpu=index,uuid,pci.bus_id,name,driver_version")
    return sorted(Gpu(int(row[0]), *row[1:5]) for row in rows if len(row) >= 5 and row[0].isdigit())


def count() -> int:
    """Return the number of NVIDIA GPUs from nvidia-smi, else from the driver's files in /proc."""
    return len(listed()) or len(glob.glob(PROC + "/*"))


def cards(bus: str = PCI) -> int:
    """Return the number of NVIDIA's GPUs on the PCI bus, also without a driver.

    Args: `bus` the folder of the kernel's PCI devices.
    """
    number = 0
    for device in glob.glob(os.path.join(bus, "*")):
        facts = []
        for name in ("vendor", "class"):
            with open(os.path.join(device, name), encoding="ascii") as stream:
                facts.append(stream.read().strip())
        number += facts[0] == NVIDIA and facts[1].startswith(DISPLAY)
    return number


def granted(environ: Mapping[str, str]) -> Optional[List[int]]:
    """Return the numbers of the GPUs that a batch system has given to this process.

    Returns None without a word about GPUs. `environ`: the variables of the process. The batch
    system names the GPUs in CUDA_VISIBLE_DEVICES, by number or by UUID; Slurm writes NoDevFiles for
    no GPU. Raises BadInput if nvidia-smi does not show one of them.
    """
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return None
    there, found = listed(), []
    for word in map(str.strip, visible.split(",")):
        if word in ("", "NoDevFiles"):
            continue
        fitting = [
            gpu.number
            for gpu in there
            if (word == str(gpu.number) if word.isdigit() else gpu.uuid.startswith(word))
        ]
        if len(fitting) != 1:
            raise BadInput(
                "the batch system gives the GPU %s (CUDA_VISIBLE_DEVICES=%s), but nvidia-smi shows "
                "%s: correct gres.conf, or the prolog that sets this variable"
                % (word, visible, "the GPUs 0 to %d" % (len(there) - 1) if there else "no GPU")
            )
        found += fitting
    return found


def users() -> Dict[str, List[str]]:
    """Return {uuid of a busy GPU: [program, ...]}, with programs such as "python3 (pid 4711)"."""
    return grouped(
        (row[0], "%s (pid %s)" % (os.path.basename(row[2]), row[1]))
        for row in ask("--query-compute-apps=gpu_uuid,pid,process_name")
        if len(row) >= 3
    )


def problems(planned: Sequence[int]) -> List[str]:
    """Return [message] if GPUs of `planned` (GPU numbers) are missing on this node, else [].

    The message names the missing GPUs and the cure.
    """
    number = count()
    missing = [one for one in planned if not 0 <= one < number]
    if not missing:
        return []
    cure = (
        "; the node has GPUs %s: correct -e gpus" % ", ".join(map(str, range(number)))
        if number
        else ": nvidia-smi and %s show no GPU; set -e gpus='' to train on the CPU, "
        "or install the driver" % PROC
    )
    form = "GPUs %s are not on this node%s" if len(missing) > 1 else "GPU %s is not on this node%s"
    return [form % (", ".join(map(str, missing)), cure)]


def unlike(expected: Optional[AllGpus]) -> Optional[str]:
    """Return a message if this node has another number of GPUs than provision.yml found, else None.

    `expected` is None for a job that does not use all GPUs.
    """
    if not expected:
        return None
    bus = expected.bus
    there = len(listed()) if bus else count()
    if there < bus:
        return (
            "the PCI bus has %d GPUs and the driver shows %d: see `nvidia-smi` and `dmesg` on this "
            "node, load the driver or restart the node, and run provision.yml; or train on the CPU "
            "with -e gpus=''" % (bus, there)
        )
    if there != expected.record:
        return (
            "the node has %d GPUs now, and had %d at its last provision.yml: see `nvidia-smi` on "
            "this node, and run provision.yml; or train on the CPU with -e gpus=''"
            % (there, expected.record)
        )
    return None


def busy() -> Dict[int, str]:
    """Return {number of a busy GPU: the programs that compute on this GPU, as one string}."""
    there = listed()
    busy_gpus = users() if there else {}
    return {gpu.number: ", ".join(busy_gpus[gpu.uuid]) for gpu in there if gpu.uuid in busy_gpus}


def output_of(argv: List[str], environment: Optional[Mapping[str, str]] = None) -> Optional[str]:
    """Run `argv` for at most SECONDS, and return its stdout, or None if the program fails.

    `environment`: all variables of the program, by default the variables of this process.
    """
    ended = calls.run(argv, SECONDS, environment)
    return None if ended.status else ended.out
