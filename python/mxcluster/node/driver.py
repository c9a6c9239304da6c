"""Find the versions of NVIDIA's installed driver and of the loaded driver on this node."""

import os
import re
from typing import Optional

from mxcluster.model.node_record import Driver
from mxcluster.node.gpus import output_of

LOADED = "/proc/driver/nvidia/version"
NOUVEAU = "/sys/module/nouveau"
PATH = {"PATH": os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/sbin"}  # of modinfo


def loaded_version(path: str = LOADED) -> Optional[str]:
    """Return the version of the loaded module from the file `path`, None without a module."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            found = re.search(r"Kernel Module[^\n]*?\s(\d+\.\d+(?:\.\d+)?)\s", stream.read() + " ")
    except OSError:
        return None
    return found.group(1) if found else None


def state(loaded: str = LOADED, nouveau: str = NOUVEAU) -> Driver:
    """Return the versions of the module file for the running kernel and of the loaded module.

    Args: `loaded` the file with the version of the loaded module; `nouveau` the folder of nouveau
    in /sys.
    """
    output = output_of(["modinfo", "-F", "version", "nvidia"], PATH)
    return Driver(
        installed=(output or "").strip() or None,
        loaded=loaded_version(loaded),
        nouveau=os.path.isdir(nouveau),
    )
