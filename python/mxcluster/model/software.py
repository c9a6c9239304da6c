"""Define the software of a node: the user's choice, the facts that limit it, and the decision.

`mxcluster.cluster.versions` decides from the tables of the controller. The roles read the decision
as the fact versions_chosen.
"""

from typing import Mapping, Optional, Sequence

from mxcluster.model import names, node_record
from mxcluster.model.record import Record, field, record
from mxcluster.model.shapes import (
    Shape,
    T,
    each,
    flag,
    matching,
    one_of,
    optional,
    or_empty,
    table,
    text,
    whole,
    words,
)

_device = matching(r"[0-9a-f]{4}", "the PCI device number of a GPU")
_url = matching(r"(https?|file|ftp)://[^\s]+", "a URL, such as https://mirror/nvidia")
_digest = matching("[0-9a-fA-F]{64}", "a sha256 of 64 hexadecimal digits")
_fingerprint = matching("[0-9A-Fa-f ]{40,59}", "a fingerprint of 40 hexadecimal digits")


def _lower_digest(value: object) -> str:
    return _digest(value).lower()


def _none_or(shape: Shape[T]) -> Shape[Optional[T]]:
    """Return a shape that also accepts None, and "", which ansible-core 2.16 makes of None."""
    return lambda value: None if value is None or value == "" else shape(value)


class Build(Record):
    """The wheels of an environment for some versions of Python."""

    python: Sequence[str] = field(each(names.python_version))
    pip: str = field(text)
    """The wheel of pip, such as "pip==24.0"."""
    wheels: Sequence[str] = field(each(text))
    """All other wheels, MXNet first."""


class Environment(Record):
    """The wheels of MXNet and of its dependencies, as arguments of mxcluster_env."""

    builds: Sequence[Build] = field(each(record(Build)))
    hashes: Mapping[str, Sequence[str]] = field(table(text, each(names.digest), 10000))
    """{wheel: the sha256 of its files}."""
    name: str = field(words, default="MXNet")
    """The name of the software in messages."""
    note: str = field(words, default="")
    """The reason why other versions of Python do not work."""

    def build_for(self, python: str) -> Optional[Build]:
        """Return the build for a version of Python such as "3.11", or None without a build."""
        return next((build for build in self.builds if python in build.python), None)

    def pythons(self) -> Sequence[str]:
        """Return all versions of Python with a build."""
        return [python for build in self.builds for python in build.python]


class Layer(Environment):
    """Packages in a folder of their own, which some Pythons import beside an environment."""

    digest: str = field(names.digest)
    """The sha256 of the wheels and of the version of Python. It names the folder."""


class OwnWheel(Record):
    """The user's own build of MXNet (mxnet_wheel), as the controller has read it."""

    file: str = field(matching(r"[^/\x00-\x1f]+\.whl", "the name of a wheel", 255))
    pin: str = field(text)
    """The package and its version, such as "mxnet==1.9.1+mine"."""
    sha256: str = field(names.digest)
    needed: Sequence[str] = field(each(names.library))
    """The libraries that the system must provide."""
    sass: Sequence[str] = field(each(names.version))
    """The compute capabilities with machine code, empty for a wheel for CPUs."""


class File(Record):
    """A file to fetch."""

    url: str = field(text)
    name: str = field(matching(r"(?!\.{1,2}$)[^/\x00-\x1f]+", "the name of a file", 255))
    sha256: str = field(or_empty(names.digest))
    """The digest, empty if unknown."""


class KeyFile(File):
    """The file of a signing key."""

    fingerprint: str = field(text)


class LibraryFile(File):
    """The archive of cuDNN or NCCL."""

    version: str = field(names.version)


class SigningKey(Record):
    """A signing key of NVIDIA or of the user."""

    name: str = field(words)
    url: str = field(_url)
    fingerprint: str = field(_fingerprint)


class Packages(Record):
    """The RPMs of a CUDA, as {name: version}, with the version "" for any version."""

    toolkit: Mapping[str, str] = field(table(text, text))
    libraries: Mapping[str, str] = field(table(text, text))


