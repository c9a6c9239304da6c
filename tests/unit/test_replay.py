"""The search for the order of merges, on logs of a simulated cluster with and without faults."""

import collections
import itertools
import random

import numpy as np
import pytest

from tests.often import seldom
from tests.training.replay import OPTIMIZERS, TOLERANCE, NoOrder, explain

SGD = ("sgd", {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.01})
TRAININGS = [
    ("sgd", {"learning_rate": 0.1}),
    SGD,
    ("sgd", {"learning_rate": 0.1, "momentum": 0.5, "clip_gradient": 0.05, "wd": 0.1}),
    ("adam", {"learning_rate": 0.01}),
    ("adam", {"learning_rate": 0.01, "wd": 0.1, "clip_gradient": 0.05, "beta1": 0.8}),
    ("rmsprop", {"learning_rate": 0.01, "wd": 0.1, "clip_gradient": 0.05}),
]
SHAPES = [(8, 5), (8,), (3, 8), (3,), (2, 3, 2), (1,)]
RESCALE = 1.0 / 32


def step(name, params, weight, slots, gradient, scale, lr, wd, count):
    """Make one update in place by the formulas in MXNet's documentation, in float32."""
    scale, lr, wd = np.float32(scale), np.float32(lr), np.float32(wd)
    bound = np.float32(params.get("clip_gradient", np.inf))
    if name == "sgd":
        momentum = slots.setdefault("momentum", np.zeros_like(weight))
        momentum *= np.float32(params.get("momentum", 0))
        momentum -= lr * (np.clip(scale * gradient, -bound, bound) + wd * weight)
        weight += momentum
        return
    gradient = np.clip(scale * gradient + wd * weight, -bound, bound)
    if name == "adam":
        betas = params.get("beta1", 0.9), params.get("beta2", 0.999)
        beta1, beta2 = map(np.float32, betas)
        mean, variance = (
            slots.setdefault(slot, np.zeros_like(weight)) for slot in ("mean", "variance")
        )
        mean[:] = beta1 * mean + (1 - beta1) * gradient
        variance[:] = beta2 * variance + (1 - beta2) * gradient * gradient
        corrected = np.float32(lr * (1 - betas[1] ** count) ** 0.5 / (1 - betas[0] ** count))
        weight -= corrected * mean / (np.sqrt(variance) + np.float32(1e-8))
        return
    gamma, n = np.float32(0.9), slots.setdefault("n", np.zeros_like(weight))
    n[:] = (1 - gamma) * gradient * gradient + gamma * n
    weight -= lr * gradient / np.sqrt(n + np.float32(1e-8))


