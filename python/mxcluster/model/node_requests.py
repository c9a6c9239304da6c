"""Define the object `request` of the commands `look`, `record`, `check` and `collect`."""

from typing import Mapping, Optional, Sequence

from mxcluster.launchers import MPI
from mxcluster.model import names
from mxcluster.model.job_knobs import Options
from mxcluster.model.node_record import Cuda, NodeFacts
from mxcluster.model.plan import Container
from mxcluster.model.record import Record, field, record
from mxcluster.model.shapes import Wrong, each, flag, optional, table, text, whole
from mxcluster.model.submission import BatchRequest

HERE = "on this node"


class Arguments(Record):
    """Base of an object `request`. The codec alone checks it, as each command has another class."""


class AllGpus(Record):
    """The GPUs that a job without a choice of GPUs expects on the node."""

    record: int = field(whole(0, 1024))
    """The number that provision.yml found."""
    bus: int = field(whole(0, 1024))
    """The number on the PCI bus, 0 for a node with an MXNet for CPUs."""


class Versions(Record):
    """The versions and fingerprints of the node record, see `mxcluster.node.software`."""

    python_version: Optional[str] = field(optional(text), default=None)
    fingerprints: Mapping[str, str] = field(table(text, text), default={})


class MpiRequest(Record):
    """The needs of an MPI program."""

    runtime: str = field(text)
    """The name of an engine, "" for any engine."""
    pre_execution: str = field(text)
    """The shell commands that load the engine."""
    env: Mapping[str, str] = field(table(text, text, 10000), default={})
    """Of the job."""
    infiniband: Optional[bool] = field(optional(flag), default=None)
    """Whether the job needs InfiniBand."""
    where: str = field(text, default=HERE)
    """The words for the place: a node or an image."""

    @classmethod
    def of_training(cls, options: Options) -> Optional["MpiRequest"]:
        """Return the needs of a training job with these knobs, None without launcher=mpi."""
        if options.launcher != MPI:
            return None
        return cls(
            runtime="" if options.mpi_runtime == "auto" else options.mpi_runtime,
            pre_execution=options.mpi_pre_execution_command,
            infiniband=False,
        )


class LookRequest(Arguments):
    """The needs of a job on a node."""

    address: Optional[str] = field(optional(text), default=None)
    """The literal IPv4 address that the processes bind."""
    interface: Optional[str] = field(optional(text), default=None)
    """The interface with this address."""
    ports: Sequence[int] = field(each(whole(0, 65535), 100000), default=[])
    """At this address."""
    gpus: Sequence[int] = field(each(whole(0, names.MOST_GPU)), default=[])
    all_gpus: Optional[AllGpus] = field(optional(record(AllGpus)), default=None)
    """Of a job that uses all GPUs."""
    jobs_dir: Optional[str] = field(optional(text), default=None)
    """The folder with the folders of all jobs."""
    job: Optional[str] = field(optional(text), default=None)
    """A new job id."""
    files: Sequence[str] = field(each(text), default=[])
    """Paths that must be readable."""
    data_dir: str = field(text, default="")
    """The knob, for root: jobs in units have folders of their own in the place of some folders."""
    python: Optional[str] = field(optional(text), default=None)
    """The path of the Python."""
    package: Optional[str] = field(optional(text), default=None)
    """The file name of the controller's mxcluster."""
    versions: Versions = field(record(Versions), default=Versions())
    free: Mapping[str, int] = field(table(text, whole()), default={})
    """{folder: needed bytes}."""
    open_files: int = field(whole(), default=0)
    """The number of files that a process opens."""
    engine: Optional[str] = field(optional(text), default=None)
    """The engine of the launcher, which starts the agent outside of a unit."""
    mpi: Optional[MpiRequest] = field(optional(record(MpiRequest)), default=None)
    container: Optional[Container] = field(optional(record(Container)), default=None)
    cuda: Optional[str] = field(optional(text), default=None)
    """The folder of CUDA."""
    batch: Optional[BatchRequest] = field(optional(record(BatchRequest)), default=None)
    """Of a submit host."""


def _facts(value: object) -> NodeFacts:
    try:
        return NodeFacts.decode(value)
    except Wrong:
        return NodeFacts()


class RecordRequest(Arguments):
    """The present node record, which may save the import of MXNet."""

    known: NodeFacts = field(_facts, default=NodeFacts())
    """No facts for a damaged record."""


def _cuda(value: object) -> Optional[Cuda]:
    return Cuda.decode(value) if value else None


class CheckRequest(Arguments):
    """The things to examine for verify.yml."""

    etc_dir: str = field(text)
    """The folder of the three cluster files."""
    folders: Sequence[str] = field(each(text))
    """To measure."""
    peers: Sequence[str] = field(each(text, 100000), default=[])
    """To reach by ssh."""
    cuda: Optional[Cuda] = field(_cuda, default=None)
    """Of a node that trains on GPUs."""


class CollectRequest(Arguments):
    """The facts about the start of a job that its collection needs."""

    engine: str = field(text, default="")
    """The engine that has started the agents, such as mpirun."""
