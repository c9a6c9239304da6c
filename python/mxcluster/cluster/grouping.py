"""Form groups, shares and a placement of parameters from measured speeds. Pure.

Speeds come as {name: speed}, in the order of the workers or servers; a result names a worker by its
position in this order. All sums are exact: a speed counts as the decimal number that repr writes.

The rules for groups (`propose`):

1. A single worker forms one group. Workers of equal speed are always in the same group.
2. If all speeds differ by no more than the noise, relative to the fastest, the workers form one
   group.
3. Otherwise two workers form two groups.
4. Three or more workers: for each number of groups from 2 to the smallest of n - 1, MOST_GROUPS and
   the number of different speeds, k-means finds the groups with the least sum of squared distances
   to the groups' means. A number of groups counts only if the means of neighbouring groups differ
   by more than the noise. Without this condition, the Calinski-Harabasz score would split each
   cluster of equal machines again.
5. Of the numbers that count, the one with the largest Calinski-Harabasz score is chosen, at a tie
   the smaller number. Groups without any distance inside have an infinite score. So each different
   speed gets a group of its own if at most min(n - 1, MOST_GROUPS) speeds are different.
6. If no number counts, all workers form one group.
7. Of several divisions with the same sum of squares, the one with the largest slowest group is
   chosen, then the one with the largest second slowest group, and so on.
"""

import math
from fractions import Fraction
from typing import Any, Callable, List, Mapping, NamedTuple, Sequence, Tuple

from mxcluster.errors import BadInput, refuse
from mxcluster.numbers import to_float

# The most groups that `propose` chooses by itself. Each group costs a process on every server, and
# this process holds three copies of the weights in memory.
MOST_GROUPS = 8
# MXNet cuts parameters of this size over all servers (MXNET_KVSTORE_BIGARRAY_BOUND).
BIGARRAY_BOUND = 1000 * 1000


class Proposal(NamedTuple):
    """Groups of workers, from fast to slow."""

    groups: List[List[int]]  # positions of the workers, ascending inside a group
    labels: List[str]  # "speed1" for the fastest group, "speed2", ...
    reason: str  # why there are this many groups, in words


def check(speeds: Mapping[str, Any], unit: str = "samples/s") -> List[Fraction]:
    """Return the speeds as exact fractions, in their order.

    BadInput names each worker whose speed is missing (None), not a number, not finite or not
    above 0. Args: `unit` of the speeds in messages.
    """
    refuse(["no worker has a speed: give at least one speed"] if not speeds else [])
    exact, problems = [], []
    for name, speed in speeds.items():
        try:
            value = Fraction(repr(to_float(speed)))
        except ValueError:
            value = Fraction(0)
        if value <= 0:
            problems.append(
                "%s: the speed %s: measure it again, or leave it out"
                % (
                    name,
                    "is missing"
                    if speed is None
                    else "%r is not a number of %s above 0" % (speed, unit),
                )
            )
        exact.append(value)
    refuse(problems)
    return exact


def propose(speeds: Mapping[str, Any], noise: float, groups: int = 0) -> Proposal:
    """Return the Proposal for workers with these `speeds`, by the rules of this module.

    Args:
        speeds: {worker's name: samples/s}.
        noise: the relative difference that two measurements of one speed show, such as 0.05.
        groups: the number of groups, 0 to choose it by the rules. A given number counts as it is,
            without regard to the noise and to MOST_GROUPS.

    BadInput for a wrong speed (see `check`), for a wrong noise, and for more groups than there are
    workers or different speeds.
    """
    exact, limit = check(speeds), _noise(noise)
    values = sorted(set(exact), reverse=True)
    _check_asked(groups, len(exact), len(values))
    reason = ""
    if groups:
        count = groups
        reason = "%d groups, as asked for" % groups
    elif not _differ(values[0], values[-1], limit):
        count = 1
        reason = (
            "one worker"
            if len(exact) == 1
            else "the speeds differ by %.3g %%, no more than the noise of %.3g %%"
            % (100 * float(1 - values[-1] / values[0]), 100 * noise)
        )
    elif len(exact) == 2:
        count, reason = 2, "two workers, whose speeds differ by more than the noise"
    else:
        count = 0
    clustering = _Clustering(exact, values, count or MOST_GROUPS)
    if not count:
        count, score = clustering.best(min(len(exact) - 1, MOST_GROUPS), limit)
        reason = (
            "%d groups have the largest Calinski-Harabasz score, %s" % (count, score)
            if count > 1
            else "in each division, means of groups differ by no more than the noise of %.3g %%"
            % (100 * noise)
        )
    found = clustering.groups(count)
    return Proposal(found, ["speed%d" % (one + 1) for one in range(len(found))], reason)


