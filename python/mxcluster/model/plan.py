"""Define the plan of a job, and the part of the plan that a node gets.

The controller makes the plan, and all later stages of a job carry it out. The controller and each
node keep a copy as JSON. The training user can write to the copy on a node, so `Plan.checked` also
compares the fields with each other.
"""

from typing import Dict, Iterator, List, Optional, Sequence, Tuple, Type, TypeVar

from mxcluster import schemes
from mxcluster.launchers import LAUNCHERS, SSH
from mxcluster.model import names
from mxcluster.model.checkpoint import Progress
from mxcluster.model.firewall import FirewallRequest
from mxcluster.model.job_knobs import Options, of_plan
from mxcluster.model.node_record import Cuda
from mxcluster.model.record import Record, field, record
from mxcluster.model.shapes import (
    LARGEST,
    Shape,
    Wrong,
    each,
    flag,
    ipv4,
    json_object,
    number,
    one_of,
    optional,
    or_empty,
    passing,
    real,
    table,
    text,
    whole,
    words,
)
from mxcluster.model.software import Layer
from mxcluster.model.status import Witness
from mxcluster.model.submission import Submission

P = TypeVar("P", bound="Plan")

Share = Tuple[float, float]  # begin and end of a worker's data, as fractions of 1

MPI_KIND = "mpi"  # the value of `kv` in the plan of an MPI program
SCHEDULER, SERVER, WORKER = "scheduler", "server", "worker"  # the roles of a training's processes
MPIRUN, NODE = "mpirun", "node"  # the roles of the processes of an MPI program
DEEPEST = 12  # levels of a plan, about twice those of a real plan
MOST = 100000  # processes, workers, groups, arguments or variables of a plan

_positive = real(5e-324, LARGEST)
_not_negative = real(0, LARGEST)
_indices = each(whole(), MOST)
_texts = each(text, MOST)
_pair = passing(list, lambda value: len(value) == 2, "a list of two numbers")
_fractions = each(real(0, 1), 2)
# The name of one file or folder, not a path.
_file_name = passing(
    str, lambda value: value not in ("", ".", "..") and "/" not in value, "a name without /"
)
_host = _file_name
_port = optional(whole(1, 65535))
_role = one_of(SCHEDULER, SERVER, WORKER, MPIRUN, NODE)
_json = json_object(DEEPEST)


def _share(value: object) -> Share:
    begin, end = _fractions(_pair(value))
    return begin, end


def _of_place(shape: Shape[str]) -> Shape[str]:
    """Return a shape that also accepts "" and None, which the last version wrote for ""."""
    return lambda value: "" if value is None else or_empty(shape)(value)


class Place(Record):
    """The place of a node in the network of the training traffic."""

    address: str = field(_of_place(ipv4), default="")
    """The IPv4 address, empty for the submit host of a batch system."""
    interface: str = field(_of_place(words), default="")
    """The interface that holds the address."""


class Node(Place):
    """A node of a job."""

    job_dir: str = field(or_empty(names.path), default="")
    """The job folder on the node."""
    python: str = field(or_empty(names.path), default="")
    """The path of the Python program."""
    build: str = field(words, default="")
    """The build of MXNet, such as "cpu" or "cu92"."""
    cuda: Optional[Cuda] = field(optional(record(Cuda)), default=None)
    mounts: Optional[List[str]] = field(optional(each(names.path)), default=None)
    """The folders that a container reads, besides the job folder and the package."""
    layer: str = field(or_empty(names.digest), default="")
    """The digest of the layer with the script's packages, empty without one."""


class Peer(Record, nulls=True):
    """The place of a process, for the other processes of the job."""

    name: str = field(_file_name)
    role: str = field(_role)
    host: str = field(_host)
    address: str = field(ipv4)
    port: Optional[int] = field(_port, default=None)


