"""Read the version tables mxnet.yml, versions.yml and gpu_wheels.yml, and compare versions.

The comments of these files beside this module describe the rows. The classes of the rows refuse a
misspelt name.
"""

import functools
import os
import re
from typing import Mapping, Optional, Sequence, Tuple, TypeVar

from mxcluster.errors import BadInput, did_you_mean
from mxcluster.model import names
from mxcluster.model.record import Record, field, record
from mxcluster.model.shapes import (
    Shape,
    Wrong,
    each,
    flag,
    optional,
    or_empty,
    passing,
    text,
    whole,
)
from mxcluster.model.shapes import (
    table as table_of,
)
from mxcluster.model.software import SigningKey

T = TypeVar("T")

FOLDER = os.path.dirname(os.path.abspath(__file__))

_texts = each(text)
_versions = table_of(text, names.version)  # {package: version}


class RunFile(Record, strict=True):
    """The URL of a file, and its sha256, "" if unknown."""

    url: str = field(text)
    sha256: str = field(or_empty(names.digest), default="")


class Library(RunFile):
    """The archive of cuDNN or NCCL. A row of cuDNN has its version as the name of the row."""

    version: str = field(or_empty(names.version), default="")


class CudaRow(Record, strict=True):
    """A version of CUDA."""

    release: str = field(names.version)
    driver: str = field(names.version)
    cudnn: str = field(names.version)
    rpm: Sequence[str] = field(_texts)
    patched: Mapping[str, str] = field(_versions)
    compilers: Mapping[str, str] = field(_versions, default={})
    pinned: Optional[Mapping[str, str]] = field(optional(_versions), default=None)
    libraries: Sequence[str] = field(_texts)
    toolkit: Sequence[str] = field(_texts)
    runfile: Sequence[RunFile] = field(each(record(RunFile)))


class Architecture(Record, strict=True):
    """An architecture of GPUs, and the branches of the driver that support it."""

    capabilities: Sequence[str] = field(_texts)
    newest_driver: Optional[int] = field(optional(whole(1, 10000)), default=None)
    oldest_driver: Optional[int] = field(optional(whole(1, 10000)), default=None)


class System(Record, strict=True):
    """An operating system."""

    cuda: Sequence[str] = field(_texts)
    """The ways to install CUDA."""
    python: Optional[str] = field(optional(names.python_version), default=None)
    driver: bool = field(flag, default=False)


class MxnetRow(Record, strict=True):
    """A version of MXNet."""

    note: str = field(text)
    pythons: Mapping[str, Sequence[str]] = field(table_of(text, each(names.python_version)))
    wheels: Mapping[str, str] = field(table_of(text, text))
    """{target: wheel}."""


class PythonRow(Record, strict=True):
    """The wheels beside MXNet for a version of Python."""

    pip: str = field(text)
    graphviz: str = field(text)
    beside: Sequence[str] = field(_texts)


class GpuWheel(Record, strict=True):
    """The libraries that a GPU wheel needs, and the compute capabilities of its machine code."""

    needed: Sequence[str] = field(_texts)
    sass: Sequence[str] = field(_texts)


Device = Tuple[str, str, str, str]  # first and last device number, chip, compute capability


def _device(value: object) -> Device:
    first, last, name, capability = passing(list, lambda row: len(row) == 4, "4 texts")(value)
    return text(first), text(last), text(name), text(capability)


class Table(Record, strict=True):
    """The content of mxnet.yml and versions.yml."""

    mxnet: Mapping[str, MxnetRow] = field(table_of(text, record(MxnetRow)))
    pythons: Mapping[str, PythonRow] = field(table_of(text, record(PythonRow)))
    wheel_sha256: Mapping[str, Sequence[str]] = field(table_of(text, each(names.digest)))
    cuda: Mapping[str, CudaRow] = field(table_of(text, record(CudaRow)))
    network_repo: str = field(text)
    keys: Sequence[SigningKey] = field(each(record(SigningKey)))
    cudnn: Mapping[str, Mapping[str, Library]] = field(
        table_of(text, table_of(text, record(Library)))
    )
    nccl: Mapping[str, Library] = field(table_of(text, record(Library)))
    architectures: Mapping[str, Architecture] = field(table_of(text, record(Architecture)))
    driver_branches: Sequence[int] = field(each(whole(1, 10000)))
    devices: Sequence[Device] = field(each(_device))
    systems: Mapping[str, System] = field(table_of(text, record(System)))


