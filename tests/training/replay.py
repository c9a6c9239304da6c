"""Reconstruct the order of merges from the workers' logs, and check each merge of Grouping-SGD.

The search uses three logs of each worker: the initial weights, the pushed gradients, and the
weights that were pulled after each step. It uses no log of the servers and no code of mxcluster.

Every parameter has its own order; a parameter that is split over the hosts of the servers has one
order for each slice. The definition for one slice, with W workers, of which |g| are in group g:

    N = 0 updates, L_g = 0 for every group, B = 0 batches, and w is the initial weight.
    Merge number t of group g:
        G = the sum of gradient t of each member
        Y = N - L_g + 1
        B += |g|;  if Y > `max_y` and `max_y` is not 0, then L_g = N, and the rest is left out
        Y = 1 with `fixed_y`
        N += 1;  L_g = N
        n = ceil(B / W) is the round, and eta(n) is its learning rate by the schedule
        with `compensation` lambda: s = r W / |g|;  d = w - the last weights that g pulled;
                      the gradient is s G + lambda s G s G d in place of s G
        y="gradient": the optimizer steps w by G, with rescale_grad = r W / (|g| Y)
                      and the learning rate eta(n)
        y="rate":     the optimizer steps w by G, with rescale_grad = r W / |g|
                      and the learning rate eta(n) / Y
    Adam's number of updates is N.  r is the rescale_grad of dist_sync.
    Every member of g pulls w as it is after this merge.

The search uses the last line. It tries each group as the next one, continues with those whose
logged weights match, and backtracks when no group matches. Each step starts from the logged weights
of the merge before, so float32 rounding errors do not accumulate; the optimizer's state is replayed
in float64.

Assumption on schedules: all parameters of a server share a schedule, which sees the newest round of
any parameter, so another parameter may be ahead. A group begins a step when the whole step before
is merged, so no parameter is ahead by more than one round. The search tries the next round too, and
allows no later merge of the slice in an earlier round.

Limits: Adam and RMSProp cancel a constant factor of all gradients unless there is weight decay or
clipping. A slice whose gradients are all 0 matches any order.
"""

import collections
import math

import numpy as np

# relative to the largest weight of a slice; one step in float32 uses a fifth of it
TOLERANCE = 5e-6

# error: relative, as TOLERANCE
Merge = collections.namedtuple("Merge", "group step y round error dropped")
_State = collections.namedtuple("_State", "weight slots updates last done batches round")


class NoOrder(AssertionError):
    """No order of merges gives the weights that the workers pulled.

    Attributes:
        parameter: its name.
        begin, end: the bounds of the slice.
        group, step: the nearest match where the search ended; None for contradictory logs.
        error: the error of that match, relative to the largest weight; None likewise.
        merged: the number of merges before it.
    """

    def __init__(self, text, parameter, begin, end, group=None, step=None, error=None, merged=0):
        super().__init__("%s[%d:%d]: %s" % (parameter, begin, end, text))
        self.parameter, self.begin, self.end = parameter, begin, end
        self.group, self.step, self.error, self.merged = group, step, error, merged


class Explained:
    """An order of merges that gives every pulled weight of one slice.

    Attributes:
        parameter: its name.
        begin, end: the bounds of the slice.
        merges: the list of Merge in order.
        ambiguous: the number of merges at which another group matches, too.
    """

    def __init__(self, parameter, begin, end, merges, ambiguous):
        self.parameter, self.begin, self.end = parameter, begin, end
        self.merges, self.ambiguous = merges, ambiguous

    @property
    def order(self):
        """Return the groups in the order of their merges."""
        return [merge.group for merge in self.merges]

    @property
    def ys(self):
        """Return Y of each merge that changed the weights."""
        return [merge.y for merge in self.merges if not merge.dropped]

    @property
    def dropped(self):
        """Return Y of each dropped merge."""
        return [merge.y for merge in self.merges if merge.dropped]

    @property
    def error(self):
        """Return the largest error of a merge."""
        return max((merge.error for merge in self.merges), default=0.0)