class Process(Peer):
    """A process of a job."""

    index: Optional[int] = field(optional(whole()), default=None)
    """The number of the process in its role, from 0; None for mpirun."""
    gpus: List[int] = field(each(whole(0, names.MOST_GPU)), default=[])
    """The GPU numbers on the node."""
    cpus: List[int] = field(each(whole(0, names.MOST_CPU), names.MOST_CPU + 1), default=[])
    """The CPU numbers of the process on the node, [] for all CPUs."""
    work_load: List[float] = field(each(_positive), default=[])
    """The relative speed of each GPU, [] for equal speeds."""
    group: Optional[int] = field(optional(whole()), default=None)
    """The number of the worker's group, or of the group that the server process serves."""
    share: Optional[Share] = field(optional(_share), default=None)
    """The begin and end of the worker's share of the data, as fractions of 1."""
    folder: Optional[str] = field(optional(text), default=None)
    """The process's own folder, relative to the job folder."""
    command: List[str] = field(_texts, default=[])
    """The command line of the process."""
    env: Dict[str, str] = field(table(text, text, MOST), default={})
    """The environment variables that mxcluster sets."""

    @property
    def peer(self) -> Peer:
        """The place of the process."""
        return Peer(
            name=self.name, role=self.role, host=self.host, address=self.address, port=self.port
        )


class Root(Record):
    """The address and the port of the scheduler."""

    address: str = field(ipv4)
    port: int = field(whole(1, 65535))


class Heartbeat(Record):
    """The heartbeats of ps-lite."""

    interval: float = field(_not_negative, default=1.0)
    """The seconds between two heartbeats."""
    timeout: float = field(_not_negative, default=0.0)
    """The seconds without a heartbeat after which a peer is dead, 0 for no timeout."""


class Timeouts(Record):
    """The timeouts of the start and of a stall, in seconds; 0 for no timeout."""

    start: float = field(_not_negative, default=0.0)
    stall: float = field(_not_negative, default=0.0)


class Balance(Record):
    """The first batch sizes of the workers and their bounds, in samples by worker.

    With balance=deadline the sizes are the planned samples of a step, and the bounds are those of
    the small batches.
    """

    sizes: List[int] = field(each(whole(1), MOST))
    least: List[int] = field(_indices, default=[])
    most: List[int] = field(_indices, default=[])
    progress: Optional[Progress] = field(optional(record(Progress)), default=None)
    """The state of balance=deadline in the checkpoint from which the job resumes."""


class Container(Record, nulls=True):
    """The containers of a job's processes."""

    engine: str = field(text)
    """The container engine, docker or podman."""
    image: str = field(text)
    python: str = field(text)
    """The path of the Python program in the image."""
    shm_size: Optional[int] = field(optional(whole()), default=None)
    """The size in MB of /dev/shm in each container; None for /dev/shm of the node."""


class UsedProfile(Record):
    """The parts of the plan that come from a profile of the cluster."""

    job: str = field(text)
    """The job that measured the profile."""
    time: float = field(_not_negative, default=0.0)
    """The time of the measurement in unix seconds."""
    fits: bool = field(flag)
    """True if the profile has the speeds of all workers."""
    uses: List[str] = field(each(text))
    """The parts of the plan that come from the profile."""
    notes: List[str] = field(each(text), default=[])
    """Lines for the user."""
    noise: float = field(_not_negative)
    speeds: List[float] = field(each(_positive, MOST))
    """The speed of each worker in samples per second, [] if the profile does not fit."""


class MpiHost(Record, nulls=True):
    """The part of an MPI program on one node."""

    host: str = field(_host)
    name: str = field(_file_name)
    """The name of the process that mxcluster starts on the node."""
    address: str = field(ipv4)
    port: Optional[int] = field(_port, default=None)
    interface: str = field(words)
    processes: int = field(whole(0, MOST))
    """The number of MPI processes."""


class MpiProgram(Record, nulls=True):
    """The program of a job of mpi.yml."""

    command: str = field(text)
    runtime: str = field(text)
    """The wanted engine, "" for the engine in PATH."""
    pre_execution: str = field(text)
    """The shell command before mpirun and its daemons."""
    coordination: str = field(text)
    """The shell command that runs once on each node."""
    infiniband: Optional[bool] = field(optional(flag), default=None)
    network: str = field(text)
    """The address/prefix of the one network of all nodes, empty without one."""
    hosts: List[MpiHost] = field(each(record(MpiHost), MOST))
    """The nodes in the order of the ranks."""


class Changes(Record):
    """The changes of the emulated speed of a worker."""

    factors: Sequence[float] = field(each(number, MOST), default=[])
    """The factors for the time of a step, one after the other. [] for a constant speed."""
    every: float = field(number, default=10.0)
    """The seconds of each factor."""


