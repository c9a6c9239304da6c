"""Compute groups, shares and a placement of parameters from measured speeds.

The functions are pure. They take speeds above 0 as {name: speed}, in the order of the workers or
servers. A result names a worker by its position in this order. Shares and placement are exact: a
speed counts as the decimal number that repr writes. Values of divisions are floats.

The rules for groups (`propose`):

1. The members of a group wait for each other, so a group g computes |g| min_g(s) samples/s, where s
   are the speeds of its members. The value of a division is the sum over its groups, minus a price
   for each group after the first.
2. A group has a price because it is asynchronous: its gradients are stale, and every server runs a
   process for it, which holds three copies of the weights in memory. The price is PRICE of the sum
   of all speeds. It is up to twice as high if the group's fastest speed is near the slowest speed
   of the next faster group: PRICE (1 + noise / difference), at most 2 PRICE, with relative
   differences. So the noise moves no machine into the group of other machines.
3. The division with the largest value counts, if its workers compute at least LEAST_GAIN more
   samples/s than one group. Else all workers form one group.

The best division cuts the list of sorted speeds, because an exchange of a faster member of a slower
group for a slower member of a faster group lowers no minimum. Workers of equal speed are always in
the same group. PRICE and LEAST_GAIN are choices, not measurements. `tests/unit/cluster` simulates
their effect.
"""

from fractions import Fraction
from typing import List, Mapping, NamedTuple, Sequence, Tuple

PRICE = 0.05  # of the sum of all speeds, for each group after the first
LEAST_GAIN = 0.15  # of the samples/s of one group
# MXNet cuts parameters of this size over all servers (MXNET_KVSTORE_BIGARRAY_BOUND).
BIGARRAY_BOUND = 1000 * 1000

Blocks = List[Tuple[int, int]]  # (begin, end) of each group in the list of sorted speeds


class Proposal(NamedTuple):
    """Groups of workers, from fast to slow."""

    groups: List[List[int]]  # positions of the workers, ascending inside a group
    labels: List[str]  # "speed1" for the fastest group, "speed2", ...
    reason: str  # the number of groups with its gain, or the reason for one group, as text


def propose(speeds: Mapping[str, float], noise: float) -> Proposal:
    """Return the Proposal for workers with these `speeds`, by the rules of this module.

    Args:
        speeds: {worker's name: samples/s}.
        noise: the relative difference between two measurements of one speed, such as 0.05.
    """
    values = list(speeds.values())
    order = sorted(range(len(values)), key=lambda one: (-values[one], one))
    blocks = _best([values[one] for one in order], noise)
    found = [sorted(order[begin:end]) for begin, end in blocks]
    if gain(values, found) < LEAST_GAIN:
        found = [sorted(order)]
    labels = ["speed%d" % (one + 1) for one in range(len(found))]
    return Proposal(found, labels, reason(values, found, noise))


def reason(speeds: Sequence[float], groups: Sequence[Sequence[int]], noise: float) -> str:
    """Return the gain of `groups` as text, or the reason for one group and what helps instead.

    Args: `speeds` and `groups` as in `rate`; `noise` as in `propose`.
    """
    count, slowest = len(speeds), min(speeds)
    if len(groups) > 1:
        return "%d groups would compute %.0f %% more samples/s than one group" % (
            len(groups),
            100 * gain(speeds, groups),
        )
    if count == 1:
        return "one worker"
    difference = 1 - slowest / max(speeds)
    if difference <= noise:
        return (
            "one group, because the speeds differ by %.2g %%, no more than the noise of %.2g %%"
            % (100 * difference, 100 * noise)
        )
    ranked = sorted(speeds, reverse=True)
    faster = max(cut * (fast - slowest) for cut, fast in enumerate(ranked, 1))
    return (
        "one group, because two groups would compute only %.0f %% more samples/s, too little for "
        "the price of stale gradients: balance=batch gives faster workers larger batches instead"
        % (100 * faster / (count * slowest))
    )


