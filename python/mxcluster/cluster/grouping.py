"""Compute groups, shares and a placement of parameters from measured speeds.

The functions are pure. They take speeds as {name: speed}, in the order of the workers or servers. A
result names a worker by its position in this order. All sums are exact: a speed counts as the
decimal number that repr writes.

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
from fractions import Fraction
from typing import Any, Callable, List, Mapping, NamedTuple, Sequence, Tuple

from mxcluster.errors import BadInput, refuse
from mxcluster.numbers import to_float

# The maximum number of groups that `propose` chooses by the rules. Each group costs a process on
# every server, and this process holds three copies of the weights in memory.
MOST_GROUPS = 8
# MXNet cuts parameters of this size over all servers (MXNET_KVSTORE_BIGARRAY_BOUND).
BIGARRAY_BOUND = 1000 * 1000


class Proposal(NamedTuple):
    """Groups of workers, from fast to slow."""

    groups: List[List[int]]  # positions of the workers, ascending inside a group
    labels: List[str]  # "speed1" for the fastest group, "speed2", ...
    reason: str  # the reason for the number of groups, as text


def check(speeds: Mapping[str, Any], unit: str = "samples/s") -> List[Fraction]:
    """Return the speeds as exact fractions, in the order of `speeds`.

    Args: `speeds` {name: speed}; `unit` the unit of the speeds in messages.

    Raises BadInput that names each worker or server without a finite speed above 0.
    """
    refuse(["no worker has a speed: give the speed of at least one worker"] if not speeds else [])
    exact, problems = [], []
    for name, speed in speeds.items():
        try:
            value = Fraction(repr(to_float(speed)))
        except ValueError:
            value = Fraction(0)
        if value <= 0:
            problems.append(
                "%s: the speed %s. Measure this speed again, or remove its entry"
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
        noise: the relative difference between two measurements of one speed, such as 0.05.
        groups: the number of groups, or 0 to choose the number by the rules. A number above 0
            overrides the noise and MOST_GROUPS.

    Raises BadInput for a wrong speed (see `check`) or noise, and if `groups` exceeds the number of
    workers or of different speeds.
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
            else "every division has groups whose means differ by at most the noise of %.3g %%"
            % (100 * noise)
        )
    found = clustering.groups(count)
    return Proposal(found, ["speed%d" % (one + 1) for one in range(len(found))], reason)


def calinski_harabasz(speeds: Mapping[str, Any], groups: Sequence[Sequence[int]]) -> float:
    """Return the Calinski-Harabasz score, [SSB / (k - 1)] / [SSW / (n - k)].

    SSB and SSW are the sums of squares between and inside the k groups of n workers. The score is
    infinite if SSW is 0. Raises BadInput unless 2 <= k <= n - 1.

    Args: `speeds` as in `propose`; `groups` lists of workers' positions.

    Source: Calinski and Harabasz, "A dendrite method for cluster analysis", 1974.
    """
    exact = check(speeds)
    if not 2 <= len(groups) <= len(exact) - 1:
        raise BadInput(
            "%d groups of %d workers have no Calinski-Harabasz score: use 2 to %d groups"
            % (len(groups), len(exact), len(exact) - 1)
        )
    inside = sum((_squares([exact[one] for one in group]) for group in groups), Fraction(0))
    return _score(_squares(exact), inside, len(exact), len(groups))[1]


def shares(speeds: Mapping[str, Any], groups: Sequence[Sequence[int]]) -> List[Fraction]:
    """Return each worker's share of the training data, in the workers' order. The sum is exactly 1.

    A share is in proportion to the slowest speed of the worker's group, because the members of a
    group wait for each other. So shares are equal inside a group, and all groups need about the
    same time for an epoch. `cluster.files.cut` turns shares into numbers of samples.

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
    """Return the position in `speeds` of each parameter's server, in the order of `sizes`.

    Each server gets a block of neighbouring parameters. The fastest server gets the lowest layers.
    The backward pass computes the gradients of these layers last, and the next forward pass needs
    the weights of these layers first. Among equally fast servers, the earlier server gets the lower
    layers.

    A server's part of all elements is in proportion to its speed. A parameter belongs to the server
    whose part contains the parameter's middle element. So a part deviates from the proportion by at
    most the largest parameter. Raises BadInput that names each server with a wrong speed.

    Args:
        sizes: the number of elements of each parameter, in order from the lowest layer.
        speeds: {server's name: speed}, in any unit.
        bound: MXNet splits each parameter of at least `bound` elements over all servers. Such a
            parameter counts for no server here, and its entry in the result has no effect.
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
            "the noise %r is invalid: give a number of at least 0, such as 0.05 for 5 %%" % (noise,)
        )
    return Fraction(repr(value))


def _check_asked(groups: Any, workers: int, different: int) -> None:
    if isinstance(groups, bool) or not isinstance(groups, int) or groups < 0:
        raise BadInput(
            "groups=%r is invalid: give a whole number of groups, or 0 to choose the number by the "
            "speeds" % (groups,)
        )
    if groups > workers:
        raise BadInput(
            "groups=%d is more than the %d workers: give at most %d groups"
            % (groups, workers, different)
        )
    if groups > different:
        raise BadInput(
            "groups=%d is more than the %d different speeds of the %d workers. Workers of equal "
            "speed are in one group: give at most %d groups"
            % (groups, different, workers, different)
        )


def _differ(fast: Fraction, slow: Fraction, noise: Fraction) -> bool:
    """Return True if the speeds `fast` and `slow` differ by more than the relative `noise`."""
    return 1 - slow / fast > noise


def _squares(values: Sequence[Fraction]) -> Fraction:
    """Return the sum of the squared distances of `values` from their mean."""
    return sum((one * one for one in values), Fraction(0)) - sum(values, Fraction(0)) ** 2 / len(
        values
    )


def _score(total: Fraction, inside: Fraction, workers: int, groups: int) -> Tuple[Any, float]:
    """Return (exact score, score as float), the Calinski-Harabasz score in two forms.

    The exact score is (1, 0) for an infinite score, else (0, score as Fraction).

    Args: `total` the sum of squares of all speeds; `inside` the sum of squares inside the groups;
    `workers` and `groups` the numbers of workers and of groups.
    """
    if not inside:
        return (1, Fraction(0)), math.inf
    score = (total - inside) * (workers - groups) / (inside * (groups - 1))
    return (0, score), float(score)


class _Clustering:
    """Exact k-means in one dimension, for all numbers of groups up to `most`.

    The class uses dynamic programming over the different speeds, each with its number of workers.
    To divide the first j speeds into k groups, it divides the first i speeds into k - 1 groups. The
    remaining j - i speeds form the last group. The class chooses the i with the least sum of
    squares. This i never falls as j grows. So each k needs O(m log m) sums for m speeds (divide and
    conquer).

    All sums are whole numbers. The class multiplies speeds by the common multiple of their
    denominators, and sums of squares also by the common multiple of all possible group sizes.
    """

    def __init__(self, exact: Sequence[Fraction], values: Sequence[Fraction], most: int) -> None:
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
        """Return (number of groups, score as a string) by the rules 4 to 6 of this module.

        Args: `most` the maximum number of groups; `noise` the relative noise.
        """
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
                text = (
                    "%.3g" % number if inside else "infinite, since each group has a single speed"
                )
        return found, text

    def _mean(self, begin: int, end: int) -> Fraction:
        numbers, sums = self._numbers, self._sums
        return self._values[-1] + Fraction(
            sums[end] - sums[begin], self._unit * (numbers[end] - numbers[begin])
        )

    def _blocks(self, count: int) -> List[Tuple[int, int]]:
        """Return (begin, end) of each of `count` groups, as positions in the list of speeds."""
        blocks, end = [], len(self._values)
        for number in range(count - 1, -1, -1):
            begin = self._cuts[number][end]
            blocks.append((begin, end))
            end = begin
        return blocks[::-1]

    def _solve(self, most: int) -> Tuple[List[int], List[List[int]]]:
        """Return the lists (least, cuts), with an item for each number of groups from 1 to `most`.

        An item of `least` is the least sum of squares, in the units of this class. An item of
        `cuts` is a list of m + 1 ints, where m is the number of different speeds. Item j of this
        list is the begin of the last group if the first j speeds form the groups.
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
    """Return (least sums of squares, begins of the last groups) for `count` groups, as two lists.

    Each list has every + 1 ints. Item j is the value if the first j speeds form the groups. The
    items below `count` are placeholders (0), because j speeds form at most j groups.

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
            if best < 0 or value < best:  # at a tie keep the first begin
                best, place = value, begin
        layer[end], cut[end] = best, place
        ranges += [(low, end - 1, first, place), (end + 1, high, place, last)]
    return layer, cut


def _common_multiple(one: int, other: int) -> int:
    return one * other // math.gcd(one, other)