# Optimizers of MXNet 1.2 to 1.9, from their documentation and src/operator/optimizer_op-inl.h.


class Optimizer:
    """Base of the optimizers; the arguments are those of MXNet."""

    def __init__(self, learning_rate, wd=0.0, clip_gradient=None):
        self.learning_rate, self.wd, self._clip_at = learning_rate, wd, clip_gradient

    def slots(self, size):
        """Return the state before the first update."""
        raise NotImplementedError

    def update(self, weight, slots, gradient, lr, wd, count):
        """Return the new (weight, slots).

        `gradient` is rescaled already; `count` is the number of the update, from 1.
        """
        raise NotImplementedError

    def _clipped(self, gradient):
        return np.clip(gradient, -self._clip_at, self._clip_at) if self._clip_at else gradient


class Sgd(Optimizer):
    """SGD clips the gradient only, and adds weight decay afterwards."""

    def __init__(self, learning_rate=0.01, momentum=0.0, **params):
        super().__init__(learning_rate, **params)
        self._momentum = _single(momentum)

    def slots(self, size):
        return (np.zeros(size),)

    def update(self, weight, slots, gradient, lr, wd, count):
        velocity = self._momentum * slots[0] - lr * (self._clipped(gradient) + wd * weight)
        return weight + velocity, (velocity,)


class Adam(Optimizer):
    """Adam clips the sum of gradient and weight decay."""

    def __init__(self, learning_rate=0.001, beta1=0.9, beta2=0.999, epsilon=1e-8, **params):
        super().__init__(learning_rate, **params)
        self._betas, self._epsilon = (beta1, beta2), epsilon

    def slots(self, size):
        return np.zeros(size), np.zeros(size)

    def update(self, weight, slots, gradient, lr, wd, count):
        # MXNet corrects the bias in double precision, and uses the betas as float32 elsewhere.
        lr = lr * math.sqrt(1 - self._betas[1] ** count) / (1 - self._betas[0] ** count)
        beta1, beta2 = map(_single, self._betas)
        gradient = self._clipped(gradient + wd * weight)
        mean = beta1 * slots[0] + (1 - beta1) * gradient
        variance = beta2 * slots[1] + (1 - beta2) * gradient**2
        return weight - lr * mean / (np.sqrt(variance) + self._epsilon), (mean, variance)


class RmsProp(Optimizer):
    """RMSProp clips the sum of gradient and weight decay; epsilon is inside the root."""

    def __init__(self, learning_rate=0.001, gamma1=0.9, epsilon=1e-8, **params):
        super().__init__(learning_rate, **params)
        self._gamma1, self._epsilon = _single(gamma1), epsilon

    def slots(self, size):
        return (np.zeros(size),)

    def update(self, weight, slots, gradient, lr, wd, count):
        gradient = self._clipped(gradient + wd * weight)
        square = self._gamma1 * slots[0] + (1 - self._gamma1) * gradient**2
        return weight - lr * gradient / np.sqrt(square + self._epsilon), (square,)


OPTIMIZERS = {"sgd": Sgd, "adam": Adam, "rmsprop": RmsProp}


def _single(number):
    return float(np.float32(number))


# Logs.


def load(path):
    """Load the log of a worker of small_training.py.

    Returns a dict: names[i]; initial[i], the weights at the start of all workers; gradients[t][i],
    the pushes of step t; history[t][i], the pulls after it; weights[i] at the end; started[t] in
    seconds; the multipliers lr_mult[i] and wd_mult[i]; final[i], the weights after the end of all
    workers, if the script logs them.
    """
    file = np.load(path)
    parameters, steps = range(len(file["names"])), range(len(file["started"]))
    return {
        "names": file["names"].tolist(),
        "started": file["started"],
        "lr_mult": file["lr_mult"].tolist(),
        "wd_mult": file["wd_mult"].tolist(),
        "weights": [file["weight_%d" % i] for i in parameters],
        "initial": [file["initial_%d" % i] for i in parameters],
        "final": [file["final_%d" % i] for i in parameters if "final_%d" % i in file.files],
        "gradients": [[file["gradient_%d_%d" % (t, i)] for i in parameters] for t in steps],
        "history": [[file["history_%d_%d" % (t, i)] for i in parameters] for t in steps],
    }


