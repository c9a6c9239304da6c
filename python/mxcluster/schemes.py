"""Define the parallel schemes, one row for each value of the knob `kv`.

This table is the only source for the facts of a scheme. The plan, the diagnosis of a stall,
``mx.kv.create`` and the servers read the row. `make docs` writes the tables of README.md and
docs/schemes.md from all rows.

mxcluster refuses a name without a row, because stock MXNet would silently train with another
scheme.
"""

from typing import Callable, Dict, List, NamedTuple, Sequence

from mxcluster.errors import BadInput, did_you_mean

# A set of workers.
NOBODY, GROUP, EVERYBODY = "nobody", "group", "everybody"


class Scheme(NamedTuple):
    """One parallel scheme: a row of the table SCHEMES.

    ``store`` is the class of a worker's store, called with (groups, index). ``update`` is the
    function that makes a server's update, called with a `server_update.Context`. Both have the form
    "module:name" in `mxcluster.training.kvstore`. The value "" stands for MXNet's own store or
    update.
    """

    name: str  # in mx.kv.create
    title: str
    source: str  # the scheme's full name, or the paper that defines the scheme
    # The ends of the sentences "a worker waits for ..." and "a push changes the weights by ...".
    waiting: str
    effect: str
    # The workers that wait for each other, and so need equal numbers of batches in an epoch.
    waits: str
    # The workers whose pushes the servers add up to one update. NOBODY: each push is an update.
    merges: str
    # True if a learning rate schedule counts single pushes, False if rounds of all workers.
    counts_pushes: bool = False
    is_distributed: bool = True
    store: str = ""
    update: str = ""
    # True if each group has its own server processes.
    servers_of_a_group: bool = False
    # The stock scheme that replaces this one if all workers form one group, or "".
    with_one_group: str = ""
    # Why gradients cannot be compressed under this scheme, or "".
    no_compression: str = ""
    # The knobs that only this scheme reads. The processes get them as variables MXCLUSTER_<NAME>.
    knobs: Sequence[str] = ()


Test = Callable[[Scheme], object]  # a condition on a scheme

SCHEMES = (
    Scheme(
        "local",
        "one process",
        "",
        "no worker",
        "the gradients of the worker's GPUs, summed on the CPU (stock MXNet)",
        waits=NOBODY,
        merges=EVERYBODY,
        is_distributed=False,
        no_compression="one process sums all gradients on the CPU, and MXNet does not compress "
        "this sum",
    ),
    Scheme(
        "device",
        "one process",
        "",
        "no worker",
        "the gradients of the worker's GPUs, summed on a GPU (stock MXNet)",
        waits=NOBODY,
        merges=EVERYBODY,
        is_distributed=False,
    ),
    Scheme(
        "dist_sync",
        "BSP",
        "bulk synchronous",
        "all workers, at every step",
        "the sum of the gradients of all workers (stock MXNet)",
        waits=EVERYBODY,
        merges=EVERYBODY,
    ),
    Scheme(
        "dist_device_sync",
        "BSP",
        "",
        "all workers, at every step",
        "the same sum as `dist_sync`, with each worker's part summed on a GPU (stock MXNet)",
        waits=EVERYBODY,
        merges=EVERYBODY,
    ),
    Scheme(
        "dist_async",
        "ASP",
        "asynchronous",
        "no worker",
        "the gradient of the worker, at once (stock MXNet)",
        waits=NOBODY,
        merges=NOBODY,
        counts_pushes=True,
    ),
    Scheme(
        "dist_gsync",
        "Grouping-SGD",
        "Jiang et al., CCGrid 2019",
        "the other workers of the group, at every step",
        "the sum of the group's gradients, with the learning rate divided by Y, the number of "
        "updates since the group's previous update",
        waits=GROUP,
        merges=GROUP,
        store="gsync_worker:GroupedStore",
        update="gsync_server:of_server",
        servers_of_a_group=True,
        with_one_group="dist_sync",
        knobs=("gsync_y", "gsync_compensation", "gsync_max_y"),
    ),
    Scheme(
        "dist_ssync",
        "SSP",
        "stale synchronous; Ho et al., NIPS 2013",
        "workers that are more than `staleness` iterations behind",
        "the gradient of the worker, at once",
        waits=EVERYBODY,
        merges=NOBODY,
        store="ssync_worker:StaleStore",
        update="ssync_server:of_server",
        no_compression="the workers also push iteration counts to the servers, and MXNet's "
        "compression would change these counts",
        knobs=("staleness",),
    ),
)
NAMES = tuple(scheme.name for scheme in SCHEMES)
# MXNet's other names of these stores. "device" decides where a worker sums its own gradients.
ALIASES = {
    "dist": "dist_sync",
    "dist_sync_device": "dist_device_sync",
    "dist_device_async": "dist_async",
    "dist_async_device": "dist_async",
}