class Cuda(Record):
    """The chosen CUDA, and the files and packages that install it."""

    version: str = field(text)
    """The version, such as 9.2."""
    release: str = field(text)
    """The full version, such as 9.2.148."""
    source: str = field(one_of("none", "local_rpm", "network_repo", "runfile"))
    """The way to install CUDA, "none" on a node without root's rights."""
    pinned: Optional[Mapping[str, str]] = field(optional(table(text, text)), default=None)
    """The packages that another CUDA has in another version."""
    rpm: Sequence[File] = field(each(record(File)))
    runfile: Sequence[File] = field(each(record(File)))
    packages: Packages = field(record(Packages))
    network_repo: str = field(text)
    keys: Sequence[KeyFile] = field(each(record(KeyFile)))


class NeededDriver(Record):
    """The driver that the chosen CUDA and the GPUs of the node need."""

    branch: int = field(whole(1, 10000))
    """The branch of drivers, such as 470."""
    cuda: str = field(text)
    """The version of CUDA."""
    least: str = field(names.version)
    """The oldest driver for this CUDA."""
    installable: bool = field(flag)
    """True if mxcluster installs drivers on this system."""


class Choice(Record, strict=True):
    """The user's settings of the versions."""

    cuda_version: str = field(text)
    """The version of CUDA such as "9.2", "" for no CUDA."""
    mxnet_version: str = field(text)
    mxnet_build: str = field(one_of("openblas", "mkl"))
    gpu_required: bool = field(flag)
    """True if a node without a GPU is refused."""
    cuda_source: str = field(text)
    """The way to install CUDA, "" for the first way of the system."""
    cudnn_version: str = field(text)
    """The version of cuDNN, "" for the choice of the table, or "none"."""
    driver_install: str = field(text)
    """"true" if mxcluster replaces an older driver, "false" if it installs no driver."""
    nvidia_mirror: str = field(or_empty(_url))
    """The URL of a mirror of NVIDIA's files."""
    nvidia_sha256: Mapping[str, str] = field(table(words, _lower_digest))
    """{file name: digest}."""
    nvidia_keys: Sequence[SigningKey] = field(each(record(SigningKey)))
    """The keys that sign the packages, empty for NVIDIA's keys."""
    wheel: Optional[OwnWheel] = field(_none_or(record(OwnWheel)), default=None)
    """The user's own build of MXNet, None for a wheel of the tables."""


class Machine(Record):
    """The facts of a node that limit the choice: those of Ansible and of mxcluster_machine."""

    system: str = field(words)
    """The fact ansible_distribution."""
    system_version: str = field(words)
    architecture: str = field(words)
    family: str = field(words)
    """The fact ansible_os_family."""
    python: Optional[str] = field(_none_or(names.python_version))
    gpus: Sequence[str] = field(each(_device, 1024))
    """The PCI device numbers of NVIDIA's GPUs."""
    driver: Optional[str] = field(_none_or(names.version))
    """The version of the loaded driver."""
    driver_installed: Optional[str] = field(_none_or(names.version))
    own_system: bool = field(flag)
    """True if mxcluster may install system packages."""
    missing: Sequence[str] = field(each(names.library))
    """The required libraries and programs that the node lacks."""


class Decision(Record, nulls=True):
    """The software to install on a node."""

    target: str = field(text)
    """The build of MXNet such as "cu92", see `cluster.pairs.target`."""
    gpus: int = field(whole(0, 1024))
    """The number of GPUs, 0 for training on the CPU."""
    system: str = field(text)
    """The operating system such as "CentOS 7", empty for a system outside the table."""
    family: str = field(text)
    """The family of the system's packages, empty if unknown."""
    environment: Environment = field(record(Environment))
    cuda: Optional[Cuda] = field(optional(record(Cuda)), default=None)
    cudnn: Optional[LibraryFile] = field(optional(record(LibraryFile)), default=None)
    nccl: Optional[LibraryFile] = field(optional(record(LibraryFile)), default=None)
    driver: Optional[NeededDriver] = field(optional(record(NeededDriver)), default=None)
    installed: Optional[node_record.Cuda] = field(optional(record(node_record.Cuda)), default=None)
    """The installed CUDA that verify.yml expects."""
    wheel: str = field(words, default="")
    """The file and the sha256 of the user's own build of MXNet, empty without one."""
