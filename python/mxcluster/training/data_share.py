"""The share of the data that a worker of a script trains on, and whether the script asked for it.

The shares come from the job's file data_sharding, as those of the program of mxcluster. A script
that never asks trains on the same samples in every worker, and the report then warns.
"""

import ast
import os
import random
import sys
from typing import TYPE_CHECKING, Iterator, List, Set

from mxcluster import cluster_files, events

if TYPE_CHECKING:
    from mxcluster.training.programs.image_classification.shard import Shards

# Variables whose name in a module of the script shows that the script divides the data itself.
VARIABLES = (b"MXCLUSTER_SHARE", b"MXCLUSTER_INDEX", b"MXCLUSTER_HOST")


class _Asked:
    """Whether this process has asked for its share."""

    is_true = False
    has_warned = False


def index() -> int:
    """Return the number of this worker, from 0: its line in the job's file hosts.

    ps-lite gives `kv.rank` in another order. Only the index belongs to the share.
    """
    _Asked.is_true = True
    return int(os.environ.get("MXCLUSTER_INDEX", 0))


def num_workers() -> int:
    """Return the number of workers of the job."""
    _Asked.is_true = True
    return len(os.environ.get("MXCLUSTER_GROUPS", "0").split(","))


def num_parts() -> int:
    """Return the value of `num_parts` of MXNet's iterators: the number of workers.

    The parts of an iterator are equal. If the shares are unequal, the log and the report say so.
    """
    shares = [cluster_files.length(one) for one in _shards(num_workers()).shares]
    if not _Asked.has_warned and max(shares) - min(shares) > 1e-9:
        _Asked.has_warned = True
        events.note(
            "num_parts gives every worker an equal part, but the job has unequal shares: use "
            "mxcluster.share.indices, or leave data_allocator out"
        )
    return num_workers()


def part_index() -> int:
    """Return the value of `part_index` of MXNet's iterators: the index of this worker."""
    return index()


def indices(length: int) -> range:
    """Return the numbers of this worker's samples in a data set of `length` samples.

    The ranges of all workers cover the data set without an overlap. Raises BadInput if a worker
    would get no sample.
    """
    work = _shards(length).of_batch_size(1)
    return range(work.begin, work.end)


class Sampler(object):
    """A sampler for Gluon's DataLoader: this worker's samples, in batches of `batch_size`.

    Workers that wait for each other get the same number of batches. So a worker with fewer samples
    repeats some of its own samples, and no batch is smaller than the others.

    Args:
        length: the number of samples of the data set.
        batch_size: that of the DataLoader.
        shuffle: True for another order in each epoch.
        seed: the seed of the order.

    Raises BadInput if a worker would get no sample.
    """

    def __init__(self, length: int, batch_size: int, shuffle: bool = True, seed: int = 0) -> None:
        work = _shards(length).of_batch_size(batch_size)
        self._samples = range(work.begin, work.end)
        self._length = work.batches * batch_size
        self._shuffle, self._seed, self._epoch = shuffle, seed, 0

    def __iter__(self) -> Iterator[int]:
        """Yield the numbers of the samples of the next epoch."""
        order: List[int] = list(self._samples)
        if self._shuffle:
            random.Random("%d %d %d" % (self._seed, index(), self._epoch)).shuffle(order)
        self._epoch += 1
        return (order[number % len(order)] for number in range(self._length))

    def __len__(self) -> int:
        """Return the number of samples of an epoch."""
        return self._length


def _shards(length: int) -> "Shards":
    """Return the shards of a data set of `length` samples."""
    # Only a script that asks needs the module, whose package knows the classes of the knobs.
    from mxcluster.training.programs.image_classification import shard

    kv = os.environ.get("MXCLUSTER_KV", "local")
    return shard.Shards(os.environ, kv, num_workers(), 0, length, 1)


def was_asked_for(folder: str) -> bool:
    """Return True if this process has asked for its share, or if its script knows which one it is.

    A script knows its share if a loaded module names one of VARIABLES, or uses `kv.rank` for more
    than the choice of the first worker.

    Args: `folder` with the modules of the script.
    """
    return _Asked.is_true or any(
        any(name in text for name in VARIABLES) or _uses_rank(text)
        for text in _texts(os.path.join(folder, ""))
    )


def _texts(folder: str) -> Iterator[bytes]:
    """Yield the texts of the loaded modules whose files lie in `folder`."""
    for module in list(sys.modules.values()):
        path = str(getattr(module, "__file__", None) or "")
        if path.startswith(folder) and path.endswith(".py"):
            try:
                with open(path, "rb") as stream:
                    yield stream.read()
            except OSError:
                continue


def _uses_rank(text: bytes) -> bool:
    """Return True if a module uses an attribute `rank` otherwise than as `kv.rank == 0`."""
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError):  # the script has changed its file
        return True
    compared: Set[int] = set()
    for node in nodes:
        if isinstance(node, ast.Compare):
            sides = [node.left] + node.comparators
            compared.update(map(id, sides) if any(map(_is_zero, sides)) else ())
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            compared.add(id(node.operand))
    return any(
        isinstance(node, ast.Attribute) and node.attr == "rank" and id(node) not in compared
        for node in nodes
    )


def _is_zero(node: ast.AST) -> bool:
    try:
        return bool(ast.literal_eval(node) == 0)
    except (TypeError, ValueError):  # a set or dict of lists, or no literal
        return False
