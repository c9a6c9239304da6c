"""Assign a share of the training data to each worker."""

from fractions import Fraction
from typing import List, Mapping, Optional, Sequence

from mxcluster import schemes
from mxcluster.cluster_files import Share, length, parse_data_sharding, tile
from mxcluster.errors import BadInput, refuse
from mxcluster.lists import unique
from mxcluster.model.host_variables import HostVariables

# Users round shares in a file (0.33 0.67 ...). Shares count as equal if the shares differ by at
# most this fraction of the mean share.
ROUNDING = 0.01


def are_given(lines: Sequence[str], variables: Mapping[str, HostVariables]) -> bool:
    """Return True if at least one host in `lines` has the host variable worker_share."""
    return any(variables[host].worker_share is not None for host in lines)


def check_equal_inside(
    groups: Sequence[Sequence[int]],
    labels: Sequence[str],
    lines: Sequence[str],
    weight: Sequence[float],
) -> None:
    """Refuse different values of worker_share inside a group.

    The members of a group wait for each other at every batch.

    Args: `groups` lists of worker indices; `labels` of the groups; `lines` the host of each worker;
    `weight` the worker_share of each worker.
    """
    refuse(
        "worker_share differs inside the group %s (%s), but members of a group wait for each "
        "other: give these hosts the same worker_share, or different groups"
        % (
            label,
            ", ".join("%s: %g" % pair for pair in unique((lines[i], weight[i]) for i in members)),
        )
        for members, label in zip(groups, labels)
        if len({weight[i] for i in members}) > 1
    )


def proportional(weight: Sequence[float]) -> List[Share]:
    """Return a share (begin, end) of [0, 1] for each worker, in proportion to the weights."""
    return tile([Fraction(one) for one in weight], range(len(weight)))


def of_sizes(
    parts: Sequence[Share], sizes: Sequence[int], waiting: Sequence[Sequence[int]]
) -> List[Share]:
    """Return a new share (begin, end) for each worker, in proportion to the batch sizes.

    The proportion holds inside each set of workers that wait for each other. The sum of the shares
    of a set stays the same.

    Args: `parts` the earlier share of each worker; `sizes` the batch size of each worker; `waiting`
    the sets, as lists with the indices of workers that wait for each other.
    """
    lengths = [Fraction(0)] * len(parts)
    for members in waiting:
        whole = sum((length(parts[worker]) for worker in members), Fraction(0))
        total = sum(sizes[worker] for worker in members)
        for worker in members:
            lengths[worker] = whole * Fraction(sizes[worker], total)
    return tile(lengths, [worker for members in waiting for worker in members])


def from_file(text: str, workers: int, count: int, name: str) -> List[Share]:
    """Return the shares of the first `count` workers from the text of a data_sharding file.

    The file has a line for each of `workers` workers. If `count` is smaller, the function scales
    the shares to fill [0, 1].

    Args: `name` the name of the file in messages.
    """
    shares = parse_data_sharding(text, workers, name)
    if count == workers:
        return shares
    kept = shares[:count]
    return tile(
        [length(share) for share in kept], sorted(range(count), key=lambda index: kept[index])
    )


def check_scheme(
    kv: str, data_allocator: int, shares: Sequence[Share], name: Optional[str]
) -> None:
    """Refuse a data_sharding file with data_allocator=0, and unequal shares under a BSP scheme.

    Under a BSP scheme all workers wait for each other at every batch.

    Args: `kv` the name of the scheme; `shares` [(begin, end)] by worker; `name` the name of the
    data_sharding file in messages, None without a file.
    """
    if name and not data_allocator:
        raise BadInput(
            "%s is given, but data_allocator=0 gives every worker an equal share: add "
            "data_allocator=1, or leave the file out" % name
        )
    lengths = [end - begin for begin, end in shares]
    scheme = schemes.of(kv)
    unequal = max(lengths) - min(lengths) > ROUNDING * sum(lengths) / len(lengths)
    if scheme.waits == scheme.merges == schemes.EVERYBODY and unequal:
        small, large = lengths.index(min(lengths)), lengths.index(max(lengths))
        raise BadInput(
            "data_allocator=1 with unequal shares (worker %d: %.4g, worker %d: %.4g) is refused. "
            "Under kv=%s all workers wait for each other at every batch: use kv=dist_gsync, or "
            "equal shares (data_allocator=0)" % (small, lengths[small], large, lengths[large], kv)
        )