def part(worker, parameters, steps):
    """Return the log of a worker for some parameters (by position) and the first `steps` only."""

    def some(arrays):
        return [arrays[i] for i in parameters]

    return dict(
        worker,
        names=some(worker["names"]),
        initial=some(worker["initial"]),
        started=worker["started"][:steps],
        gradients=[some(arrays) for arrays in worker["gradients"][:steps]],
        history=[some(arrays) for arrays in worker["history"][:steps]],
    )


def compressed(worker, threshold):
    """Return the log of a worker with the gradients that 2-bit compression makes of its own.

    MXNet adds each gradient to what is left of the gradients before it. Where the sum reaches
    `threshold` or -`threshold`, MXNet sends this number and takes it off the sum, in float32.
    Source: quantize_2bit in gradient_compression-inl.h.
    """
    left, sent = [np.zeros_like(array) for array in worker["initial"]], []
    for gradients in worker["gradients"]:
        left = [rest + gradient for rest, gradient in zip(left, gradients)]
        step = [
            np.float32(threshold) * (1.0 * (sums >= threshold) - (sums <= -threshold))
            for sums in left
        ]
        left = [(sums - part).astype("float32") for sums, part in zip(left, step)]
        sent.append([part.astype("float32") for part in step])
    return dict(worker, gradients=sent)


def slices(size, servers=1, bound=1000 * 1000):
    """Return (begin, end) of each slice of a parameter.

    The hosts of the servers share a parameter of `bound` numbers or more."""
    if servers == 1 or size < bound:
        return [(0, size)]
    cuts = [int(math.floor(size / servers * host + 0.5)) for host in range(servers + 1)]
    return [(begin, end) for begin, end in zip(cuts, cuts[1:]) if begin < end]


# Search.


def explain(
    workers,
    groups,
    optimizer,
    rescale,
    y="gradient",
    fixed_y=False,
    lr_of_round=None,
    lr_mult=None,
    wd_mult=None,
    servers=1,
    bound=1000 * 1000,
    tolerance=TOLERANCE,
    compensation=0.0,
    max_y=0,
):
    """Return an Explained for every slice of every parameter, or raise NoOrder.

    Args:
        workers: the logs as `load` returns them.
        groups: groups[i] is the group of worker i.
        optimizer: one of OPTIMIZERS, made with the arguments of the training.
        rescale: r.
        y: "gradient" or "rate".
        fixed_y: whether Y is always 1.
        lr_of_round: the learning rate of round 1, 2, ..; by default the optimizer's, constant.
        lr_mult, wd_mult: the multipliers of each parameter.
        servers: the number of hosts.
        bound: MXNET_KVSTORE_BIGARRAY_BOUND.
        tolerance: the largest relative error.
        compensation: lambda.
        max_y: the largest Y of a merge that is not dropped, or 0.
    """
    definition = _Definition(
        optimizer, rescale, y, fixed_y, lr_of_round, len(groups), compensation, max_y
    )
    found = []
    for index, initial in enumerate(workers[0]["initial"]):
        for begin, end in slices(initial.size, servers, bound):
            log = _Log(workers, groups, index, begin, end)
            lr = 1.0 if lr_mult is None else float(lr_mult[index])
            wd = optimizer.wd * (1.0 if wd_mult is None else float(wd_mult[index]))
            found.append(_Search(definition, log, lr, wd, tolerance).run())
    return found