def known_as(name: str) -> str:
    """Return the name in SCHEMES of MXNet's kv-store `name`; an unknown name stays as it is."""
    return ALIASES.get(name, name)


def same_effect(one: str, other: str, groups: int) -> bool:
    """Return True if the schemes `one` and `other` train alike with this number of groups.

    `dist_sync` and `dist_device_sync` differ in speed only. With one group, `dist_gsync` is
    `dist_sync`.
    """
    found = []
    for name in (one, other):
        scheme = of(name)
        alone = scheme.with_one_group if groups == 1 else ""
        found.append(of(alone).title if alone else scheme.title)
    return found[0] == found[1]


def of(name: str) -> Scheme:
    """Return the Scheme with the name `name`. Raises BadInput for an unknown name."""
    for scheme in SCHEMES:
        if scheme.name == name:
            return scheme
    raise BadInput(
        "kv=%s is not a parallel scheme%s: use one of %s"
        % (name, did_you_mean(name, NAMES), ", ".join(NAMES))
    )


def with_knob(name: str) -> List[str]:
    """Return the names of the schemes with the knob `name` of their own, [] for other knobs."""
    return [scheme.name for scheme in SCHEMES if name in scheme.knobs]


def distributed() -> List[Scheme]:
    """Return the first distributed Scheme of each title, such as dist_sync for BSP."""
    found: Dict[str, Scheme] = {}
    for scheme in SCHEMES:
        if scheme.is_distributed:
            found.setdefault(scheme.title, scheme)
    return list(found.values())


def updates_each_push(scheme: Scheme) -> bool:
    """Return True if each single push of a worker updates the weights on the servers."""
    return scheme.is_distributed and scheme.merges == NOBODY


def sums_every_step(scheme: Scheme) -> bool:
    """Return True if each update is the sum of one push from every worker of a set.

    A set holds all workers, or the workers of one group. The workers of a set wait for each other.
    The batch sizes in a set may differ, as long as the sum of the batch sizes stays the same.
    """
    return scheme.is_distributed and scheme.waits == scheme.merges != NOBODY


def waiting_sets(name: str, groups: Sequence[Sequence[int]]) -> List[List[int]]:
    """Return the sets of workers (lists of worker indices) that wait for each other.

    Each worker is in exactly one set. `name`: the name of the scheme. `groups`: a list of worker
    indices for each group. Each worker is in exactly one group.
    """
    return _sets(of(name).waits, groups)


def merged_sets(name: str, groups: Sequence[Sequence[int]]) -> List[List[int]]:
    """Return the sets of workers (lists of worker indices) whose pushes the servers add up.

    Returns [] if each push is an update. The arguments are those of `waiting_sets`.
    """
    merges = of(name).merges
    return [] if merges == NOBODY else _sets(merges, groups)


def _sets(kind: str, groups: Sequence[Sequence[int]]) -> List[List[int]]:
    everyone = sorted(index for group in groups for index in group)
    if kind == GROUP:
        return [list(group) for group in groups]
    return [everyone] if kind == EVERYBODY else [[index] for index in everyone]
