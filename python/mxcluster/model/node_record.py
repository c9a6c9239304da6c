"""Define the node record, the facts that the controller keeps about each node.

Root of a node, if there is a root, collects the facts of the machine. A process of the training
user collects the facts of the environment. The role node_record adds paths from its own variables,
because root runs programs and writes files at these paths.
"""

from typing import Dict, Mapping, Optional, Sequence

from mxcluster.errors import BadInput
from mxcluster.model import names
from mxcluster.model.record import Record, field, record
from mxcluster.model.shapes import (
    Wrong,
    each,
    flag,
    ipv4,
    ipv4_interface,
    one_of,
    optional,
    or_empty,
    real,
    table,
    whole,
    words,
)
from mxcluster.model.written import whole_number

MOST_MODULES = 20000
MOST_SIBLINGS = 16  # hyper-threads of a core; POWER has 8
SCHEMA = 2  # in schema 1 the node reported the paths
CURE = (
    "run provision.yml for this host. If mxcluster refuses the record again, find the process on "
    "the host that changes the output of the training user's programs, and use the training user "
    "for mxcluster only"
)


class Network(Record):
    """The IPv4 addresses of a node."""

    address_of_default_route: Optional[str] = field(optional(ipv4), default=None)
    interfaces: Mapping[str, Sequence[str]] = field(
        table(names.interface_name, each(ipv4_interface)), default={}
    )
    """{interface: its addresses, such as 10.0.0.5/24}."""


class Driver(Record):
    """The state of NVIDIA's driver."""

    installed: Optional[str] = field(optional(names.version))
    """The version of the module for the running kernel."""
    loaded: Optional[str] = field(optional(names.version))
    """The version of the loaded module."""
    nouveau: bool = field(flag)
    """True if the kernel has loaded nouveau."""

    def restart_reason(self) -> str:
        """Return the reason why the node needs a restart for the driver, or "" without one."""
        if self.installed and self.nouveau:
            return "driver %s is installed, but nouveau is loaded" % self.installed
        if self.installed and self.loaded != self.installed:
            loaded = self.loaded or "none"
            return "driver %s is installed, but %s is loaded" % (self.installed, loaded)
        return ""


class Core(Record):
    """A core of a machine, with the CPUs that the processes of the node may use."""

    cpus: Sequence[int] = field(each(whole(0, names.MOST_CPU), MOST_SIBLINGS))
    """The numbers of its CPUs, which are its hyper-threads."""
    memory: int = field(whole(0, names.MOST_CPU), default=0)
    """The number of its NUMA node."""


class MachineFacts(Network):
    """The facts of a machine. Their collection needs no MXNet."""

    hostname: str = field(or_empty(names.hostname), default="")
    host_keys: Sequence[str] = field(each(names.public_key, 16), default=[])
    """The public keys of sshd."""
    gpus: int = field(whole(0, 1024), default=0)
    """The number of GPUs that nvidia-smi lists."""
    driver: Optional[Driver] = field(optional(record(Driver)), default=None)
    cores: Optional[Sequence[Core]] = field(
        optional(each(record(Core), names.MOST_CPU + 1)), default=None
    )
    """The cores by NUMA node, None in records of an earlier version."""
    cpu_limit: Optional[float] = field(optional(real(0.001, names.MOST_CPU + 1)), default=None)
    """The number of CPUs that a quota or a batch system gives without naming them."""


class NodeFacts(MachineFacts):
    """All facts that a node reports: those of the machine, and those of the environment."""

    python_version: Optional[str] = field(optional(names.version), default=None)
    mxnet: Optional[str] = field(optional(names.version), default=None)
    numpy: Optional[str] = field(optional(names.version), default=None)
    model_zoo: Sequence[str] = field(each(names.network), default=[])
    """The networks of MXNet's model zoo."""
    modules: Sequence[str] = field(each(names.module, MOST_MODULES), default=[])
    """The modules that `import` finds, without the dots of packages. Empty if unknown."""
    fingerprints: Mapping[str, str] = field(
        table(one_of("libmxnet.so", "numpy"), names.digest), default={}
    )
    """{library: sha256 of parts of its file}."""
    granted: Optional[Sequence[int]] = field(optional(each(whole(0, names.MOST_GPU))), default=None)
    """The GPUs that a batch system gives to a job, only in its job."""
    cards: Optional[int] = field(optional(whole(0, 1024)), default=None)
    """The number of NVIDIA's GPUs on the PCI bus, only in the job of a batch system."""


