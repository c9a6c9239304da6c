"""Define the record of what ran, the content of runs/<job>/run.json."""

import datetime
import time
from typing import Mapping, Optional, Sequence

from mxcluster.model import names
from mxcluster.model.job_knobs import Options, of_plan
from mxcluster.model.record import Record, field, record
from mxcluster.model.shapes import each, flag, matching, optional, table, text, whole, words

MOST = 100000  # nodes
MACHINE = "machine.json"  # a NodeOfRun, which the agent writes into the job folder
_time = matching(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d", "a time such as 2026-11-27T09:30:00+01:00"
)
_commit = matching(r"[0-9a-f]{40}|[0-9a-f]{64}", "a commit of git")
_knobs = table(matching(r"[a-z][a-z0-9_]{0,99}", "the name of a knob"), text)


def moment(seconds: float) -> str:
    """Return unix `seconds` with the local zone, such as 2026-11-27T09:30:00+01:00."""
    found = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    return found.astimezone().isoformat(timespec="seconds")


def now() -> str:
    """Return the present time as `moment` does."""
    return moment(time.time())


class Hardware(Record):
    """The hardware and the system of a node, "" or 0 for what the kernel does not tell."""

    cpu: str = field(words, default="")
    cores: int = field(whole(0, 2**20), default=0)
    """The number of logical cores."""
    memory_mb: int = field(whole(0, 2**40), default=0)
    gpus: Sequence[str] = field(each(words, 1024), default=[])
    """The names of all NVIDIA GPUs with a driver."""
    driver: str = field(words, default="")
    """The version of the loaded NVIDIA driver."""
    kernel: str = field(words, default="")
    system: str = field(words, default="")


class NodeOfRun(Hardware):
    """A node of the job, with the versions of its record."""

    python: str = field(words, default="")
    mxnet: str = field(words, default="")
    numpy: str = field(words, default="")
    wheel: str = field(words, default="")
    """The file and the sha256 of the user's own build of MXNet, empty without one."""


class Clone(Record):
    """The state of a git clone."""

    commit: str = field(_commit)
    clean: bool = field(flag)
    """True if no file in the folder differs from the commit or is new."""


class Controller(Record):
    """The software of the controller."""

    mxcluster: str = field(words)
    package: str = field(words)
    """The name of the package's zip file, with the digest of its content."""
    clone: Optional[Clone] = field(optional(record(Clone)), default=None)
    """The git clone of mxcluster, None without one."""
    ansible_core: str = field(words)
    python: str = field(words)


class Code(Record):
    """The code of the user's script."""

    path: str = field(words)
    """The path of the script in its folder."""
    folder: str = field(words)
    """The folder on the controller that went to the nodes."""
    sha256: str = field(names.digest)
    """The digest of script.zip."""
    clone: Optional[Clone] = field(optional(record(Clone)), default=None)
    """The git clone with the folder, None without one."""


class RunRecord(Record, nulls=True):
    """The record of a job: software, hardware, command, knobs, code and times."""

    schema: int = field(whole(1, 1), default=1)
    job: str = field(names.job_id)
    command: Sequence[str] = field(each(words, 10000))
    """The words of the command line, with *** in place of values that may be secret."""
    inventory: Sequence[str] = field(each(words))
    controller: Optional[Controller] = field(optional(record(Controller)), default=None)
    """The controller that started the job, None if another one has made the record."""
    nodes: Mapping[str, NodeOfRun] = field(table(names.host, record(NodeOfRun), MOST))
    code: Optional[Code] = field(optional(record(Code)), default=None)
    given: Mapping[str, str] = field(_knobs)
    """{knob: its text} of the knobs as the user gave them with -e or in the inventory."""
    of_inventory: Sequence[str] = field(each(words, 1000), default=[])
    """The names of those in the inventory. Records of earlier versions have none."""
    resolved: Options = field(of_plan)
    """The final values of all knobs."""
    attached: bool = field(flag, default=False)
    """True if the controller attached to the job. Then command, inventory, code and given knobs
    are unknown."""
    begun: str = field(_time)
    ended: Optional[str] = field(optional(_time), default=None)
    """The time of the report, None for a job without one."""
