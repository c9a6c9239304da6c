"""End with a status of its own on a machine without a GPU: `python3 -m tests.gpu.any_gpu`.

`make gpu` calls this before it makes .venv, so any Python 3 with the package in its path runs it.
"""

import sys

from mxcluster.node import gpus
from tests.gpu.table import NOTHING_PASSED

NO_GPU = (
    "make gpu: no GPU of NVIDIA here, neither on the PCI bus nor in nvidia-smi. Nothing was run, "
    "so nothing has passed"
)


def any_gpu():
    """Return True if nvidia-smi, the driver or the PCI bus shows a GPU of NVIDIA."""
    return bool(gpus.count() or gpus.cards())


if __name__ == "__main__" and not any_gpu():
    print(NO_GPU, file=sys.stderr)
    sys.exit(NOTHING_PASSED)
