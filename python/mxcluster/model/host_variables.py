"""Define the host variables of an inventory that mxcluster reads, with one field for each.

`make docs` generates the table of docs/cluster.md from these fields and the strings below them. The
filter mxcluster_inventory and the ssh mesh select their variables by the readers of a field, and
`mxcluster.ansible.knobs` accepts all names with -e.
"""

from typing import List, Mapping, Optional, Sequence, Tuple, TypeVar, Union, cast

from mxcluster.errors import BadInput, for_each
from mxcluster.model.names import MOST_GPU
from mxcluster.model.record import Field, Record
from mxcluster.model.shapes import Shape, Wrong
from mxcluster.model.written import (
    LEAST,
    MOST,
    Written,
    converted,
    cpus,
    real_number,
    seconds,
    to_gpus,
    to_numbers,
    to_text,
    to_texts,
    whole_number,
)

T = TypeVar("T")
# {host: {host variable: value in the inventory}}. `of_host` decodes the hosts in use only, so that
# a wrong value of another host refuses no job.
Given = Mapping[str, Mapping[str, object]]

PLAN, SSH = "the plan of a job", "the ssh files"  # the readers of host variables
# Each worker and each server is a separate process with a port and a copy of MXNet in memory.
MOST_PER_HOST = 256
MOST_SLOWDOWN = 1000
SLOWDOWN = "a factor from 1 (the node's own speed) to %d, such as 2" % MOST_SLOWDOWN
slowdown_factor = real_number(1, MOST_SLOWDOWN, SLOWDOWN)
_AUTO: Union[str, List[int]] = "auto"
_NONE: Union[str, List[int]] = []
_text = converted(to_text, "a text or a number")
_texts = Written(to_texts, lambda texts: len(texts) <= 100, "a text, or at most 100 texts")
_gpus: Shape[Union[str, List[int]]] = converted(
    to_gpus,
    "auto, '' (no GPU) or a list of GPU numbers from 0 to %d such as [0, 1]" % MOST_GPU,
)
_port = converted(
    lambda value: 22 if value == "" else whole_number(1, 65535)(value),
    "a port from 1 to 65535",
)
_label = Written(
    to_text,
    lambda text: text.isprintable() and len(text) <= 100,
    "a label of one line, at most 100 characters (put words such as yes and no in quotes)",
)
_weight = real_number(LEAST, MOST, "a weight from %.6f to %d, such as 1 or 2.5" % (LEAST, MOST))
_changes = Written(
    to_numbers,
    lambda numbers: len(numbers) <= 100 and all(1 <= one <= MOST_SLOWDOWN for one in numbers),
    "'' (no changes) or a list of at most 100 factors from 1 to %d such as [1, 2]" % MOST_SLOWDOWN,
)
_batch_max = whole_number(
    0,
    MOST,
    "a whole number of samples from 0 to %d (0: no limit, and only for balance=batch and "
    "balance=deadline)" % MOST,
)
_speeds = Written(
    to_numbers,
    lambda numbers: all(LEAST <= number <= MOST for number in numbers),
    "'' (equal speeds) or a list of numbers from %.6f to %d such as [3, 1], one for each "
    "GPU of the node" % (LEAST, MOST),
)


class Variable(Field):
    """One host variable.

    Besides the attributes of a Field: `absent`, the default in the words of a page; and `readers`,
    some of PLAN and SSH.
    """

    __slots__ = ("absent", "readers")

    def __init__(
        self, shape: Shape[object], default: object, absent: str, readers: Tuple[str, ...]
    ) -> None:
        super(Variable, self).__init__(shape, default, None, "", ())
        self.absent, self.readers = absent, readers


def _variable(
    shape: Shape[T], default: T, absent: str = "", readers: Tuple[str, ...] = (PLAN,)
) -> T:
    return cast(T, Variable(shape, default, absent, readers))


def _per_host(group: str) -> Shape[int]:
    return whole_number(
        1,
        MOST_PER_HOST,
        "a whole number from 1 to %d (to exclude the host, remove the host from the group %s)"
        % (MOST_PER_HOST, group),
    )


