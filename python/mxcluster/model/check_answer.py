"""Define the facts that a node reports to verify.yml. A failed check reports its error instead."""

from typing import Mapping, Optional, Sequence, Type, TypeVar, Union

from mxcluster.model import names
from mxcluster.model.record import Record, field, record
from mxcluster.model.run_record import Hardware
from mxcluster.model.shapes import (
    Shape,
    each,
    flag,
    matching,
    one_of,
    optional,
    or_empty,
    real,
    table,
    whole,
    words,
)

T = TypeVar("T")


class CheckError(Record):
    """The error of a failed check."""

    error: str = field(words)


class CallError(CheckError, nulls=True):
    """The error of a call of a CUDA library."""

    status: Optional[int] = field(optional(whole(-(2**31))), default=None)
    """The status that the library returned, None if the library is missing."""


class ImportFailure(CheckError):
    """The error of an import of MXNet."""

    python: Optional[str] = field(optional(words), default=None)
    libmxnet: Optional[str] = field(optional(names.digest), default=None)


E = TypeVar("E", bound=CheckError)


def _or(error: Type[E], shape: Shape[T]) -> Shape[Union[E, T]]:
    """Return a shape for an error, which has the name "error", and for values of `shape`."""

    def either(value: object) -> Union[E, T]:
        return error.decode(value) if isinstance(value, dict) and "error" in value else shape(value)

    return either


class MxnetFacts(Record, nulls=True):
    """The facts of an import of MXNet."""

    mxnet: str = field(words)
    """The version of MXNet."""
    libmxnet: Optional[str] = field(optional(names.digest))
    """The digest of libmxnet.so."""
    compiled_in: bool = field(flag)
    """True if MXNet has the distributed kv-store."""
    says: str = field(words)
    """The error of MXNet without the distributed kv-store."""


class FileDigest(Record):
    """The digest of a cluster file."""

    sha256: str = field(names.digest)


_file = _or(CheckError, record(FileDigest))
FileFact = Union[CheckError, FileDigest]


class ClusterFiles(Record):
    """The facts of the three cluster files."""

    hosts: FileFact = field(_file)
    groups: FileFact = field(_file)
    data_sharding: FileFact = field(_file)


class Peers(Record):
    """The results of ssh to other nodes."""

    peers: Mapping[str, Optional[str]] = field(table(words, optional(words), 5000))
    """{peer: the error of ssh, or None}."""


class ListedGpu(Record):
    """A GPU in the list of nvidia-smi."""

    uuid: str = field(words)
    bus: str = field(words)


class CudaGpu(Record, nulls=True):
    """A GPU in the list of the CUDA driver."""

    uuid: Optional[str] = field(optional(words))
    bus: str = field(words)
    name: str = field(words)
    capability: str = field(matching(r"[0-9]{1,3}\.[0-9]{1,3}", "a compute capability"))


class CudaDriver(Record):
    """The facts of the CUDA driver."""

    version: int = field(whole(0, 2**31))
    gpus: Sequence[CudaGpu] = field(each(record(CudaGpu)))
    peers: Sequence[Sequence[int]] = field(each(each(whole(0, 2**31)), 5000))


class CudaRuntime(Record):
    """The facts of the CUDA runtime."""

    version: int = field(whole(0, 2**31))
    count: int = field(whole(0, 2**31))
    """The number of GPUs."""


class CudaProbe(Record, nulls=True):
    """The facts of the CUDA libraries."""

    driver: Union[CallError, CudaDriver] = field(_or(CallError, record(CudaDriver)))
    runtime: Union[CallError, CudaRuntime] = field(_or(CallError, record(CudaRuntime)))
    cudnn: Optional[str] = field(optional(words))
    nccl: Optional[str] = field(optional(words))


class GpuFacts(Record, nulls=True):
    """The facts of the GPUs of a node, see `node.gpu_check.check`."""

    listed: Sequence[ListedGpu] = field(each(record(ListedGpu)))
    driver: Optional[str] = field(optional(words))
    nouveau: bool = field(flag)
    nvcc: Optional[str] = field(optional(words))
    cudnn: Optional[str] = field(optional(words))
    unresolved: Sequence[str] = field(each(words))
    probe: Union[CheckError, CudaProbe, None] = field(optional(_or(CheckError, record(CudaProbe))))
    trials: Mapping[str, Optional[str]] = field(
        table(
            matching(r"[0-9]{1,4}( -> [0-9]{1,4})?", "a GPU or a pair of GPUs"),
            optional(words),
            5000,
        )
    )


