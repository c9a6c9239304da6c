"""Find the versions of NVIDIA's installed driver and of the loaded driver on this node."""

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

    "installed" is the version of the module file for the running kernel. "loaded" is the version of
    the module in the kernel. A version is None if there is no such module. "nouveau" is True if the
    kernel module nouveau is loaded.

    Args: `loaded` the file with the version of the loaded module; `nouveau` the folder of nouveau
    in /sys.
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
