"""Compute groups, shares and a placement of parameters from measured speeds.

The functions are pure. They take speeds above 0 as {name: speed}, in the order of the workers or
servers. A result names a worker by its position in this order. Shares, placement and the comparison
with the noise are exact: a speed counts as the decimal number that repr writes. Sums of squares are
floats.

The rules for groups (`propose`):

1. A single worker forms one group. Workers of equal speed are always in the same group.
2. If no speed differs from the fastest speed by more than the noise (a relative difference), all
   workers form one group.
3. Otherwise two workers form two groups.
4. For n >= 3 workers, k-means finds groups with the least sum of squared distances to the groups'
   means. k-means runs for each number of groups from 2 to the smallest of n - 1, MOST_GROUPS and
   the number of different speeds. A number of groups counts only if the means of neighbouring
   groups differ by more than the noise. Without this condition, the Calinski-Harabasz score would
   split each cluster of equal workers again.
5. `propose` chooses the number with the largest Calinski-Harabasz score, at a tie the smaller
   number. The score is infinite if all speeds inside each group are equal. So each different speed
   gets its own group if at most min(n - 1, MOST_GROUPS) speeds are different.
6. If no number counts, all workers form one group.
7. Among divisions with the same sum of squares, `propose` chooses the division with the most
   workers in the slowest group. At a tie the second slowest group decides, and so on.
"""

import math
import operator
from fractions import Fraction
from typing import List, Mapping, NamedTuple, Sequence, Tuple

# The maximum number of groups that `propose` chooses by the rules. Each group costs a process on
# every server, and this process holds three copies of the weights in memory.
MOST_GROUPS = 8
# MXNet cuts parameters of this size over all servers (MXNET_KVSTORE_BIGARRAY_BOUND).
BIGARRAY_BOUND = 1000 * 1000
TIE = 1e-12  # the difference of two equal sums of squares, relative to the sum of all workers

# The first different speed of each group, from fast to slow, and the sum of squares.
Division = Tuple[float, Tuple[int, ...]]


class Proposal(NamedTuple):
    """Groups of workers, from fast to slow."""

    groups: List[List[int]]  # positions of the workers, ascending inside a group
    labels: List[str]  # "speed1" for the fastest group, "speed2", ...
    reason: str  # the reason for the number of groups, as text


def propose(speeds: Mapping[str, float], noise: float) -> Proposal:
    """Return the Proposal for workers with these `speeds`, by the rules of this module.

    Args:
        speeds: {worker's name: samples/s}.
        noise: the relative difference between two measurements of one speed, such as 0.05.
    """
    exact, limit = _exact(speeds), Fraction(repr(noise))
    values = sorted(set(exact), reverse=True)
    counts = [exact.count(one) for one in values]
    count, reason = 0, ""
    if len(exact) == 1:
        count, reason = 1, "one worker"
    elif not _differ(values[0], values[-1], limit):
        count = 1
        reason = "the speeds differ by %.3g %%, no more than the noise of %.3g %%" % (
            100 * float(1 - values[-1] / values[0]),
            100 * noise,
        )
    elif len(exact) == 2:
        count, reason = 2, "two workers, whose speeds differ by more than the noise"
    most = count or min(len(exact) - 1, MOST_GROUPS, len(values))
    divisions = _divisions([float(one) for one in values], counts, most)
    if not count:
        count, score = _best(divisions, values, counts, limit)
        reason = (
            "%d groups have the largest Calinski-Harabasz score, %s" % (count, score)
            if count > 1
            else "every division has groups whose means differ by at most the noise of %.3g %%"
            % (100 * noise)
        )
    found = [
        [position for position, speed in enumerate(exact) if speed in values[begin:end]]
        for begin, end in _blocks(divisions[count - 1], len(values))
    ]
    return Proposal(found, ["speed%d" % (one + 1) for one in range(len(found))], reason)


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


def _differ(fast: Fraction, slow: Fraction, noise: Fraction) -> bool:
    """Return True if the speeds `fast` and `slow` differ by more than the relative `noise`."""
    return 1 - slow / fast > noise


def _best(
    divisions: Sequence[Division],
    values: Sequence[Fraction],
    counts: Sequence[int],
    noise: Fraction,
) -> Tuple[int, str]:
    """Return (number of groups, score as a string) by the rules 4 to 6 of this module.

    The Calinski-Harabasz score is [SSB / (k - 1)] / [SSW / (n - k)]. SSB and SSW are the sums of
    squares between and inside the k groups of n workers.

    Args: `divisions` from `_divisions`; `values` the different speeds, from fast to slow; `counts`
    the number of workers with each speed; `noise` the relative noise.

    Source: Calinski and Harabasz, "A dendrite method for cluster analysis", 1974.
    """
    found, best, workers = 1, 0.0, sum(counts)
    for count, division in enumerate(divisions[1:], 2):
        means = [
            Fraction(sum(map(operator.mul, values[begin:end], counts[begin:end])))
            / sum(counts[begin:end])
            for begin, end in _blocks(division, len(values))
        ]
        if not all(_differ(fast, slow, noise) for fast, slow in zip(means, means[1:])):
            continue
        inside = division[0]
        between = divisions[0][0] - inside
        score = between * (workers - count) / (inside * (count - 1)) if inside else math.inf
        if score > best * (1 + 1e-9):  # at a tie the smaller number counts
            found, best = count, score
    return found, (
        "infinite, since each group has a single speed" if best == math.inf else "%.3g" % best
    )


def _divisions(speeds: Sequence[float], counts: Sequence[int], most: int) -> List[Division]:
    """Return the division with the least sum of squares for each number of groups up to `most`.

    This is k-means in one dimension by dynamic programming. To divide the first j speeds into k
    groups, the function divides the first i speeds into k - 1 groups, and the remaining speeds form
    the last group. At a tie the first i counts.

    Args: `speeds` the different speeds, from fast to slow; `counts` the number of workers with each
    speed.
    """
    mean = sum(map(operator.mul, speeds, counts)) / sum(counts)
    numbers, sums, squares = [0], [0.0], [0.0]
    for speed, count in zip(speeds, counts):
        numbers.append(numbers[-1] + count)
        sums.append(sums[-1] + count * (speed - mean))
        squares.append(squares[-1] + count * (speed - mean) ** 2)

    def cost(begin: int, end: int) -> float:
        if end - begin < 2:
            return 0.0
        total = (sums[end] - sums[begin]) ** 2 / (numbers[end] - numbers[begin])
        return max(0.0, squares[end] - squares[begin] - total)

    every, tie = len(speeds), TIE * squares[-1]
    layer = [(cost(0, end), (0,)) for end in range(every + 1)]  # type: List[Division]
    found = [layer[every]]
    for number in range(1, most):
        before, layer = layer, [(0.0, ())] * (number + 1)
        for end in range(number + 1, every + 1):
            options = [before[begin][0] + cost(begin, end) for begin in range(number, end)]
            limit = min(options) + tie
            place = next(place for place, option in enumerate(options) if option <= limit)
            layer.append((options[place], before[number + place][1] + (number + place,)))
        found.append(layer[every])
    return found


def _blocks(division: Division, every: int) -> List[Tuple[int, int]]:
    """Return (begin, end) of each group, as positions in the list of `every` different speeds."""
    begins = division[1]
    return list(zip(begins, begins[1:] + (every,)))