def _read(name: str, shape: Shape[T]) -> T:
    import yaml  # only the controller has PyYAML

    path = os.path.join(FOLDER, name)
    with open(path, encoding="utf-8") as stream:
        try:
            return shape(yaml.load(stream, getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
        except Wrong as wrong:
            raise BadInput("%s: %s: correct the row" % (path, wrong)) from None


@functools.lru_cache(maxsize=None)
def table() -> Table:
    """Return the content of mxnet.yml and versions.yml."""
    rows = table_of(text, lambda value: value)
    return Table.decode(dict(_read("mxnet.yml", rows), **_read("versions.yml", rows)))


@functools.lru_cache(maxsize=None)
def gpu_wheels() -> Mapping[str, GpuWheel]:
    """Return gpu_wheels.yml: {"mxnet-cu92==1.2.1.post1": its row}."""
    return _read("gpu_wheels.yml", table_of(text, record(GpuWheel)))


def row(rows: Mapping[str, T], place: str, name: str, cure: str = "add the row") -> T:
    """Return the row `name` of a part of the tables.

    Raises BadInput if the row is missing, which is a fault of the table and not of a user.

    Args: `rows` the part; `place` its file and name in messages; `cure` how to make the row.
    """
    if name not in rows:
        raise BadInput("%s has no row %s: %s" % (place, name, cure))
    return rows[name]


def gpu_wheel(wheel: str) -> GpuWheel:
    """Return the row of a GPU wheel in gpu_wheels.yml. Raises BadInput without a row.

    Args: `wheel` such as "mxnet-cu92==1.2.1.post1".
    """
    return row(
        gpu_wheels(),
        "python/mxcluster/cluster/gpu_wheels.yml",
        wheel,
        "add the row that `python tools/gpu_wheels.py WHEEL` prints for the file of this wheel",
    )


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
    for first, last, name, capability in table().devices:
        if int(first, 16) <= int(device, 16) <= int(last, 16):
            return name, capability
    return "", None


def architecture(capability: str) -> str:
    """Return the architecture of a compute capability, such as "Kepler" for "3.7"."""
    rows = table().architectures
    return next(name for name in rows if capability in rows[name].capabilities)


def has_code(sass: Sequence[str], capability: str) -> bool:
    """Return True if machine code for the compute capabilities `sass` runs on a GPU.

    Code for 7.0 runs on 7.0 and 7.5, not on 8.0 (NVIDIA's Ampere and Ada compatibility guides).

    Args: `sass` such as ["3.0", "5.0"]; `capability` of the GPU, such as "3.7".
    """
    major, minor = number(capability)
    return any(number(one)[0] == major and number(one)[1] <= minor for one in sass)


def cuda_row(cuda: str) -> CudaRow:
    """Return the table's row of a CUDA version. Raises BadInput without such a version."""
    return _chosen(table().cuda, cuda, "CUDA", "cuda_version")


def mxnet_row(mxnet: str) -> MxnetRow:
    """Return the table's row of an MXNet version. Raises BadInput without such a version."""
    return _chosen(table().mxnet, mxnet, "MXNet", "mxnet_version")


def _chosen(rows: Mapping[str, T], version: str, software: str, variable: str) -> T:
    if version not in rows:
        raise BadInput(
            "mxcluster's table has no %s %s%s: set %s to one of %s"
            % (software, version, did_you_mean(version, rows), variable, ", ".join(rows))
        )
    return rows[version]