def calinski_harabasz(speeds: Mapping[str, Any], groups: Sequence[Sequence[int]]) -> float:
    """Return the Calinski-Harabasz score, [SSB / (k - 1)] / [SSW / (n - k)].

    SSB and SSW are the sums of squares between and inside the k groups of n workers. The score is
    infinite if SSW is 0. BadInput unless 2 <= k <= n - 1.

    Source: Calinski and Harabasz, "A dendrite method for cluster analysis", 1974.
    """
    exact = check(speeds)
    if not 2 <= len(groups) <= len(exact) - 1:
        raise BadInput(
            "%d groups of %d workers have no Calinski-Harabasz score, which needs 2 to %d groups"
            % (len(groups), len(exact), len(exact) - 1)
        )
    inside = sum((_squares([exact[one] for one in group]) for group in groups), Fraction(0))
    return _score(_squares(exact), inside, len(exact), len(groups))[1]


def shares(speeds: Mapping[str, Any], groups: Sequence[Sequence[int]]) -> List[Fraction]:
    """Return each worker's share of the training data; the sum is exactly 1.

    A share is in proportion to the slowest speed of the worker's group, because the members of a
    group wait for each other. So shares are equal inside a group, and all groups need about the
    same time for an epoch. `cluster.files.cut` turns shares into samples by largest remainders.

    Args: `speeds` as in `propose`; `groups` lists of workers' positions, each worker in one list.
    """
    exact = check(speeds)
    weight = list(exact)
    for group in groups:
        slowest = min(exact[one] for one in group)
        for one in group:
            weight[one] = slowest
    total = sum(weight)
    return [one / total for one in weight]


def placement(
    sizes: Sequence[int], speeds: Mapping[str, Any], bound: int = BIGARRAY_BOUND
) -> List[int]:
    """Return a list with, for each parameter, the position of its server.

    Each server gets a block of neighbouring parameters. The fastest server gets the lowest layers:
    the backward pass computes their gradients last, and the next forward pass needs their weights
    first. A server's part of all elements is in proportion to its speed. A parameter belongs to the
    server whose part contains the parameter's middle element. So a part deviates from the
    proportion by at most the largest parameter. Of equally fast servers the earlier one comes
    first.

    Args:
        sizes: the number of elements of each parameter, in order from the lowest layer.
        speeds: {server's name: speed}, in any unit.
        bound: MXNet cuts parameters of at least this size over all servers. They count for no
            server here, and their place in the result has no effect.

    BadInput names a server with a wrong speed.
    """
    exact = check(speeds, "updates/s")
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


def _noise(noise: Any) -> Fraction:
    try:
        value = to_float(noise)
    except ValueError:
        value = -1.0
    if value < 0:
        raise BadInput(
            "the noise %r is refused: it must be a number of at least 0, such as 0.05 for 5 %%"
            % (noise,)
        )
    return Fraction(repr(value))


def _check_asked(groups: Any, workers: int, different: int) -> None:
    if isinstance(groups, bool) or not isinstance(groups, int) or groups < 0:
        raise BadInput(
            "groups=%r is refused: it must be a whole number of groups, or 0 to let the speeds "
            "decide" % (groups,)
        )
    if groups > workers:
        raise BadInput(
            "groups=%d is more than the %d workers: ask for at most %d groups"
            % (groups, workers, different)
        )
    if groups > different:
        raise BadInput(
            "groups=%d is more than the %d different speeds of the %d workers, and workers of "
            "equal speed stay together: ask for at most %d groups"
            % (groups, different, workers, different)
        )


def _differ(fast: Fraction, slow: Fraction, noise: Fraction) -> bool:
    """Return True if the two speeds differ by more than the noise."""
    return 1 - slow / fast > noise


def _squares(values: Sequence[Fraction]) -> Fraction:
    """Return the sum of the squared distances of `values` from their mean."""
    return sum((one * one for one in values), Fraction(0)) - sum(values, Fraction(0)) ** 2 / len(
        values
    )


def _score(total: Fraction, inside: Fraction, workers: int, groups: int) -> Tuple[Any, float]:
    """Return the Calinski-Harabasz score, first in a form that compares exactly, then as a float.

    Args: `total` the sum of squares of all speeds; `inside` the sum of squares inside the groups.
    """
    if not inside:
        return (1, Fraction(0)), math.inf
    score = (total - inside) * (workers - groups) / (inside * (groups - 1))
    return (0, score), float(score)


