"""Define the object `request` of the commands `look`, `record`, `check` and `collect`."""

from typing import Mapping, Optional, Sequence

from mxcluster.launchers import MPI
from mxcluster.model import names
from mxcluster.model.job_knobs import Options
from mxcluster.model.node_record import Cuda, NodeFacts, cuda_or_none
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
    """The number of GPUs that provision.yml found."""
    bus: int = field(whole(0, 1024))
    """The number of GPUs on the PCI bus, 0 for a node with an MXNet for CPUs."""


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
    """The environment variables of the job."""
    infiniband: Optional[bool] = field(optional(flag), default=None)
    """True if the job needs InfiniBand."""
    where: str = field(text, default=HERE)
    """The words for the place in messages: a node or an image."""

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
    """The literal IPv4 address at which the processes listen."""
    interface: Optional[str] = field(optional(text), default=None)
    """The interface with this address."""
    ports: Sequence[int] = field(each(whole(0, 65535), 100000), default=[])
    """The ports of the processes at this address."""
    gpus: Sequence[int] = field(each(whole(0, names.MOST_GPU)), default=[])
    cpus: Optional[Sequence[int]] = field(
        optional(each(whole(0, names.MOST_CPU), names.MOST_CPU + 1)), default=None
    )
    """The CPUs of the processes, None if they have no CPUs of their own."""
    all_gpus: Optional[AllGpus] = field(optional(record(AllGpus)), default=None)
    """The expected GPUs, for a job that uses all GPUs only."""
    jobs_dir: Optional[str] = field(optional(text), default=None)
    """The folder with the folders of all jobs."""
    keep_jobs: int = field(whole(0, 10**9), default=0)
    """The number of ended jobs that the node keeps, 0 for all."""
    job: Optional[str] = field(optional(text), default=None)
    """The id of the new job."""
    files: Sequence[str] = field(each(text), default=[])
    """The paths that the training user must be able to read."""
    data_dir: str = field(text, default="")
    """The knob, for root: jobs in units have folders of their own in the place of some folders."""
    python: Optional[str] = field(optional(text), default=None)
    """The path of the Python program."""
    package: Optional[str] = field(optional(text), default=None)
    """The file name of the package mxcluster of the controller."""
    versions: Versions = field(record(Versions), default=Versions())
    free: Mapping[str, int] = field(table(text, whole()), default={})
    """{folder: the bytes that must be free}."""
    open_files: int = field(whole(), default=0)
    """The number of files that a process opens."""
    engine: Optional[str] = field(optional(text), default=None)
    """The engine of the launcher, which starts the agent outside of a unit."""
    mpi: Optional[MpiRequest] = field(optional(record(MpiRequest)), default=None)
    container: Optional[Container] = field(optional(record(Container)), default=None)
    cuda: Optional[str] = field(optional(text), default=None)
    """The folder of CUDA."""
    batch: Optional[BatchRequest] = field(optional(record(BatchRequest)), default=None)
    """The resources that a job requests, on a submit host only."""


def _facts(value: object) -> NodeFacts:
    try:
        return NodeFacts.decode(value)
    except Wrong:
        return NodeFacts()


class RecordRequest(Arguments):
    """The present node record, which may save the import of MXNet."""

    known: NodeFacts = field(_facts, default=NodeFacts())
    """The facts of the present record, none for a damaged record."""


class SpeedRequest(Record):
    """The measurement of a node's speed."""

    folder: str = field(text, default="")
    """The folder whose file system the node measures, "" to measure nothing."""
    variables: Mapping[str, str] = field(table(text, text), default={})
    """The environment variables of a worker that set its CPUs and threads."""


class CheckRequest(Arguments):
    """The things to examine for verify.yml."""

    etc_dir: str = field(text)
    """The folder of the three cluster files."""
    folders: Sequence[str] = field(each(text))
    """The folders whose free space the node measures."""
    peers: Sequence[str] = field(each(text, 100000), default=[])
    """The hosts to which the node connects by ssh."""
    cuda: Optional[Cuda] = field(cuda_or_none, default=None)
    """The installed CUDA, None for a node that trains on the CPU."""
    speed: SpeedRequest = field(record(SpeedRequest), default=SpeedRequest())
    system: bool = field(flag, default=False)
    """True if the answer has the hardware and the versions of the system's programs."""


class CollectRequest(Arguments):
    """The facts about the start of a job that its collection needs."""

    engine: str = field(text, default="")
    """The engine that has started the agents, such as mpirun."""