_rate = real(0, 1e9)
_speed = _or(CheckError, _rate)
Speed = Union[CheckError, float]


class DiskSpeed(Record):
    """The speed of the file system of the job folders, in MB/s."""

    write: float = field(_rate)
    read: float = field(_rate)


class NodeSpeed(Record):
    """The speed of a node alone."""

    matmul: Speed = field(_speed)
    """Products of matrices in GFLOP/s, with the threads of a worker."""
    disk: Union[CheckError, DiskSpeed] = field(_or(CheckError, record(DiskSpeed)))


class SystemFacts(Hardware):
    """The hardware of a node, and the versions of the programs of its system."""

    distribution: str = field(or_empty(matching(r"[a-z][a-z0-9._-]{0,30}", "an ID of os-release")))
    release: str = field(or_empty(names.version))
    """The version of the distribution, such as 7.9.2009."""
    selinux: str = field(one_of("enforcing", "permissive", "off"))
    versions: Mapping[str, str] = field(table(names.library, or_empty(names.version)))
    """{program: its version, "" for a missing program}."""


class Checked(Record, nulls=True):
    """All facts of a node for verify.yml."""

    mxnet: Union[ImportFailure, MxnetFacts] = field(_or(ImportFailure, record(MxnetFacts)))
    files: Union[CheckError, ClusterFiles] = field(_or(CheckError, record(ClusterFiles)))
    room: Union[CheckError, Mapping[str, int]] = field(_or(CheckError, table(names.path, whole())))
    """{folder: free bytes}."""
    ssh: Union[CheckError, Peers] = field(_or(CheckError, record(Peers)))
    gpus: Union[CheckError, GpuFacts, None] = field(optional(_or(CheckError, record(GpuFacts))))
    ports_open: str = field(words, default="")
    """The reason why other hosts reach the ports of jobs. Root gives it."""
    speed: Optional[NodeSpeed] = field(optional(record(NodeSpeed)), default=None)
    """None if verify.yml does not ask for it."""
    system: Optional[SystemFacts] = field(optional(record(SystemFacts)), default=None)
    """None if verify.yml does not ask for it."""
    seconds: Mapping[str, float] = field(table(names.library, real(0, 1e9)), default={})
    """{check: its duration in seconds}."""


_seconds = real(-1e11, 1e11)


class Met(Record):
    """The result of a call to another node."""

    host: str = field(words)
    rtt: float = field(_seconds)
    """The round-trip time in seconds."""
    offset: float = field(_seconds)
    """The other node's clock minus the own clock, in seconds."""


class Unreachable(Record):
    """A process of another node that the node could not reach."""

    host: str = field(words)
    name: str = field(words)
    address: str = field(words)
    port: int = field(whole(0, 65535))
    reason: str = field(words)


class Limits(Record):
    """The limits of the node."""

    open_files: int = field(whole(-1))
    """The number of files that a process may open, -1 for no limit."""


class Link(Record):
    """The transfer from another node to this node."""

    host: str = field(words)
    """The other node."""
    received: Optional[float] = field(optional(_rate), default=None)
    """The bandwidth in MB/s, None after an error."""
    error: str = field(words, default="")


class RendezvousReport(Record):
    """The result of the rendezvous on a node, the content of rendezvous.json."""

    met: Sequence[Met] = field(each(record(Met), 5000))
    unreachable: Sequence[Unreachable] = field(each(record(Unreachable), 5000))
    taken: Sequence[str] = field(each(words))
    """The ports that another program has, in words."""
    missing: Sequence[str] = field(each(words, 5000), default=[])
    """The hosts that have not connected to this node."""
    limits: Limits = field(record(Limits))
    links: Sequence[Link] = field(each(record(Link)), default=[])
    """The measured transfers, [] if the plan names no partners."""