class HostVariables(Record, strict=True):
    """The host variables of one host. People write them, so an unknown name is an error."""

    ansible_connection: str = _variable(_text, "", "`ssh`")
    """`local` for a node that is the controller itself"""
    ansible_host: str = _variable(_text, "", "the host's name", (PLAN, SSH))
    """where the controller reaches the node"""
    ansible_port: int = _variable(_port, 22, "22", (SSH,))
    """the port of its sshd for the controller"""
    node_host_key: Sequence[str] = _variable(_texts, [], readers=(SSH,))
    """its ssh host key, if your `known_hosts` lacks it. An unknown key is refused, with the command
    that shows it"""
    node_address: str = _variable(_text, "", "see [networks](networks.md)")
    """its literal IPv4 address for training"""
    cluster_network: str = _variable(_text, "")
    """the network that holds its address for training, such as `10.20.0.0/24`"""
    dmlc_interface: str = _variable(_text, "")
    """the interface that holds its address for training"""
    worker_group: str = _variable(_label, "", "one group of all")
    """label of its group under `dist_gsync`"""
    worker_share: Optional[float] = _variable(_weight, None, "1")
    """weight of its shard under `data_allocator=1`; equal inside a group"""
    worker_batch_max: int = _variable(_batch_max, 0, "no limit")
    """most samples in a batch of its workers under `balance=batch`, in a small batch under
    `balance=deadline`"""
    slowdown: float = _variable(slowdown_factor, 1.0, "1")
    """[emulates](balance.md#slowed-workers) a machine that is slower by this factor"""
    slowdown_changes: Sequence[float] = _variable(_changes, [], "none")
    """factors such as `[1, 2]` that also slow it, one after the other
    ([changing speeds](balance.md#changing-speeds))"""
    slowdown_every: float = _variable(seconds(0.1, 86400), 10.0, "10")
    """the seconds of each of the `slowdown_changes`"""
    workers_per_host: int = _variable(_per_host("workers"), 1, "1")
    """how many workers it runs, at most 256"""
    servers_per_host: int = _variable(_per_host("servers"), 1, "1")
    """how many servers it runs, at most 256"""
    gpus: Union[str, List[int]] = _variable(_gpus, _AUTO, "`auto`")
    """GPU numbers that its workers may use"""
    gpu_speeds: Sequence[float] = _variable(_speeds, [], "equal")
    """speed of each of its GPUs, such as `[3, 1]` ([GPUs](gpu-jobs.md#gpus-of-unequal-speed))"""
    cpus: Union[str, List[int]] = _variable(cpus, _NONE, "no CPUs of their own")
    """the CPUs that its servers and workers share out: `auto` or numbers such as `0-7`
    ([cores](cores.md))"""
    ssh_mesh_from: Sequence[str] = _variable(_texts, [], readers=(SSH,))
    """more addresses from which its ssh connections may come, as behind NAT or with several
    networks"""
    mxcluster_user: str = _variable(_text, "mxcluster", "`mxcluster`")
    """the user that trains; `''` for the login user, without root and without systemd units"""

    @property
    def weight(self) -> float:
        """The weight of the shard of each worker."""
        return 1.0 if self.worker_share is None else self.worker_share


VARIABLES = cast(Mapping[str, Variable], HostVariables.FIELDS)


def read_by(reader: str) -> Tuple[str, ...]:
    """Return the names of the variables that `reader`, PLAN or SSH, reads."""
    return tuple(name for name, one in VARIABLES.items() if reader in one.readers)


def of_host(host: str, given: Mapping[str, object]) -> HostVariables:
    """Return the host variables of `host` from the values of the inventory.

    A variable without a value (None) has its default. Raises BadInput with the host, the variable
    and the allowed values if a value is wrong, and with the nearest name if a name is unknown.
    """
    try:
        return HostVariables.decode({name: one for name, one in given.items() if one is not None})
    except Wrong as wrong:
        raise BadInput(
            "%s: %s=%s is refused: it must be %s"
            % (host, wrong.where.lstrip("."), wrong.shown, wrong.what)
        ) from None


def of_hosts(hosts: Sequence[str], given: Given) -> Mapping[str, HostVariables]:
    """Return {host: its host variables} for `hosts`. BadInput lists the faults of all hosts."""
    found = for_each(lambda host: of_host(host, given.get(host) or {}), hosts)
    return dict(zip(hosts, found))