class _Definition:
    """One merge by the definition."""

    def __init__(
        self, optimizer, rescale, y, fixed_y, lr_of_round, workers, compensation=0.0, max_y=0
    ):
        if y not in ("gradient", "rate"):
            raise ValueError("y is %r, and has to be gradient or rate" % (y,))
        self.optimizer, self._rescale, self._workers = optimizer, rescale, workers
        self._divides_rate, self._fixed_y = y == "rate", fixed_y
        self._compensation, self._max_y = compensation, max_y
        self._lr_of_round = lr_of_round or (lambda number: optimizer.learning_rate)

    def drops(self, state, group):
        """Return True if the next merge of `group` is dropped."""
        return 0 < self._max_y < state.updates - state.last[group] + 1

    def rounds(self, state, group, members):
        """Return the possible rounds of the next merge, without rounds of equal learning rates."""
        own = -(-(state.batches + members) // self._workers)
        if self.drops(state, group):
            return [max(own, state.round)]
        rates = {}
        for number in range(max(own, state.round), own + 2):
            rates.setdefault(self._lr_of_round(number), number)
        return rates.values()

    def y(self, state, group):
        return 1 if self._fixed_y else state.updates - state.last[group] + 1

    def merged(self, state, group, members, total, seen, number, lr_mult, wd):
        """Return the state after `group` has merged the sum `total` in round `number`.

        `seen` are the weights that the group pulled before.
        """
        done = {**state.done, group: state.done[group] + 1}
        if self.drops(state, group):
            last = {**state.last, group: state.updates}
            return state._replace(
                last=last, done=done, batches=state.batches + members, round=number
            )
        y, updates = self.y(state, group), state.updates + 1
        rate, part = self._lr_of_round(number) * lr_mult, 1.0
        if self._divides_rate:
            rate /= y
        else:
            part /= y
        gradient = self._rescale * self._workers / members * total
        gradient = gradient + self._compensation * gradient * gradient * (state.weight - seen)
        weight, slots = self.optimizer.update(
            state.weight, state.slots, part * gradient, rate, wd, updates
        )
        last = {**state.last, group: updates}
        return _State(weight, slots, updates, last, done, state.batches + members, number)


class _Log:
    """The workers' logs of one slice by group.

    `total[g][t]` is the sum of the gradients, `after[g][t]` the pulled weights.
    """

    def __init__(self, workers, groups, index, begin, end):
        self.parameter, self.begin, self.end = workers[0]["names"][index], begin, end
        self.initial = self._of(workers[0]["initial"][index])
        for number, worker in enumerate(workers):
            if not np.array_equal(self._of(worker["initial"][index]), self.initial):
                raise self.failure("workers 0 and %d began with different weights" % number)
        self.members = {
            g: [i for i, other in enumerate(groups) if other == g] for g in sorted(set(groups))
        }
        self.total, self.after = {}, {}
        for group in self.members:
            self._read(workers, group, index)

    def _read(self, workers, group, index):
        members = self.members[group]
        logs = [workers[i] for i in members]
        if len({len(log["history"]) for log in logs}) > 1:
            raise self.failure("the members of group %s made different numbers of steps" % group)
        steps = range(len(logs[0]["history"]))
        self.total[group] = [
            sum(self._of(log["gradients"][t][index]) for log in logs) for t in steps
        ]
        self.after[group] = [self._of(logs[0]["history"][t][index]) for t in steps]
        for number, log in zip(members, logs):
            for t in steps:
                if not np.array_equal(
                    self._of(log["history"][t][index]), self.after[group][t], equal_nan=True
                ):
                    raise self.failure(
                        "workers %d and %d of group %s pulled different weights after step %d"
                        % (members[0], number, group, t),
                        group,
                        t,
                    )

    def _of(self, array):
        return np.asarray(array).reshape(-1)[self.begin : self.end].astype("float64")

    def failure(self, text, *details):
        return NoOrder(text, self.parameter, self.begin, self.end, *details)

    def may_merge(self, done):
        """Return the groups that may merge next, when each group has merged `done[g]` times."""
        return [g for g in self.members if done[g] < len(self.after[g])]


class _Search:
    """Depth-first search over the groups that merge next, for one slice."""

    def __init__(self, definition, log, lr_mult, wd, tolerance):
        self._definition, self._log, self._tolerance = definition, log, tolerance
        self._lr_mult, self._wd = lr_mult, wd
        self._total = sum(map(len, log.after.values()))
        self._merged, self._misses = (
            -1,
            [],
        )  # the merges before the deepest dead end, and the mismatches there

    def run(self):
        none, initial = dict.fromkeys(self._log.members, 0), self._log.initial
        state = _State(initial, self._definition.optimizer.slots(initial.size), 0, none, none, 0, 0)
        path = []  # the merges up to the present state
        # the states before them, each with the other matches and the number of matching groups
        choices = []
        dead = set()  # states without a solution, regardless of the path to them
        for _ in range(1000 + 300 * self._total):
            if len(path) == self._total:
                ambiguous = sum(groups > 1 for _, _, groups in choices)
                return Explained(
                    self._log.parameter, self._log.begin, self._log.end, path, ambiguous
                )
            fitting = [] if dead and _identity(state) in dead else self._fitting(state)
            choices.append((state, fitting, len({merge.group for merge, _ in fitting})))
            while choices and not choices[-1][1]:
                dead.add(_identity(choices.pop()[0]))
                del path[-1:]
            if not choices:
                raise self._no_order()
            merge, state = choices[-1][1].pop()
            path.append(merge)
        raise self._no_order("too many orders fit at first to try them all; ")

    def _fitting(self, state):
        """Return [(Merge, next state)] of the merges that give the logged weights, best last."""
        fitting, misses = [], []
        for group in self._log.may_merge(state.done):
            step, members = state.done[group], len(self._log.members[group])
            total, logged = self._log.total[group][step], self._log.after[group][step]
            seen = self._log.after[group][step - 1] if step else self._log.initial
            for number in self._definition.rounds(state, group, members):
                after = self._definition.merged(
                    state, group, members, total, seen, number, self._lr_mult, self._wd
                )
                merge = Merge(
                    group,
                    step,
                    self._definition.y(state, group),
                    number,
                    _error(after.weight, logged, state.weight),
                    self._definition.drops(state, group),
                )
                if merge.error <= self._tolerance:
                    fitting.append((merge, after._replace(weight=logged)))
                else:
                    misses.append(merge)
        merged = sum(state.done.values())
        if not fitting and merged > self._merged:
            self._merged, self._misses = merged, misses
        return sorted(fitting, key=lambda choice: -choice[0].error)

    def _no_order(self, text=""):
        misses = sorted(self._misses, key=lambda merge: merge.error)
        if not misses:
            return self._log.failure(
                text + "after %d of %d merges" % (max(self._merged, 0), self._total)
            )
        nearest = "; ".join(
            "group %s, step %d, Y = %d in round %d is off by %.2g" % merge[:5] for merge in misses
        )
        return self._log.failure(
            "%safter %d of %d merges no group's next merge gives its pulled weights, to %.2g of "
            "the largest: %s" % (text, self._merged, self._total, self._tolerance, nearest),
            misses[0].group,
            misses[0].step,
            misses[0].error,
            self._merged,
        )


def _identity(state):
    """Return the parts of a state that determine its future."""
    return (
        tuple(state.last.items()),
        tuple(state.done.items()),
        state.round,
        state.weight.tobytes(),
        tuple(slot.tobytes() for slot in state.slots),
    )


def _error(weight, logged, before):
    """Return the largest difference relative to the largest weight; inf if a number is NaN."""
    scale = max(np.abs(logged).max(), np.abs(before).max())
    difference = np.abs(weight - logged).max()
    if difference == 0:
        return 0.0
    return float(difference / scale) if difference < math.inf and scale > 0 else math.inf
