"""Read the version tables mxnet.yml, versions.yml and gpu_wheels.yml, and compare versions.

The comments of these files beside this module describe the rows. The classes of the rows refuse a
misspelt name.
"""

import contextlib
import functools
import os
import re
from typing import Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, TypeVar

from mxcluster.errors import BadInput, did_you_mean
from mxcluster.model import names
from mxcluster.model.record import Record, field, record
from mxcluster.model.shapes import (
    Shape,
    Wrong,
    each,
    flag,
    matching,
    optional,
    or_empty,
    text,
    whole,
)
from mxcluster.model.shapes import table as table_of
from mxcluster.model.software import LibraryFile, SigningKey

T = TypeVar("T")

FOLDER = os.path.dirname(os.path.abspath(__file__))
_REDIST = "https://developer.download.nvidia.com/compute/redist/"

_texts = each(text)
_versions = table_of(text, names.version)  # {package: version}
_target = matching("(cpu|cu[0-9]+)(-mkl)?", "a target, such as cu92-mkl")
_device_span = matching("[0-9a-f]{4}-[0-9a-f]{4}", "the first and last number of devices")


class RunFile(Record, strict=True):
    """The URL of a file, and its sha256, "" if unknown."""

    url: str = field(text)
    sha256: str = field(or_empty(names.digest), default="")


class _Cudnn(Record, strict=True):
    """A row of cuDNN, whose name is the version."""

    sha256: str = field(names.digest)
    name: str = field(or_empty(names.version), default="")


class _Nccl(Record, strict=True):
    """A row of NCCL, whose name is the version of CUDA."""

    version: str = field(names.version)
    sha256: str = field(names.digest)
    cuda: str = field(or_empty(names.version), default="")


class CudaRow(Record, strict=True):
    """A version of CUDA."""

    release: str = field(names.version)
    driver: str = field(names.version)
    cudnn: str = field(names.version)
    rpm: Sequence[str] = field(_texts)
    patched: Mapping[str, str] = field(_versions, default={})
    compilers: Mapping[str, str] = field(_versions, default={})
    pinned: Optional[Mapping[str, str]] = field(optional(_versions), default=None)
    libraries: Sequence[str] = field(_texts)
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


def _wheels(value: object) -> Mapping[str, str]:
    found: Dict[str, str] = {}
    for version, targets in table_of(names.version, each(_target))(value).items():
        for target in targets:
            variant = target.replace("-", "").replace("cpu", "")
            found[target] = "mxnet%s==%s" % ("-" + variant if variant else "", version)
    return found


class MxnetRow(Record, strict=True):
    """A version of MXNet. The table has {version: targets} in place of `wheels`."""

    note: str = field(text)
    pythons: Mapping[str, Sequence[str]] = field(table_of(text, each(names.python_version)))
    wheels: Mapping[str, str] = field(_wheels)
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


class _GpuWheels(GpuWheel):
    """A row of gpu_wheels.yml."""

    wheels: Sequence[str] = field(_texts)
    without_libgomp: Sequence[str] = field(_texts, default=[])


def _library(folder: str, name: str, version: str, sha256: str) -> LibraryFile:
    return LibraryFile(url=_REDIST + folder + name, name=name, version=version, sha256=sha256)


def _cudnn(value: object) -> Mapping[str, Mapping[str, LibraryFile]]:
    found: Dict[str, Dict[str, LibraryFile]] = {}
    rows = table_of(names.version, table_of(names.version, record(_Cudnn)))(value)
    for cuda, of_cuda in rows.items():
        for version, one in of_cuda.items():
            folder = "cudnn/v%s/" % ".".join(version.split(".")[:3])
            name = "cudnn-%s-linux-x64-v%s.tgz" % (cuda, one.name or version)
            found.setdefault(cuda, {})[version] = _library(folder, name, version, one.sha256)
    return found


