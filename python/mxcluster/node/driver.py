"""Find the versions of NVIDIA's installed driver and of the loaded driver on this node."""

import os
import re

from mxcluster.model.node_record import Driver
from mxcluster.node.gpus import output_of

LOADED = "/proc/driver/nvidia/version"
NOUVEAU = "/sys/module/nouveau"
PATH = {"PATH": os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/sbin"}  # of modinfo


def state(loaded: str = LOADED, nouveau: str = NOUVEAU) -> Driver:
    """Return the versions of the module file for the running kernel and of the loaded module.

    Args: `loaded` the file with the version of the loaded module; `nouveau` the folder of nouveau
    in /sys.
    """
    try:
        with open(loaded, encoding="utf-8", errors="replace") as stream:
            found = re.search(r"Kernel Module[^\n]*?\s(\d+\.\d+(?:\.\d+)?)\s", stream.read() + " ")
    except OSError:
        found = None
    output = output_of(["modinfo", "-F", "version", "nvidia"], PATH)
    return Driver(
        installed=(output or "").strip() or None,
        loaded=found.group(1) if found else None,
        nouveau=os.path.isdir(nouveau),
    )