def rate(speeds: Sequence[float], groups: Sequence[Sequence[int]]) -> float:
    """Return the samples/s of all workers if the members of each group wait for each other.

    Args: `speeds` in samples/s by worker; `groups` lists of workers' positions.
    """
    return sum(len(group) * min(speeds[one] for one in group) for group in groups)


def gain(speeds: Sequence[float], groups: Sequence[Sequence[int]]) -> float:
    """Return the gain in samples/s over one group of all workers, 0.15 for 15 %.

    The arguments are those of `rate`.
    """
    return rate(speeds, groups) / (len(speeds) * min(speeds)) - 1


def shares(speeds: Mapping[str, float], groups: Sequence[Sequence[int]]) -> List[Fraction]:
    """Return each worker's share of the training data, in the workers' order. The sum is exactly 1.

    A share is in proportion to the slowest speed of the worker's group, because the members of a
    group wait for each other. So shares are equal inside a group, and all groups need about the
    same time for an epoch. `cluster_files.cut` turns shares into numbers of samples.

    Args: `speeds` as in `propose`; `groups` lists of workers' positions, each worker in one list.
    """
    exact = _exact(speeds)
    weight = list(exact)
    for group in groups:
        slowest = min(exact[one] for one in group)
        for one in group:
            weight[one] = slowest
    total = sum(weight)
    return [one / total for one in weight]


def placement(
    sizes: Sequence[int], speeds: Mapping[str, float], bound: int = BIGARRAY_BOUND
) -> List[int]:
    """Return the position in `speeds` of each parameter's server, in the order of `sizes`.

    Each server gets a block of neighbouring parameters. The fastest server gets the lowest layers.
    The backward pass computes the gradients of these layers last, and the next forward pass needs
    the weights of these layers first. Among equally fast servers, the earlier server gets the lower
    layers.

    A server's part of all elements is in proportion to its speed. A parameter belongs to the server
    whose part contains the parameter's middle element. So a part deviates from the proportion by at
    most the largest parameter.

    Args:
        sizes: the number of elements of each parameter, in order from the lowest layer.
        speeds: {server's name: speed}, in any unit.
        bound: MXNet splits each parameter of at least `bound` elements over all servers. Such a
            parameter counts for no server here, and its entry in the result has no effect.
    """
    exact = _exact(speeds)
    order = sorted(range(len(exact)), key=lambda one: (-exact[one], one))
    counted = [size if size < bound else 0 for size in sizes]
    total, speed = sum(counted), sum(exact)
    result, place = [], 0
    end, before = exact[order[0]] * total / speed, 0  # the end of the part of the server `place`
    for size in counted:
        while place < len(order) - 1 and Fraction(2 * before + size, 2) > end:
            place += 1
            end += exact[order[place]] * total / speed
        result.append(order[place])
        before += size
    return result


def _exact(speeds: Mapping[str, float]) -> List[Fraction]:
    return [Fraction(repr(float(speed))) for speed in speeds.values()]


def _best(ranked: Sequence[float], noise: float) -> Blocks:
    """Return the groups of the division with the largest value, by dynamic programming.

    To divide the first `end` speeds, the function divides the first `begin` speeds, and the
    remaining speeds form the last group. At a tie the smallest `begin` counts.

    Args: `ranked` the speeds, from fast to slow.
    """
    total = sum(ranked)
    prices = [0.0] + [
        PRICE * total * (1 + _nearness(fast, slow, noise)) for fast, slow in zip(ranked, ranked[1:])
    ]
    before, last = [0.0], [0]  # by the number of divided speeds: value - price of the next, begin
    for end, slowest in enumerate(ranked, 1):
        options = [value - begin * slowest for begin, value in enumerate(before)]
        best = max(options)
        last.append(options.index(best))
        before.append(best + end * slowest - (prices[end] if end < len(ranked) else 0))
    blocks, end = [], len(ranked)
    while end:
        blocks.append((last[end], end))
        end = last[end]
    return blocks[::-1]


def _nearness(fast: float, slow: float, noise: float) -> float:
    """Return the `noise` divided by the relative difference of two speeds, at most 1."""
    difference = 1 - slow / fast
    return 1.0 if difference <= noise else noise / difference