class EarlierPlan(Record):
    """The plan of an earlier job, of which only the knobs count."""

    options: Options = field(of_plan)


class Plan(Record, nulls=True):
    """The plan of a job: the host, address, port, GPUs, group and environment of each process."""

    schema: int = field(whole(1, 1), default=1)
    job: str = field(names.job_id)
    kv: str = field(one_of(*(schemes.NAMES + (MPI_KIND,))))
    """The parallel scheme, or "mpi"."""
    lease: float = field(_not_negative, default=0.0)
    """The lease in seconds, 0 for a job without a lease."""
    launcher: str = field(one_of(*LAUNCHERS), default=SSH)
    subnet: str = field(text, default="")
    """The address/prefix of the one network of all nodes, empty without one."""
    workers: int = field(whole(0, MOST), default=0)
    """The number of workers, or of MPI processes."""
    servers: int = field(whole(0, MOST), default=0)
    """The number of server processes."""
    heartbeat: Heartbeat = field(record(Heartbeat), default=Heartbeat())
    timeouts: Timeouts = field(record(Timeouts), default=Timeouts())
    root: Optional[Root] = field(optional(record(Root)), default=None)
    groups: List[List[int]] = field(each(_indices, MOST), default=[])
    """The workers of each group."""
    group_labels: List[str] = field(each(text, MOST), default=[])
    together: List[List[int]] = field(each(_indices, MOST), default=[])
    """The sets of workers that wait for each other."""
    shares: List[Share] = field(each(_share, MOST), default=[])
    """The share of each worker, see `Process.share`."""
    placement: List[int] = field(_indices, default=[])
    """The server of each parameter, [] for the scheme's own placement."""
    staleness: Optional[int] = field(optional(whole()), default=None)
    """The bound of the scheme dist_ssync."""
    balance: Optional[Balance] = field(optional(record(Balance)), default=None)
    slowdowns: List[float] = field(each(number, MOST), default=[])
    """The factor by which each worker emulates slowness."""
    changes: List[Changes] = field(each(record(Changes), MOST), default=[])
    """The changes of the emulated speed of each worker, [] if no speed changes."""
    files: Dict[str, str] = field(table(_file_name, text), default={})
    """{file name: text} of the cluster files hosts, groups and data_sharding."""
    options: Options = field(of_plan)
    """The knobs of the job, MpiOptions for mpi.yml."""
    container: Optional[Container] = field(optional(record(Container)), default=None)
    """The containers of the processes, None for a job on the hosts."""
    nodes: Dict[str, Node] = field(table(_host, record(Node), MOST))
    """{host: its node}."""
    layers: Dict[str, Layer] = field(table(names.digest, record(Layer)), default={})
    """{digest: a layer with packages of the script}."""
    ports_open: List[str] = field(each(_host, MOST), default=[])
    """The hosts on which the job cannot close its ports, because it has no root there."""
    processes: List[Process] = field(each(record(Process), MOST))
    profile: Optional[UsedProfile] = field(optional(record(UsedProfile)), default=None)
    """The used parts of the cluster's profile, None without a profile."""
    needs_profile: bool = field(flag, default=False)
    """True if grouping=auto finds no profile that fits."""
    mpi: Optional[MpiProgram] = field(optional(record(MpiProgram)), default=None)
    batch: Optional[Submission] = field(optional(record(Submission)), default=None)
    """The request to a batch system. A plan with a request and without processes waits in the
    queue."""

    @property
    def talks(self) -> bool:
        """True if a process has a port for connections from other processes."""
        return any(process.port is not None for process in self.processes)

    def of_role(self, role: str) -> List[Process]:
        """Return the processes with the role `role`, in order."""
        return [process for process in self.processes if process.role == role]

    def of_host(self, host: str) -> List[Process]:
        """Return the processes on the node `host`, in order."""
        return [process for process in self.processes if process.host == host]

    @classmethod
    def checked(cls: Type[P], value: object) -> P:
        """Return the plan of JSON `value` from a node or a run folder.

        Raises Wrong if a field has another type than in a real plan, or if fields contradict each
        other.
        """
        plan = cls.decode(value)
        for place, what, is_met in _conditions(plan):
            if not is_met:
                raise Wrong(what, plan.encode().get(place), "." + place)
        return plan

    @classmethod
    def of_run(cls: Type[P], value: object) -> P:
        """Return the plan of JSON `value` from a run folder as `checked` does.

        The plan of a batch job that has never had nodes is its submission, without processes.
        """
        plan = cls.decode(value)
        return plan if plan.batch and not plan.processes else cls.checked(value)