class _Clustering:
    """Exact k-means in one dimension, for all numbers of groups up to `most`.

    The class uses dynamic programming over the different speeds, each with its number of workers.
    To divide the first j speeds into k groups, it divides the first i speeds into k - 1 groups and
    puts the others into the last group, with the i of the least sum of squares. This i does not
    fall as j grows. So each k needs O(m log m) sums for m speeds (divide and conquer).

    All sums are whole numbers: speeds are multiplied by the common multiple of their denominators,
    sums of squares also by the common multiple of all possible group sizes.
    """

    def __init__(self, exact: Sequence[Fraction], values: Sequence[Fraction], most: int):
        self._exact, self._values = exact, values
        unit = 1
        for one in values:
            unit = _common_multiple(unit, one.denominator)
        counts = dict.fromkeys(values, 0)
        for one in exact:
            counts[one] += 1
        multiple = 1
        for number in range(2, len(exact) + 1):
            multiple = _common_multiple(multiple, number)
        self._parts = [0] + [multiple // number for number in range(1, len(exact) + 1)]
        self._unit, self._multiple = unit, multiple
        numbers, sums, squares = [0], [0], [0]
        for one in values:
            # Distances from the slowest speed keep the numbers small.
            whole, count = int((one - values[-1]) * unit), counts[one]
            numbers.append(numbers[-1] + count)
            sums.append(sums[-1] + whole * count)
            squares.append(squares[-1] + whole * whole * count * multiple)
        self._numbers, self._sums, self._squares = numbers, sums, squares
        self._least, self._cuts = self._solve(min(most, len(values)))

    def groups(self, count: int) -> List[List[int]]:
        """Return the positions of the workers in `count` groups, from fast to slow."""
        group_of = {}
        for number, (begin, end) in enumerate(self._blocks(count)):
            for one in self._values[begin:end]:
                group_of[one] = number
        result = [[] for _ in range(count)]  # type: List[List[int]]
        for position, one in enumerate(self._exact):
            result[group_of[one]].append(position)
        return result

    def best(self, most: int, noise: Fraction) -> Tuple[int, str]:
        """Return (number of groups, its score as text) by the rules 4 to 6 of this module."""
        found, best, text = 1, None, ""  # type: int, Any, str
        scale = self._multiple * self._unit**2
        total = Fraction(self._least[0], scale)
        for count in range(2, min(most, len(self._values)) + 1):
            means = [self._mean(*block) for block in self._blocks(count)]
            if not all(_differ(fast, slow, noise) for fast, slow in zip(means, means[1:])):
                continue
            inside = Fraction(self._least[count - 1], scale)
            score, number = _score(total, inside, len(self._exact), count)
            if best is None or score > best:
                found, best = count, score
                text = "%.3g" % number if inside else "infinite: no distance inside groups"
        return found, text

    def _mean(self, begin: int, end: int) -> Fraction:
        numbers, sums = self._numbers, self._sums
        return self._values[-1] + Fraction(
            sums[end] - sums[begin], self._unit * (numbers[end] - numbers[begin])
        )

    def _blocks(self, count: int) -> List[Tuple[int, int]]:
        """Return (begin, end) of each of `count` groups in the list of different speeds."""
        blocks, end = [], len(self._values)
        for number in range(count - 1, -1, -1):
            begin = self._cuts[number][end]
            blocks.append((begin, end))
            end = begin
        return blocks[::-1]

    def _solve(self, most: int) -> Tuple[List[int], List[List[int]]]:
        """Return (least, cuts), both with one entry for each number of groups, from 1 to `most`.

        An entry of `least` is the least sum of squares, in the units of this class. An entry of
        `cuts` is a list: its item j is the begin of the last group of the first j speeds.
        """
        numbers, sums, squares, parts = self._numbers, self._sums, self._squares, self._parts

        def cost(begin: int, end: int) -> int:
            return (
                squares[end]
                - squares[begin]
                - (sums[end] - sums[begin]) ** 2 * parts[numbers[end] - numbers[begin]]
            )

        every = len(self._values)
        layer = [0] + [cost(0, end) for end in range(1, every + 1)]
        least, cuts = [layer[every]], [[0] * (every + 1)]
        for count in range(2, most + 1):
            layer, cut = _next_layer(layer, cost, count, every)
            least.append(layer[every])
            cuts.append(cut)
        return least, cuts


def _next_layer(
    before: Sequence[int], cost: Callable[[int, int], int], count: int, every: int
) -> Tuple[List[int], List[int]]:
    """Return two lists by j: least sums of squares, and begins of the last group.

    They are those of the first j speeds in `count` groups.

    Args: `before` the least sums for count - 1 groups; `cost` the function that returns the sum of
    squares of the group (begin, end); `every` the number of speeds.
    """
    layer, cut = [0] * (every + 1), [0] * (every + 1)
    ranges = [(count, every, count - 1, every - 1)]
    while ranges:
        low, high, first, last = ranges.pop()
        if low > high:
            continue
        end = (low + high) // 2
        best, place = -1, first
        for begin in range(first, min(last, end - 1) + 1):
            value = before[begin] + cost(begin, end)
            if best < 0 or value < best:  # at a tie the first begin: the last group is larger
                best, place = value, begin
        layer[end], cut[end] = best, place
        ranges += [(low, end - 1, first, place), (end + 1, high, place, last)]
    return layer, cut


def _common_multiple(one: int, other: int) -> int:
    return one * other // math.gcd(one, other)