class Cluster:
    """Servers and workers that train by Grouping-SGD on random numbers, one merge at a time.

    `logs` has the logs of the workers, and `order[p, begin]` the groups in the order of their
    merges. `fault` names a fault of the servers. `size` is the size of the gradients; the gradients
    of the first `quiet` steps are 0.
    """

    def __init__(
        self,
        groups,
        steps=30,
        training=SGD,
        seed=0,
        y="gradient",
        fixed_y=False,
        schedule=None,
        servers=1,
        bound=10**6,
        lr_mult=(1,) * 6,
        wd_mult=(1,) * 6,
        shapes=SHAPES,
        fault=None,
        size=1.0,
        quiet=0,
        compensation=0.0,
        max_y=0,
    ):
        self.compensation, self.max_y = compensation, max_y
        self.previous = {}
        self.name, self.params = training
        self.groups, self.fault, self.how, self.fixed_y = groups, fault, y, fixed_y
        self.schedule, self.lr_mult, self.wd_mult, self.size, self.quiet = (
            schedule,
            lr_mult,
            wd_mult,
            size,
            quiet,
        )
        self.random, self.numbers = random.Random(seed), np.random.RandomState(seed)
        self.moment = itertools.count()
        self.master = [
            self.numbers.randn(*shape).astype("float32") * np.float32(0.3) for shape in shapes
        ]
        self.pieces = [
            (p, begin, end, host)
            for p, weight in enumerate(self.master)
            for host, (begin, end) in enumerate(cuts(weight.size, servers, bound))
        ]
        self.slots = collections.defaultdict(dict)
        self.updates, self.last, self.batches = (
            collections.Counter(),
            collections.Counter(),
            collections.Counter(),
        )
        self.newest = collections.Counter()
        self.order = collections.defaultdict(list)
        self.snapshots = {g: [weight.copy() for weight in self.master] for g in set(groups)}
        self.logs = [
            {
                "names": ["p%d" % p for p in range(len(shapes))],
                "started": [],
                "gradients": [],
                "history": [],
                "initial": [weight.copy() for weight in self.master],
            }
            for _ in groups
        ]
        self.waiting = {g: [] for g in sorted(set(groups))}
        self.run(steps)

    def run(self, steps):
        begun = dict.fromkeys(self.waiting, 0)
        speed = {g: self.random.choice([1, 1, 3]) for g in self.waiting}
        busy = list(self.waiting)
        while busy:
            group = self.random.choices(busy, [speed[g] for g in busy])[0]
            if self.waiting[group]:
                self.merge(group, begun[group] - 1, *self.waiting[group].pop())
                continue
            if begun[group]:
                self.end_step(group)
            if begun[group] == steps:
                busy.remove(group)
                continue
            begun[group] += 1
            self.begin_step(group)

    def begin_step(self, group):
        for worker in self.members(group):
            size = np.float32(self.size if len(self.logs[worker]["started"]) >= self.quiet else 0)
            self.logs[worker]["started"].append(next(self.moment))
            self.logs[worker]["gradients"].append(
                [
                    size * (self.numbers.randn(*weight.shape).astype("float32") + weight)
                    for weight in self.snapshots[group]
                ]
            )
        self.waiting[group] = self.random.sample(self.pieces, len(self.pieces))

    def end_step(self, group):
        for worker in self.members(group):
            newest = self.master if self.fault == "pulls what is newest" else self.snapshots[group]
            self.logs[worker]["history"].append([weight.copy() for weight in newest])
        next(self.moment)

    def members(self, group):
        return [worker for worker, other in enumerate(self.groups) if other == group]

    def merge(self, group, t, p, begin, end, host):
        key, members = (p, begin), self.members(group)
        if self.fault == "sums a gradient of the step before" and t == 9:
            t = 8
        pushed = [self.logs[worker]["gradients"][t][p].reshape(-1)[begin:end] for worker in members]
        if self.fault == "loses a gradient" and t == 9:
            pushed = pushed[:-1]
        total = (
            np.sum(pushed, axis=0, dtype="float32") if pushed else np.zeros(end - begin, "float32")
        )
        counted = "all" if self.fault == "counts Y over all parameters" else key
        y = self.updates[counted] - self.last[group, counted] + 1
        if self.fault == "counts Y without the merge itself":
            y = max(1, y - 1)
        if self.fixed_y or self.fault == "ignores Y":
            y = 1
        dropped = 0 < self.max_y < y
        for name in {counted, key}:
            self.updates[name] += not dropped or self.fault == "counts dropped updates"
            if not dropped or self.fault != "leaves a dropped group behind":
                self.last[group, name] = self.updates[name]
        if not dropped or self.fault != "leaves dropped batches out of rounds":
            self.batches[key] += len(members)
        rounds = -(-self.batches[key] // len(self.groups))
        if self.fault == "schedules by updates":
            rounds = self.updates[key]
        self.newest[host] = max(self.newest[host], rounds)
        if self.fault == "forgets the newest round":
            self.newest[host] = rounds + self.updates[key] % 2
        lr = self.schedule(self.newest[host]) if self.schedule else self.params["learning_rate"]
        scale = RESCALE * len(self.groups) / len(members)
        if self.fault == "is W times too small":
            scale /= len(self.groups)
        if self.fault == "divides by W":
            scale = RESCALE
        self.order[key].append(group)
        if dropped:
            if self.fault != "does not show the newest to a dropped group":
                self.snapshots[group][p].reshape(-1)[begin:end] = self.master[p].reshape(-1)[
                    begin:end
                ]
            next(self.moment)
            return
        if self.compensation:
            total = self.compensated(group, key, end, total, scale, y)
        lr, scale = (lr / y, scale) if self.how == "rate" else (lr, scale / y)
        slots = self.slots[key + (group,) if self.fault == "keeps a state per group" else key]
        weight = self.master[p].reshape(-1)[begin:end]
        count = 1 + t if self.fault == "counts updates per group" else self.updates[key]
        step(
            self.name,
            self.params,
            weight,
            slots,
            total,
            scale,
            lr * self.lr_mult[p],
            self.params.get("wd", 0) * self.wd_mult[p],
            count,
        )
        self.snapshots[group][p].reshape(-1)[begin:end] = weight
        next(self.moment)

    def compensated(self, group, key, end, total, scale, y):
        """Return the sum of gradients with the correction of DC-ASGD, in float32."""
        p, begin = key
        weight = self.master[p].reshape(-1)[begin:end]
        seen = self.snapshots[group][p].reshape(-1)[begin:end]
        if self.fault == "compensates the last update only":  # as DCASGD of MXNet on a server
            seen = self.previous.get(key, weight)
            self.previous[key] = weight.copy()
        if self.fault == "compensates after the division by Y":
            scale /= y
        gradient = np.float32(scale) * total
        gradient += np.float32(self.compensation) * gradient * gradient * (weight - seen)
        return gradient / np.float32(scale)

    def explain(self, **different):
        settings = dict(
            y=self.how,
            fixed_y=self.fixed_y,
            lr_of_round=self.schedule,
            lr_mult=self.lr_mult,
            wd_mult=self.wd_mult,
            compensation=self.compensation,
            max_y=self.max_y,
        )
        settings.update(different)
        rescale = settings.pop("rescale", RESCALE)
        return explain(
            self.logs, self.groups, OPTIMIZERS[self.name](**self.params), rescale, **settings
        )


def cuts(size, servers, bound):
    """Return ps-lite's cuts in whole numbers: round(size * host / servers), halves upwards."""
    if servers == 1 or size < bound:
        return [(0, size)]
    places = [(2 * size * host + servers) // (2 * servers) for host in range(servers + 1)]
    return list(zip(places, places[1:]))


def is_explained(cluster, **settings):
    """Check that explain() finds the servers' order for every slice; return its result."""
    found = has_the_order_of(cluster, **settings)
    assert all(one.ambiguous == 0 for one in found)
    return found


def has_the_order_of(cluster, **settings):
    """Check that explain() finds the servers' order, and perhaps others; return its result.

    A dropped merge leaves the weights unchanged, so the merge after it fits before it, too.
    """
    found = cluster.explain(**settings)
    assert {(int(one.parameter[1:]), one.begin): one.order for one in found} == dict(cluster.order)
    return found


# -- without a fault


@pytest.mark.parametrize("how", ["gradient", "rate", "fixed"])
@pytest.mark.parametrize(
    "training", TRAININGS, ids=lambda training: "-".join([training[0], *sorted(training[1])])
)
def test_every_optimizer_is_explained(training, how):
    settings = {"fixed_y": True} if how == "fixed" else {"y": how}
    found = is_explained(Cluster([0, 0, 1, 2], training=training, seed=3, **settings))
    assert (max(max(one.ys) for one in found) > 3) == (how != "fixed")
    assert max(one.error for one in found) < TOLERANCE / 2


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("groups", [[0, 1], [0, 0, 0, 1, 2, 2], [1, 0, 2, 1, 0]], ids=str)
def test_every_interleaving_is_explained(groups, seed):
    for one in is_explained(Cluster(groups, steps=20, seed=seed)):
        assert one.ys == ys_of(one.order)


def ys_of(order):
    """Return Y of each merge.

    Y is one more than the number of other groups' merges since the group's last one, or since the
    start.
    """
    return [
        1 + next((back for back in range(n) if order[n - 1 - back] == group), n)
        for n, group in enumerate(order)
    ]


@pytest.mark.parametrize("how", ["gradient", "rate"])
@pytest.mark.parametrize(
    "training",
    [
        SGD,
        ("sgd", {"learning_rate": 0.1, "momentum": 0.5, "clip_gradient": 1.0, "wd": 0.1}),
        ("adam", {"learning_rate": 0.05, "wd": 0.1}),
        ("adam", {"learning_rate": 0.05, "clip_gradient": 1.0}),
    ],
    ids=lambda training: "-".join([training[0], *sorted(training[1])]),
)
def test_compensation_is_explained(training, how):
    cluster = Cluster([0, 0, 1, 2], training=training, y=how, size=10.0, compensation=2.0)
    is_explained(cluster)
    for other in (0.0, 1.9):
        with pytest.raises(NoOrder):
            cluster.explain(compensation=other)


@pytest.mark.parametrize("max_y", [1, 2, 4])
@pytest.mark.parametrize("seed", range(2))
def test_dropped_updates_are_explained(max_y, seed):
    cluster = Cluster([0, 0, 1], seed=seed, max_y=max_y, compensation=2.0)
    found = has_the_order_of(cluster)
    for one in found:
        assert max(one.ys) <= max_y and min(one.dropped, default=max_y + 1) > max_y
        assert len(one.ys) + len(one.dropped) == 60
    assert any(one.dropped for one in found)
    with pytest.raises(NoOrder):
        cluster.explain(max_y=0)


def test_dropped_batches_count_for_a_schedule():
    def schedule(number):
        return 0.1 * 0.9**number

    has_the_order_of(Cluster([0, 1], schedule=schedule, max_y=1))
    with pytest.raises(NoOrder):
        Cluster(
            [0, 1], schedule=schedule, max_y=1, fault="leaves dropped batches out of rounds"
        ).explain()


@pytest.mark.parametrize(
    "fault",
    [
        "counts dropped updates",
        "leaves a dropped group behind",
        "does not show the newest to a dropped group",
        "compensates the last update only",
        "compensates after the division by Y",
    ],
)
def test_no_order_explains_a_fault_of_late_updates(fault):
    settings = {"compensation": 2.0} if "compensates" in fault else {"max_y": 2}
    with pytest.raises(NoOrder):
        Cluster([0, 1, 2], fault=fault, size=10.0, seed=1, **settings).explain()


@pytest.mark.parametrize("y", ["gradient", "rate"])
@pytest.mark.parametrize("period", [1, 4])
def test_a_schedule_may_be_ahead_through_another_parameter(period, y):
    def schedule(number):
        return 0.1 * 0.7 ** ((number - 1) // period)

    cluster = Cluster([0, 0, 1, 2], steps=12, schedule=schedule, y=y, seed=5)
    found = is_explained(cluster)
    assert [merge.round for merge in found[0].merges] == sorted(
        merge.round for merge in found[0].merges
    )
    with pytest.raises(NoOrder):
        cluster.explain(lr_of_round=lambda number: 0.1)
    with pytest.raises(NoOrder):
        cluster.explain(lr_of_round=lambda number: schedule(number + 2))


def test_each_slice_has_its_own_order():
    cluster = Cluster([0, 0, 1, 2], servers=3, bound=12, seed=7)
    found = is_explained(cluster, servers=3, bound=12)
    assert [(one.parameter, one.begin, one.end) for one in found] == [
        ("p0", 0, 13),
        ("p0", 13, 27),
        ("p0", 27, 40),
        ("p1", 0, 8),
        ("p2", 0, 8),
        ("p2", 8, 16),
        ("p2", 16, 24),
        ("p3", 0, 3),
        ("p4", 0, 4),
        ("p4", 4, 8),
        ("p4", 8, 12),
        ("p5", 0, 1),
    ]
    assert found[0].order != found[1].order
    with pytest.raises(NoOrder):
        cluster.explain()


@pytest.mark.slow
def test_wrong_multipliers_are_found():
    lr_mult, wd_mult = (1, 2, 0.5, 1, 1, 3), (1, 0, 1, 4, 0.5, 0)
    cluster = Cluster([0, 0, 1], lr_mult=lr_mult, wd_mult=wd_mult, seed=1)
    is_explained(cluster)
    for index in range(6):
        for which, multipliers in (("lr_mult", lr_mult), ("wd_mult", wd_mult)):
            wrong = multipliers[:index] + (multipliers[index] + 0.5,) + multipliers[index + 1 :]
            with pytest.raises(NoOrder) as raised:
                cluster.explain(**{which: wrong})
            assert raised.value.parameter == "p%d" % index


@pytest.mark.slow
@pytest.mark.parametrize("quiet", [1, 3, 10])
@pytest.mark.parametrize("seed", [0, *map(seldom, (1, 2, 3, 4))])
def test_the_search_returns_from_an_order_that_fitted_at_first(quiet, seed):
    """Y of later merges determines the order in which groups merged zeros."""
    cluster = Cluster(
        [0, 0, 1, 2], training=("sgd", {"learning_rate": 0.1}), quiet=quiet, seed=seed
    )
    found = cluster.explain()
    for one in found:
        order = cluster.order[int(one.parameter[1:]), one.begin]
        told = [n for n, merge in enumerate(one.merges) if merge.step >= quiet]
        assert [one.order[n] for n in told] == [order[n] for n in told]
        assert [one.ys[n] for n in told] == [ys_of(order)[n] for n in told]
    assert any(one.ambiguous for one in found)
    cluster.logs[2]["gradients"][20][0] += 0.01
    with pytest.raises(NoOrder) as raised:
        cluster.explain()
    merged = [n for n, group in enumerate(cluster.order[0, 0]) if group == 1][20]
    assert (raised.value.group, raised.value.step, raised.value.merged) == (1, 20, merged)


# -- with a fault

FAULTS = [
    "ignores Y",
    "counts Y without the merge itself",
    "counts Y over all parameters",
    "is W times too small",
    "divides by W",
    "keeps a state per group",
    "loses a gradient",
    "sums a gradient of the step before",
    "pulls what is newest",
]


@pytest.mark.parametrize(
    "training",
    [
        SGD,
        ("adam", {"learning_rate": 0.01, "wd": 0.1}),
        ("rmsprop", {"learning_rate": 0.01, "wd": 0.1}),
    ],
    ids=["sgd", "adam", "rmsprop"],
)
@pytest.mark.parametrize("y", ["gradient", "rate"])
@pytest.mark.parametrize("fault", FAULTS)
def test_no_order_explains_a_fault(fault, y, training):
    with pytest.raises(NoOrder) as raised:
        Cluster([0, 0, 1, 2], training=training, y=y, fault=fault, seed=6).explain()
    assert raised.value.error > 10 * TOLERANCE


def test_no_order_explains_a_fault_of_single_optimizers():
    with pytest.raises(NoOrder):
        Cluster(
            [0, 0, 1, 2],
            training=("adam", {"learning_rate": 0.01}),
            fault="counts updates per group",
        ).explain()
    for fault in ("schedules by updates", "forgets the newest round"):
        with pytest.raises(NoOrder):
            Cluster([0, 1, 2, 3], schedule=lambda number: 0.1 * 0.9**number, fault=fault).explain()


@pytest.mark.slow
@pytest.mark.parametrize(
    "training", TRAININGS[1:], ids=lambda training: "-".join([training[0], *sorted(training[1])])
)
def test_no_order_explains_another_definition(training):
    for y, other in (("gradient", "rate"), ("rate", "gradient")):
        with pytest.raises(NoOrder):
            Cluster([0, 0, 1, 2], training=training, y=y).explain(y=other)
        with pytest.raises(NoOrder):
            Cluster([0, 0, 1, 2], training=training, y=y).explain(fixed_y=True)
        with pytest.raises(NoOrder):
            Cluster([0, 0, 1, 2], training=training, fixed_y=True).explain(fixed_y=False, y=y)


@pytest.mark.parametrize("factor", [0.25, 0.999, 1.001, 4])
def test_no_order_explains_another_scale(factor):
    for seed in range(4):
        with pytest.raises(NoOrder):
            Cluster([0, 1, 2], seed=seed).explain(rescale=RESCALE * factor)
