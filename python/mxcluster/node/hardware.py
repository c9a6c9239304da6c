"""Read the hardware and the system of this node from files of the kernel, without programs."""

import glob
import os
import platform
import re
from typing import List, Tuple

from mxcluster.model.run_record import Hardware
from mxcluster.node import driver, gpus

CPUINFO, MEMINFO = "/proc/cpuinfo", "/proc/meminfo"
SYSTEM = "/etc/os-release"


def look() -> Hardware:
    """Return the hardware and the system of this node."""
    name, cores = cpu()
    return Hardware(
        cpu=name,
        cores=cores,
        memory_mb=memory_mb(),
        gpus=gpu_names(),
        driver=driver.loaded_version() or "",
        kernel=platform.release(),
        system=found(r'^PRETTY_NAME="?([^"\n]*)', text(SYSTEM)),
    )


def cpu(path: str = CPUINFO) -> Tuple[str, int]:
    """Return (CPU name, number of logical cores) from the file `path`.

    Returns ("", 0) if the file cannot be read.
    """
    lines = [line.partition(":") for line in text(path).splitlines()]
    names = [value.strip() for key, _, value in lines if key.strip() == "model name"]
    return (names[0] if names else ""), sum(key.strip() == "processor" for key, _, value in lines)


def memory_mb(path: str = MEMINFO) -> int:
    """Return the size of the memory in MB from the file `path`, 0 if the file cannot be read."""
    return int(found(r"^MemTotal:\s+(\d+) kB", text(path)) or 0) >> 10


def gpu_names(folder: str = gpus.PROC) -> List[str]:
    """Return the names of the GPUs in the driver's `folder`, in the order of the bus."""
    paths = sorted(glob.glob(os.path.join(glob.escape(folder), "*", "information")))
    return [found(r"^Model:\s*(.*)$", text(path)).strip() or "unknown GPU" for path in paths]


def found(pattern: str, content: str) -> str:
    """Return the first group of the first match of `pattern` in `content`, "" without a match.

    ^ and $ match at each line.
    """
    match = re.search(pattern, content, re.MULTILINE)
    return match.group(1) if match else ""


def text(path: str) -> str:
    """Return the content of the file `path`, "" if the file cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""
