"""Sweeps on the local inventory of four workers in two groups, without starting a job."""

import re

from mxcluster.job.sweep import runner, specs
from mxcluster.model import sweep_knobs
from mxcluster.model.sweep import BenchmarkRecord, ComparisonRecord, Environment
from tests.inventories.cases import changed, load, plan_of

LOCAL = load("good/local")


def planned(knobs):
    """Return the plan of a job with these knobs on the local inventory."""
    return plan_of(changed(LOCAL, {"options": dict(knobs)}))


def spec_of(playbook="benchmark.yml", base=None, plan=planned, **knobs):
    """Return the specification of a new sweep."""
    return specs.begin("mine", sweep_knobs.cast(playbook, knobs), base or {}, 1e9, plan)


def compared(*schemes, rates=("1/2", "1"), seeds=3, base=None, target=0.9, **knobs):
    """Return a comparison with one momentum, and a list of rates that does not grow."""
    own = {"lr_growth": 0, "momenta": [0.9], "solo": False}
    return spec_of(
        "compare.yml",
        base,
        schemes=list(schemes or ("bsp", "asp")),
        lr_factors=list(rates),
        seeds=seeds,
        target=target,
        **dict(own, **knobs),
    )


def name_of(scheme, lr, seed, momentum=0.9):
    return "%s-lr%g-m%g-seed%d" % (scheme, lr, momentum, seed)


def readings_of(*points):
    """Return readings of worker 0 from (seconds, accuracy)."""
    return [
        {"seconds": time, "samples": int(100 * time), "accuracy": accuracy, "worker": 0}
        for time, accuracy in points
    ]


def record(name, target_s=None, accuracy=0.5, state="ok", **more):
    """Return the record of a job of a comparison, with the setting and the seed of its name."""
    match = re.fullmatch(r"(\w+)-lr([\d.]+)-m([\d.]+)-seed(\d+)", name)
    scheme, lr, momentum, seed = match.groups() if match else ("bsp", 0.05, 0.9, 0)
    known = {
        "job": name,
        "id": "mine-" + name,
        "state": state,
        "why": None,
        "about": {
            "scheme": scheme,
            "lr": float(lr),
            "momentum": float(momentum),
            "seed": int(seed),
        },
        "wall_s": 10.0,
        "environment": {"mxnet": ["1.9.1"], "nodes": 4},
        "target_s": target_s,
        "resolution": None if target_s is None else 0.01,
        "accuracy": accuracy,
        "samples": 1000,
        "samples_per_s": 100.0,
        "waited": 0.25,
        "readings": readings_of((1.0, 0.3), (2.0, accuracy or 0.0)),
        "y": {},
    }
    return ComparisonRecord.decode(dict(known, **more))


def measured(job, samples_per_s, state="ok"):
    """Return the record of a Job of a benchmark."""
    return BenchmarkRecord(
        job=job.name,
        id="mine-" + job.name,
        state=state,
        why=None,
        about=job.about,
        wall_s=10.0,
        environment=Environment(mxnet=["1.9.1"], nodes=4),
        samples_per_s=samples_per_s,
        median_s=0.01,
        p10_s=0.009,
        p90_s=0.02,
        batches=50,
        warm_up=10,
    )


def means(plan=planned, start=None, stop=None, said=None):
    """Return Means whose lines go to the list `said`."""
    return runner.Means(plan, start, stop or (lambda job: None), (said or []).append)
