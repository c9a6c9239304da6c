"""Compensated and dropped updates of dist_gsync conform to their definitions, with real MXNet."""

import itertools
import json

import numpy as np
import pytest

from mxcluster import events
from tests.training.conftest import newest_often
from tests.training.loopback import run_alone
from tests.training.replay import OPTIMIZERS, NoOrder, explain

SIZES = [2, 1, 1]  # |g|: powers of two, so that a sum is exactly that of its equal parts
LAMBDA = 0.5
MOMENTUM = {"learning_rate": 0.05, "momentum": 0.9, "wd": 0.1}
ADAM = {"learning_rate": 0.05, "wd": 0.1}


def run(python, folder, *cases):
    """Run late_updates.py; return (its arrays for each case, its events)."""
    cases = [dict({"optimizer": "sgd", "sizes": SIZES}, **case) for case in cases]
    environment = {"MXCLUSTER_JOB_DIR": str(folder), "MXCLUSTER_TRACE": "1"}
    run_alone(python, "late_updates.py", folder / "log.npz", *map(json.dumps, cases), **environment)
    file = np.load(str(folder / "log.npz"))
    names = ("initial", "order", "sums", "pulled")
    logs = [
        {name: file["%s_%d" % (name, number)] for name in names} for number in range(len(cases))
    ]
    return logs, [line.content for line in events.read(str(folder / events.FILE))]


def explained(log, case):
    """Return the replay's only slice, or raise NoOrder."""
    groups = [group for group, size in enumerate(SIZES) for _ in range(size)]
    steps = {group: np.flatnonzero(log["order"] == group) for group in groups}
    workers = [
        {
            "names": ["weight"],
            "initial": [log["initial"]],
            "started": steps[group],
            "gradients": [[log["sums"][t] / SIZES[group]] for t in steps[group]],
            "history": [[log["pulled"][t]] for t in steps[group]],
        }
        for group in groups
    ]
    settings, params, every = dict(case["settings"]), case["params"], case.get("schedule")
    y = settings.pop("divided", "rate")
    settings.update({"y": "gradient", "fixed_y": True} if y == "one" else {"y": y})
    if every:
        settings["lr_of_round"] = lambda n: params["learning_rate"] * 0.5 ** ((n - 1) // every)
    optimizer = OPTIMIZERS[case["optimizer"]](**params)
    (found,) = explain(workers, groups, optimizer, rescale=1.0 / sum(SIZES), **settings)
    return found


# optimizer, its arguments, settings of GroupUpdate, rounds until the rate is halved
CASES = [
    ("sgd", {"learning_rate": 0.05}, {"compensation": LAMBDA}, 0),
    ("sgd", MOMENTUM, {"compensation": LAMBDA}, 0),
    ("sgd", MOMENTUM, {"compensation": LAMBDA, "divided": "gradient"}, 0),
    ("sgd", dict(MOMENTUM, clip_gradient=1.5), {"compensation": LAMBDA}, 0),
    ("sgd", dict(MOMENTUM, clip_gradient=0.5), {"compensation": 2, "divided": "gradient"}, 0),
    ("adam", ADAM, {"compensation": LAMBDA}, 0),
    ("adam", dict(ADAM, clip_gradient=1.5), {"compensation": LAMBDA, "divided": "gradient"}, 0),
    ("sgd", MOMENTUM, {"compensation": LAMBDA, "divided": "one", "max_y": 5}, 0),
    ("sgd", MOMENTUM, {"max_y": 3}, 0),
    ("sgd", dict(MOMENTUM, clip_gradient=0.5), {"max_y": 4, "divided": "gradient"}, 0),
    ("adam", ADAM, {"max_y": 3}, 0),
    ("sgd", MOMENTUM, {"max_y": 5, "compensation": LAMBDA}, 6),
    ("adam", ADAM, {"max_y": 5, "compensation": LAMBDA}, 6),
]


@newest_often
def test_late_updates_are_those_of_the_definition(every_mxnet, tmp_path):
    """A replay in numpy gives the weights of every merge, and no other setting of a knob does."""
    names = ("optimizer", "params", "settings", "schedule")
    cases = [dict(zip(names, case)) for case in CASES]
    logs, written = run(every_mxnet.python, tmp_path, *cases)
    merges = [event for event in written if event["event"] == "merge"]
    assert len(merges) == sum(len(log["order"]) for log in logs)
    for number, (log, case) in enumerate(zip(logs, cases)):
        found = explained(log, case)
        own = merges[number * len(found.order) : (number + 1) * len(found.order)]
        assert [event["group"] for event in own] == log["order"].tolist(), case
        fixed = case["settings"].get("divided") == "one"
        assert in_order(
            (event["group"], 1 if fixed else event["y"], event["dropped"]) for event in own
        ) == in_order((merge.group, merge.y, merge.dropped) for merge in found.merges), case
        assert max(event["y"] for event in own) > 2, case
        assert bool(found.dropped) == ("max_y" in case["settings"]), case
        for name in set(case["settings"]) & {"compensation", "max_y"}:
            with pytest.raises(NoOrder):
                explained(log, dict(case, settings=dict(case["settings"], **{name: 0})))


def in_order(merges):
    """Return [(group, Y, dropped)] with neighbouring dropped merges sorted.

    The weights do not tell the order of two dropped merges: both groups pull the same.
    """
    found = []
    for is_dropped, some in itertools.groupby(merges, key=lambda merge: merge[2]):
        group = list(some)
        found += sorted(group) if is_dropped else group
    return found


def test_the_last_events_hold_both_histograms(mxnet_new, tmp_path):
    (log,), written = run(
        mxnet_new.python, tmp_path, {"params": MOMENTUM, "settings": {"max_y": 3}}
    )
    merges = [event for event in written if event["event"] == "merge"]
    for event in (event for event in written if event["event"] == "gsync"):
        own = [merge for merge in merges if merge["group"] == event["group"]]
        for name, is_dropped in (("y", False), ("dropped", True)):
            ys = [merge["y"] for merge in own if merge["dropped"] == is_dropped]
            assert event[name] == {str(y): ys.count(y) for y in set(ys)}, event
        assert event["updates"] == sum(event["y"].values())
    assert len(merges) == len(log["order"])


@newest_often
def test_disabled_knobs_change_no_bit(every_mxnet, tmp_path):
    """The value 0 leaves every bit as it is. So does a group that trains alone: its d is 0."""
    zero, both = {"compensation": 0.0, "max_y": 0}, {"compensation": LAMBDA, "max_y": 1}
    for optimizer, params in (("sgd", MOMENTUM), ("adam", ADAM)):
        case = {"optimizer": optimizer, "params": params}
        cases = [dict(case, settings=settings) for settings in ({}, zero)]
        cases += [dict(case, settings=settings, alone=True) for settings in ({}, both)]
        clipped = dict(case, params=dict(params, clip_gradient=0.5), settings=zero, infinite=True)
        cases += [dict(case, settings={"compensation": LAMBDA}), clipped]
        logs, _ = run(every_mxnet.python, tmp_path, *cases)
        pulled = [log["pulled"].tobytes() for log in logs]
        assert pulled[0] == pulled[1] and pulled[2] == pulled[3], optimizer
        assert pulled[0] != pulled[4], optimizer
        # Infinity times 0 would be NaN, which no clipping mends.
        assert np.isfinite(logs[5]["pulled"]).all(), optimizer
