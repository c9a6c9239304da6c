"""NVIDIA's driver on this node: the version that is installed, and the version that is loaded."""

import os
import re
from typing import Any, Dict

from mxcluster.node.gpus import said_by

Json = Dict[str, Any]

LOADED = "/proc/driver/nvidia/version"
NOUVEAU = "/sys/module/nouveau"
SECONDS = 20
PATH = {"PATH": os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/sbin"}  # of modinfo


def state(loaded: str = LOADED, nouveau: str = NOUVEAU) -> Json:
    """Return {"installed", "loaded", "nouveau"} of this node.

    "installed" is the version of the module for the running kernel, "loaded" that of the module in
    the kernel; each is None without one. "nouveau" is True if this other driver is loaded.

    Args: `loaded` the file in which the loaded module names its version; `nouveau` the folder of
    the other driver in /sys.
    """
    try:
        with open(loaded, encoding="utf-8", errors="replace") as stream:
            found = re.search(r"Kernel Module[^\n]*?\s(\d+\.\d+(?:\.\d+)?)\s", stream.read() + " ")
    except OSError:
        found = None
    said = said_by(["modinfo", "-F", "version", "nvidia"], PATH, SECONDS)
    return {
        "installed": (said or "").strip() or None,
        "loaded": found.group(1) if found else None,
        "nouveau": os.path.isdir(nouveau),
    }
