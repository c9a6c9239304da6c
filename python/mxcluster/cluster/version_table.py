"""Read the tables of versions, and compare versions.

The file mxnet.yml lists the wheels of MXNet. The file gpu_wheels.yml lists the libraries that each
GPU wheel needs. The file versions.yml lists NVIDIA's software, the GPUs and the operating systems.
The functions read these files beside this module, and have no other input than their arguments.
"""

import functools
import os
import re
from typing import Any, Dict, Optional, Sequence, Tuple

from mxcluster.errors import BadInput, did_you_mean

Json = Dict[str, Any]

FOLDER = os.path.dirname(os.path.abspath(__file__))


def _read(name: str) -> Json:
    import yaml  # only the controller has PyYAML

    with open(os.path.join(FOLDER, name), encoding="utf-8") as stream:
        found: Json = yaml.safe_load(stream)
    return found


@functools.lru_cache(maxsize=None)
def table() -> Json:
    """Return the content (dict) of mxnet.yml and versions.yml."""
    return dict(_read("mxnet.yml"), **_read("versions.yml"))


@functools.lru_cache(maxsize=None)
def gpu_wheels() -> Json:
    """Return gpu_wheels.yml: {"mxnet-cu92==1.2.1.post1": {"needed", "sass"}}.

    "needed" lists the sonames of the libraries that the system must provide. "sass" lists the
    compute capabilities for which MXNet's own kernels have machine code.
    """
    return _read("gpu_wheels.yml")


def row(rows: Json, place: str, name: str, cure: str = "add the row") -> Any:
    """Return the row `name` of a part of the tables.

    Raises BadInput if the row is missing, which is a fault of the table and not of a user.

    Args: `rows` the part; `place` its file and name in messages; `cure` how to make the row.
    """
    if name not in rows:
        raise BadInput("%s has no row %s: %s" % (place, name, cure))
    return rows[name]


def gpu_wheel(wheel: str) -> Json:
    """Return the row (dict) of a GPU wheel in gpu_wheels.yml. Raises BadInput without a row.

    Args: `wheel` such as "mxnet-cu92==1.2.1.post1".
    """
    found: Json = row(
        gpu_wheels(),
        "python/mxcluster/cluster/gpu_wheels.yml",
        wheel,
        "add the row that `python tools/gpu_wheels.py WHEEL` prints for the file of this wheel",
    )
    return found


def number(version: str) -> Tuple[int, ...]:
    """Return a version as a tuple of ints for comparisons, such as (9, 2, 148) for "9.2.148"."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


def nearest(version: str, others: Sequence[str]) -> str:
    """Return the version in `others` that is nearest to `version`, counted in releases.

    Of two equally near versions, the function returns the newer version.
    """
    order = sorted(set(others) | {version}, key=number)
    return min(
        sorted(others, key=number, reverse=True),
        key=lambda other: abs(order.index(other) - order.index(version)),
    )


def chip(device: str) -> Tuple[str, Optional[str]]:
    """Return (chip, compute capability) of a PCI device number (hexadecimal text).

    The result for "102d" is ("GK210", "3.7"), and for an unknown device ("", None).
    """
    for first, last, name, capability in table()["devices"]:
        if int(first, 16) <= int(device, 16) <= int(last, 16):
            return name, capability
    return "", None


def architecture(capability: str) -> str:
    """Return the architecture of a compute capability, such as "Kepler" for "3.7"."""
    found: str = next(
        name
        for name, known in table()["architectures"].items()
        if capability in known["capabilities"]
    )
    return found


def has_code(sass: Sequence[str], capability: str) -> bool:
    """Return True if machine code for the compute capabilities `sass` runs on a GPU.

    Code for 7.0 runs on 7.0 and 7.5, not on 8.0 (NVIDIA's Ampere and Ada compatibility guides).

    Args: `sass` such as ["3.0", "5.0"]; `capability` of the GPU, such as "3.7".
    """
    major, minor = number(capability)
    return any(number(one)[0] == major and number(one)[1] <= minor for one in sass)


def cuda_row(cuda: str) -> Json:
    """Return the table's row (dict) of a CUDA version.

    Raises BadInput if the table has no such version.
    """
    rows = table()["cuda"]
    if cuda not in rows:
        raise BadInput(
            "mxcluster's table has no CUDA %s%s: set cuda_version to one of %s"
            % (cuda, did_you_mean(cuda, rows), ", ".join(rows))
        )
    row: Json = rows[cuda]
    return row


def mxnet_row(mxnet: str) -> Json:
    """Return the table's row (dict) of an MXNet version.

    Raises BadInput if the table has no such version.
    """
    rows = table()["mxnet"]
    if mxnet not in rows:
        raise BadInput(
            "mxcluster's table has no MXNet %s%s: set mxnet_version to one of %s"
            % (mxnet, did_you_mean(mxnet, rows), ", ".join(rows))
        )
    row: Json = rows[mxnet]
    return row