class Cuda(Record):
    """The CUDA that provision.yml has installed, or None for a field that its version lacks."""

    folder: str = field(names.path)
    version: Optional[str] = field(optional(words), default=None)
    """The version, such as 9.2."""
    release: Optional[str] = field(optional(words), default=None)
    """The full version, such as 9.2.148."""
    driver: Optional[str] = field(optional(words), default=None)
    """The oldest driver for this CUDA."""
    cudnn: Optional[str] = field(optional(words), default=None)
    nccl: Optional[str] = field(optional(words), default=None)
    sass: Sequence[str] = field(each(words), default=[])
    """The compute capabilities with machine code in MXNet."""
    gpus: Optional[int] = field(optional(whole(0, 1024)), default=None)
    """The number of NVIDIA's GPUs on the PCI bus."""


class Ssh(Record):
    """The ssh user of a node."""

    public_key: str = field(or_empty(names.public_key), default="")
    user: str = field(or_empty(names.user_name), default="")
    port: int = field(whole_number(1, 65535), default=22)
    """The port of the node's sshd."""


def cuda_or_none(value: object) -> Optional[Cuda]:
    """Return the CUDA of a node: an object, or an empty value for a node without CUDA."""
    return Cuda.decode(value) if value else None


class Places(Record):
    """The values of the role's variables for a node."""

    python: Optional[str] = field(optional(names.path), default=None)
    """The path of the Python program, None in records of other schemas."""
    job_dir: str = field(names.path)
    """The folder of all jobs."""
    data_dir: str = field(names.path)
    """The folder of the data sets."""
    target: str = field(words, default="")
    """The build of MXNet: "cpu", or "cu92" for CUDA 9.2."""
    wheel: str = field(words, default="")
    """The file and the sha256 of the user's own build of MXNet, empty without one."""
    bus: int = field(whole_number(0, 1024), default=0)
    """The number of NVIDIA's GPUs on the PCI bus."""
    cuda: Optional[Cuda] = field(cuda_or_none, default=None)
    ssh: Ssh = field(record(Ssh), default=Ssh())


class NodeRecord(NodeFacts, Places):
    """The facts of a node, and the values of the role's variables for this node."""

    host: str = field(words)
    """The name in the inventory."""
    schema: Optional[int] = field(optional(whole(0, 1000000)), default=None)

    def refuse_damaged(self) -> None:
        """Raise BadInput if the file of this record was damaged."""


class DamagedRecord(NodeRecord):
    """The record of a damaged file. It has no facts, and only the jobs of its host are refused."""

    fault: str = field(words)
    """What is wrong with the file, and the cure."""

    def refuse_damaged(self) -> None:
        """Raise BadInput with the host, the file, its fault and the cure."""
        raise BadInput("%s: %s" % (self.host, self.fault))


Records = Dict[str, NodeRecord]


def make(host: str, facts: object, places: object) -> NodeRecord:
    """Return the record of `host` from the answer `facts` of the node and the role's values.

    Raises BadInput if a value does not match its shape.
    """
    try:
        known, own = NodeFacts.decode(facts), Places.decode(places)
    except Wrong as wrong:
        raise BadInput("the node record of %s is invalid (%s): %s" % (host, wrong, CURE)) from None
    return NodeRecord(host=host, schema=SCHEMA, **vars(known), **vars(own))


def from_file(host: str, value: object) -> NodeRecord:
    """Return the record of `host` from the content `value` of its file.

    In schema 1 the node reported the path of Python. The function drops this path from records of
    other schemas, and the planner then requires a run of provision.yml. Raises Wrong if a field is
    invalid, or if the record belongs to another host.
    """
    found = NodeRecord.decode(value)
    if found.host != host:
        raise Wrong("the record of %s" % host, found.host, ".host")
    return found if found.schema == SCHEMA else found.replaced(python=None)