def _nccl(value: object) -> Mapping[str, LibraryFile]:
    found: Dict[str, LibraryFile] = {}
    for cuda, one in table_of(names.version, record(_Nccl))(value).items():
        folder = "nccl/v%s/" % one.version.rpartition(".")[0]
        name = "nccl_%s-1+cuda%s_x86_64.txz" % (one.version, one.cuda or cuda)
        found[cuda] = _library(folder, name, one.version, one.sha256)
    return found


class Table(Record, strict=True):
    """The content of mxnet.yml and versions.yml."""

    mxnet: Mapping[str, MxnetRow] = field(table_of(text, record(MxnetRow)))
    pythons: Mapping[str, PythonRow] = field(table_of(text, record(PythonRow)))
    wheel_sha256: Mapping[str, Sequence[str]] = field(table_of(text, each(names.digest)))
    cuda: Mapping[str, CudaRow] = field(table_of(text, record(CudaRow)))
    network_repo: str = field(text)
    keys: Sequence[SigningKey] = field(each(record(SigningKey)))
    cudnn: Mapping[str, Mapping[str, LibraryFile]] = field(_cudnn)
    """{CUDA: {version: archive}}."""
    nccl: Mapping[str, LibraryFile] = field(_nccl)
    """{CUDA: archive}."""
    architectures: Mapping[str, Architecture] = field(table_of(text, record(Architecture)))
    driver_branches: Sequence[int] = field(each(whole(1, 10000)))
    devices: Mapping[str, Mapping[str, Sequence[str]]] = field(
        table_of(text, table_of(text, each(_device_span)))
    )
    """{compute capability: {chip: spans of device numbers}}."""
    systems: Mapping[str, System] = field(table_of(text, record(System)))


def _read(name: str, shape: Shape[T]) -> T:
    import yaml  # only the controller has PyYAML

    path = os.path.join(FOLDER, name)
    with open(path, encoding="utf-8") as stream:
        try:
            return shape(yaml.load(stream, getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
        except Wrong as wrong:
            raise BadInput("%s: %s: correct the row" % (path, wrong)) from None


def table() -> Table:
    """Return the content of mxnet.yml and versions.yml, or the table of `in_place_of_files`."""
    return _given[-1][0] if _given else _table_of_files()


# The tables of `in_place_of_files`, the innermost last.
_given: List[Tuple[Table, Mapping[str, GpuWheel]]] = []


@contextlib.contextmanager
def in_place_of_files(tables: Table, wheels: Mapping[str, GpuWheel]) -> Iterator[None]:
    """Let `table` return `tables`, and `gpu_wheels` return `wheels`, while the block runs."""
    _given.append((tables, wheels))
    try:
        yield
    finally:
        _given.pop()


@functools.lru_cache(maxsize=None)
def _table_of_files() -> Table:
    rows = table_of(text, lambda value: value)
    return Table.decode(dict(_read("mxnet.yml", rows), **_read("versions.yml", rows)))


def gpu_wheels() -> Mapping[str, GpuWheel]:
    """Return gpu_wheels.yml: {"mxnet-cu92==1.2.1.post1": its row}. See `table`."""
    return _given[-1][1] if _given else _gpu_wheels_of_file()


@functools.lru_cache(maxsize=None)
def _gpu_wheels_of_file() -> Mapping[str, GpuWheel]:
    found: Dict[str, GpuWheel] = {}
    for one in _read("gpu_wheels.yml", each(record(_GpuWheels))):
        found.update((wheel, GpuWheel(needed=one.needed, sass=one.sass)) for wheel in one.wheels)
        needed = [name for name in one.needed if name != "libgomp.so.1"]
        found.update((name, GpuWheel(needed=needed, sass=one.sass)) for name in one.without_libgomp)
    return found


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
    for capability, chips in table().devices.items():
        for name, spans in chips.items():
            if any(first <= device <= last for first, last in (one.split("-") for one in spans)):
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
