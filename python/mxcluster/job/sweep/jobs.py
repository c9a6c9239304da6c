"""Define a job of a sweep, and the knobs that a sweep gives to all of its jobs."""

from typing import Callable, NamedTuple, Sequence, cast

from mxcluster.model import sweep_schemes
from mxcluster.model.job_knobs import Options
from mxcluster.model.knob import knobs_of
from mxcluster.model.plan import Plan
from mxcluster.model.sweep import About, Knobs

PlanOf = Callable[[Knobs], Plan]

# The knobs that override the inventory in all jobs of a sweep.
FIXED: Knobs = {"plan_only": False, "detach": False, "savemodel": False, "max_restarts": 0}


class Job(NamedTuple):
    """One job of a sweep: name, knobs of train.yml, and values for tables and plots."""

    name: str  # "001"; "gsp-lr0.05-m0.9-seed1"
    knobs: Knobs
    about: About
    # The addresses of the workers that train, for the knob hosts_file; () for all workers. The
    # servers stay the same.
    hosts: Sequence[str] = ()


def accepted(base: Knobs, kv: str) -> Knobs:
    """Return the knobs `base`, with defaults for the knobs that the scheme `kv` does not accept."""
    found = dict(base)
    for name, kvs in sweep_schemes.ONLY_KV.items():
        if kv not in kvs:
            found[name] = "" if default(name) is None else default(name)
    return found


def default(name: str) -> object:
    """Return the default of a knob of train.yml."""
    return knobs_of(Options)[name].default


def number(base: Knobs, name: str) -> int:
    """Return the value of a knob for whole numbers in `base`, or the knob's default."""
    return cast(int, base[name] if name in base else default(name))
