"""Define the report of an acceptance, the file that `verify.yml -e report=true` writes.

The file goes to other people, so a field holds a number, a version, a word of a table, or a text of
`mxcluster.cluster.verify.redaction`. It never holds a name, an address or a path of the site.
"""

from typing import Mapping, Optional, Sequence

from mxcluster.model import names
from mxcluster.model.cluster_verdict import FAILED, NOT_RUN, Line
from mxcluster.model.record import Record, field, record
from mxcluster.model.run_record import Controller
from mxcluster.model.shapes import (
    each,
    flag,
    matching,
    one_of,
    optional,
    or_empty,
    real,
    table,
    unix_time,
    whole,
    words,
)

PASSED = "passed"

_name = matching(r"node[1-9][0-9]{0,5}", "the name of a node in a report")
# An IPv4 address has four parts, and so is no version.
_version = matching(r"[0-9]{1,6}(\.[0-9]{1,6}){0,2}", "a version")
_patched = matching(r"[0-9]{1,2}(\.[0-9]{1,4}){1,3}", "a version of CUDA")
_seconds = real(0, 1e9)


class Cuda(Record):
    """The CUDA of a node with GPUs, "" or 0 for an unknown version."""

    wanted: str = field(or_empty(_version), default="")
    """The release of the plan, such as 9.2.148."""
    nvcc: str = field(or_empty(_patched), default="")
    driver_api: int = field(whole(0, 2**31), default=0)
    """The version that libcuda returns, such as 11040."""
    runtime: int = field(whole(0, 2**31), default=0)
    """The version that libcudart returns, such as 9020."""
    cudnn: str = field(or_empty(_version), default="")
    """The version in cuDNN's header."""
    cudnn_loaded: str = field(or_empty(_version), default="")
    nccl_loaded: str = field(or_empty(_version), default="")
    nouveau: bool = field(flag, default=False)
    """True if the kernel has loaded nouveau."""
    capabilities: Sequence[str] = field(each(_version), default=[])
    """The compute capability of each GPU that libcuda lists."""
    trials: Mapping[str, str] = field(table(words, words, 5000), default={})
    """{GPU or pair of GPUs: "ok", or the error of MXNet}."""
    errors: Sequence[str] = field(each(words), default=[])
    """The errors of the libraries, and the libraries that the linker does not find."""


class System(Record):
    """The hardware of a node and the versions of its system, "" or 0 for what is unknown."""

    distribution: str = field(words, default="")
    release: str = field(or_empty(_version), default="")
    kernel: str = field(words, default="")
    selinux: str = field(words, default="")
    cpu: str = field(words, default="")
    cores: int = field(whole(), default=0)
    """The number of logical cores."""
    memory_mb: int = field(whole(), default=0)
    versions: Mapping[str, str] = field(table(words, or_empty(_version)), default={})
    """{program: its version, "" for a missing program}."""
    driver: str = field(or_empty(_version), default="")
    gpus: Sequence[str] = field(each(words, 1024), default=[])
    """The model of each GPU with a driver."""


class Node(Record):
    """The facts of a node."""

    name: str = field(_name)
    build: str = field(words)
    """The build of MXNet, such as "cpu" or "cu92"."""
    mxnet: str = field(words, default="")
    """The version, or the error of the import; "" without an answer of the node."""
    libmxnet: Optional[str] = field(optional(names.digest), default=None)
    """The sha256 of libmxnet.so."""
    system: Optional[System] = field(optional(record(System)), default=None)
    """None without an answer of the node."""
    cuda: Optional[Cuda] = field(optional(record(Cuda)), default=None)
    """None for a node that trains on the CPU."""
    seconds: Mapping[str, float] = field(table(words, _seconds), default={})
    """{check: its duration on the node}."""


class Outcome(Record):
    """The end of a step of an acceptance run (tools/acceptance.py)."""

    step: str = field(words)
    result: str = field(one_of(PASSED, FAILED, NOT_RUN))
    seconds: float = field(_seconds)
    why: str = field(words, default="")
    """The reason of another result than passed."""


class Report(Record):
    """The report of an acceptance."""

    time: float = field(unix_time)
    """The time of the report in unix seconds."""
    controller: Controller = field(record(Controller))
    status: int = field(whole(0, 2))
    """The exit status of verify.yml: 1 if a check failed, 2 if a node did not answer."""
    checks: Sequence[Line] = field(each(record(Line)), default=[])
    nodes: Sequence[Node] = field(each(record(Node), 100000), default=[])
    steps: Sequence[Outcome] = field(each(record(Outcome)), default=[])
    """The steps of the acceptance run, [] for verify.yml alone."""