class ClusterFiles(Record):
    """The addresses and the three cluster files of the whole cluster."""

    nodes: Dict[str, Place] = field(table(_host, record(Place), MOST))
    files: Dict[str, str] = field(table(_file_name, text))
    notes: List[str] = field(each(text), default=[])
    """Lines about the profile."""


class RendezvousRequest(Record):
    """The rendezvous of a job's nodes before the start of the processes."""

    own: List[Peer] = field(each(record(Peer), MOST))
    """The processes of this node."""
    timeout: float = field(_not_negative)
    """The seconds within which the nodes must meet."""
    clock: float = field(_not_negative)
    """The largest allowed difference between two clocks, in seconds."""
    partners: List[str] = field(each(or_empty(_host), MOST), default=[])
    """The node with which this node measures the bandwidth in each round, "" for a pause. [] for no
    measurement."""


class NodePlan(Plan):
    """A node's part of a plan: the processes on this node, and all common fields."""

    host: str = field(_host)
    """The name of the node."""
    peers: List[Peer] = field(each(record(Peer), MOST), default=[])
    """All processes of the job, for the firewall and the rendezvous."""
    firewall: Optional[FirewallRequest] = field(optional(record(FirewallRequest)), default=None)
    rendezvous: Optional[RendezvousRequest] = field(
        optional(record(RendezvousRequest)), default=None, former=("meeting",)
    )
    controller: Optional[Witness] = field(optional(record(Witness)), default=None)
    """The process ansible-playbook."""
    whole: Optional[Plan] = field(optional(record(Plan)), default=None)
    """The plan of the whole job, which another controller can read later."""


def _conditions(plan: Plan) -> Iterator[Tuple[str, str, bool]]:
    """Yield (field, wanted value in words, True if met) of each condition on a plan's fields."""
    processes, workers = plan.processes, plan.of_role(WORKER)
    indices = [one.index for one in workers]
    yield (
        "processes",
        "a list with one process of each name, a role and an index",
        len({one.name for one in processes}) == len(processes)
        and all(one.name == _name(one) for one in processes),
    )
    yield (
        "processes",
        "a list with the workers 0, 1 and so on",
        set(indices) == set(range(len(indices))) and bool(indices or plan.kv == MPI_KIND),
    )
    yield (
        "nodes",
        "an object with the hosts of all processes",
        {one.host for one in processes} <= set(plan.nodes),
    )
    groups, together = plan.groups, plan.together
    yield "groups", "a list of all workers' groups", _are_sets(groups, len(workers), bool(groups))
    yield "together", "a list of sets of workers", _are_sets(together, len(workers))
    yield (
        "groups",
        "a list with the groups of all processes",
        all(one.group in range(len(groups)) for one in workers)
        if groups
        else not any(one.group for one in processes),
    )
    if plan.balance:
        yield (
            "balance",
            "an object with a size of each worker",
            len(plan.balance.sizes) == len(workers),
        )
        yield (
            "group_labels",
            "a list with a label of each group",
            len(together) < 2 or len(plan.group_labels) == len(together),
        )
    if plan.profile and plan.profile.fits:
        yield (
            "profile",
            "an object with a speed of each worker",
            len(plan.profile.speeds) == len(workers),
        )


def _name(process: Process) -> str:
    """Return the name of a process with this role and index in a real plan."""
    return process.role + ("" if process.index is None else "-%d" % process.index)


def _are_sets(sets: Sequence[Sequence[int]], workers: int, holds_all: bool = False) -> bool:
    """Return True if no set is empty, and each index below `workers` occurs at most once.

    With `holds_all`, the sets must contain each index.
    """
    found = [index for members in sets for index in members]
    return (
        all(sets)
        and len(set(found)) == len(found)
        and set(found) <= set(range(workers))
        and (not holds_all or len(found) == workers)
    )
