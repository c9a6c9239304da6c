"""Make the specification of a sweep, or check knobs against an earlier specification.

A specification is a dict, which the file `sweep.json` holds as JSON:

    {"schema": 1, "sweep": id, "playbook": "benchmark.yml" or "compare.yml", "begun": unix seconds,
     "knobs": {knob of the sweep: value}, "base": {knob of train.yml given with -e: value},
     "workers": number of workers of the whole cluster, "notes": [line]}

The specification of a comparison also has "base_lr" (the learning rate that the factors multiply),
"rates" (from `rates_of`), "groups" (the labels of the groups under dist_gsync) and "fastest" (from
`_fastest`).

All functions are pure. The argument `plan_of` is a function that returns the plan of a job, see
`runner.Means`.
"""

import itertools
import math
import os
import re
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from mxcluster import schemes
from mxcluster.errors import BadInput, for_each, refuse, shown
from mxcluster.job.knob_table import OPTIONS
from mxcluster.job.option_types import MOST, Knob, cast_value
from mxcluster.job.sweep import knob_table, schemes_table
from mxcluster.job.sweep.knob_table import BENCHMARK, COMPARE
from mxcluster.model import shapes
from mxcluster.model.plan import SCHEDULER, WORKER, Plan, free_json

Json = Dict[str, Any]
PlanOf = Callable[[Json], Plan]

SCHEMA = 1
MOST_COMBINATIONS = 10 * knob_table.MOST_JOBS  # of a benchmark; some give the same job
MEASURED = 50  # batches of a benchmark's job, unless the knob `measured` gives a number
# The label that a profile gives to its fastest group.
FASTEST_LABEL = "speed1"
_PATHS = ("data_src", "hosts_file", "groups_file", "data_sharding_file")
# Knobs about the run of the playbook, which the specification leaves out.
_OF_THE_RUN = ("sweep", "again", "max_jobs", "plan_only")


_text = shapes.text
_rate = shapes.real(0, MOST)
_knobs = shapes.table(_text, free_json)
_WRITTEN = shapes.fields(
    {
        "schema": shapes.passing(
            int,
            lambda value: value == SCHEMA,
            "%d, which this version of mxcluster writes" % SCHEMA,
        )
    }
)
_SPEC = shapes.fields(
    {
        "sweep": _text,
        "playbook": shapes.one_of(BENCHMARK, COMPARE),
        "begun": shapes.real(0, 1e11),
        "knobs": _knobs,
        "base": _knobs,
        "workers": shapes.whole(1),
        "notes": shapes.each(_text),
    },
    rest=free_json,
)
_OF_COMPARISON = {
    "base_lr": _rate,
    "rates": shapes.each(shapes.fields({"factor": _text, "lr": _rate})),
}
_FASTEST = shapes.fields({"label": _text, "workers": shapes.whole(1), "hosts": _text})


class Job(NamedTuple):
    """One job of a sweep: name, knobs of train.yml, and values for tables and plots."""

    name: str  # "001"; "gsp-0.05-seed0"
    knobs: Json
    about: Json  # for tables and plots, such as {"network": "lenet", "workers": 2}


def begin(playbook: str, sweep: str, knobs: Json, base: Json, when: float, plan_of: PlanOf) -> Json:
    """Return the specification of a new sweep.

    Raises BadInput if a job of the sweep is impossible.

    Args:
        playbook: the file name of the playbook.
        sweep: the name of the sweep.
        knobs: {knob of the sweep: typed value}, from `knob_table.cast`.
        base: {knob of train.yml: value} that the user gave with -e.
        when: the time of the start in unix seconds.
        plan_of: see the docstring of this module.
    """
    whole = plan_of({"kv": "dist_sync", "num_workers": 0, **_only({}, "dist_sync")})
    spec = {
        "schema": SCHEMA,
        "sweep": sweep,
        "playbook": playbook,
        "begun": round(when, 3),
        "knobs": {name: value for name, value in knobs.items() if name not in _OF_THE_RUN},
        "base": {name: value for name, value in base.items() if name not in _OF_THE_RUN},
        "workers": whole.workers,
        "notes": [],
    }  # type: Json
    if playbook == BENCHMARK:
        spec["knobs"]["worker_counts"] = knobs["worker_counts"] or powers(whole.workers)
    else:
        _begin_comparison(spec, whole, plan_of)
    return spec


def checked(value: Any, sweep: str) -> Json:
    """Return the specification `value` of the file sweep.json after a check of all its fields.

    Raises shapes.Wrong if a field is damaged.

    Args: `sweep` the name of the sweep, which is also the name of its folder.
    """
    _WRITTEN(value)
    spec: Json = _SPEC(value)
    if spec["sweep"] != sweep:
        raise shapes.Wrong("the name of the sweep's folder", spec["sweep"], "sweep")
    known = {knob.name: knob for knob in knob_table.knobs_of(spec["playbook"])}
    for name in sorted(set(known) - set(_OF_THE_RUN)):
        _check_knob(known[name], spec["knobs"], "knobs")
    # `begin` replaces an empty list.
    filled = "worker_counts" if spec["playbook"] == BENCHMARK else "schemes"
    if not spec["knobs"][filled]:
        raise shapes.Wrong("a list with an item", [], "knobs." + filled)
    passed = knob_table.passed_on(spec["playbook"])
    for name in spec["base"]:
        if name not in passed:
            raise shapes.Wrong("a knob that %s passes on" % spec["playbook"], name, "base")
        _check_knob(_option(name), spec["base"], "base")
    if spec["playbook"] == COMPARE:
        shapes.fields(_OF_COMPARISON)(spec)
        if schemes_table.FASTEST in spec["knobs"]["schemes"]:
            shapes.fields({"fastest": _FASTEST})(spec)
    return spec


def _check_knob(knob: Knob, values: Json, where: str) -> None:
    """Raise shapes.Wrong if the typed value of `knob` is missing or damaged in `values`."""
    try:
        if cast_value(knob, values[knob.name]) == values[knob.name]:
            return
    except (BadInput, KeyError):
        pass
    raise shapes.Wrong(
        knob.message or "a value of this knob", values.get(knob.name), "%s.%s" % (where, knob.name)
    )


def powers(workers: int) -> List[int]:
    """Return the powers of 2 below `workers`, then `workers`: [1, 2, 4, 6] for 6 workers."""
    found, count = [], 1
    while count < workers:
        found.append(count)
        count *= 2
    return found + [workers]


def going_on(spec: Json, playbook: str, knobs: Json, base: Json, given: Iterable[str]) -> None:
    """Raise BadInput if the playbook or a given knob differs from the specification of a sweep.

    The function ignores knobs outside `given`, because the sweep keeps its earlier values.

    Args: `spec` the specification of the earlier sweep; `playbook`, `knobs` and `base` as for
    `begin`; `given` the names that the user gave with -e.
    """
    if spec["playbook"] != playbook:
        raise BadInput(
            "sweep=%s belongs to %s: continue this sweep with ansible-playbook %s -e sweep=%s, or "
            "choose another name for the new sweep"
            % (spec["sweep"], spec["playbook"], spec["playbook"], spec["sweep"])
        )
    problems = []
    for name in sorted(set(given) - set(_OF_THE_RUN)):
        kind, values = ("knobs", knobs) if name in knobs else ("base", base)
        if name not in values:
            continue
        before = spec[kind].get(name)
        if name == "worker_counts" and not values[name]:
            continue
        if before != values[name]:
            problems.append(
                "sweep=%s was begun %s: leave %s out, or begin a new sweep"
                % (
                    spec["sweep"],
                    "without %s" % name
                    if before is None
                    else "with %s=%s, not %s" % (name, shown(before), shown(values[name])),
                    name,
                )
            )
    refuse(problems)


def base_of(playbook: str, options: Json, given: Iterable[str], cwd: str) -> Json:
    """Return {knob: typed value} of the user's train.yml knobs for all jobs of a sweep.

    Raises BadInput with all wrong values.

    Args: `options` {knob: value}; `given` the names that the user gave with -e; `cwd` the folder at
    which relative paths begin.
    """
    passed = knob_table.passed_on(playbook)
    names = [name for name in given if name in passed and name in options]
    found = dict(zip(names, for_each(lambda name: cast_value(_option(name), options[name]), names)))
    for name in _PATHS:
        if found.get(name):
            found[name] = os.path.abspath(os.path.join(cwd, os.path.expanduser(found[name])))
    return {name: value for name, value in found.items() if name not in _OF_THE_RUN}


def expand(grid: Sequence[Tuple[str, Sequence[Any]]]) -> List[Json]:
    """Return a dict {name: value} for every combination of the values in `grid`.

    The value of the last name changes fastest from dict to dict.

    Args: `grid` [(name, list of values), ...].
    """
    names = [name for name, _ in grid]
    return [
        dict(zip(names, values)) for values in itertools.product(*(values for _, values in grid))
    ]


def benchmark_jobs(spec: Json) -> List[Job]:
    """Return the jobs of a benchmark, in a fixed order.

    Raises BadInput if a batch size is not divisible by the number of workers (strong scaling).

    Schemes without servers have one worker. With one worker, weak and strong scaling give the same
    job, and the list holds this job once.
    """
    knobs, base = spec["knobs"], spec["base"]
    jobs, problems = [], []  # type: List[Job], List[str]
    seen = {}  # type: Dict[str, Json]
    grid = [
        (name[:-1] if name != "scaling" else name, knobs[name])
        for name in ("networks", "kvs", "batch_sizes", "gpu_counts", "scaling", "worker_counts")
    ]
    combinations = 1
    for _, values in grid:
        combinations *= len(values) or 1
    if combinations > MOST_COMBINATIONS:
        raise BadInput(
            "the lists of the sweep have %d combinations, and a sweep can have %d: shorten the "
            "lists" % (combinations, MOST_COMBINATIONS)
        )
    for one in expand([(name, values or [None]) for name, values in grid]):
        kv, workers = one["kv"], one["worker_count"]
        if not schemes.of(kv).is_distributed and workers > 1:
            continue
        own, rest = divmod(one["batch_size"], workers if one["scaling"] == "strong" else 1)
        if rest:
            problems.append(
                "batch_sizes: %d cannot be divided evenly among %d workers, as scaling=strong "
                "requires. Use a multiple of the number of workers, or leave %d out of "
                "worker_counts" % (one["batch_size"], workers, workers)
            )
            continue
        measured = base.get("measured") or MEASURED
        warm_up = base.get("warm_up", _default("warm_up"))
        job = {
            "data": "synthetic",
            **_only(base, kv),
            "network": one["network"],
            "kv": kv,
            "batch_size": own,
            "num_workers": workers if schemes.of(kv).is_distributed else 0,
            "measured": measured,
            "warm_up": warm_up,
            "measure_waits": False,
            **_fixed(),
            **_meeting(knobs["rendezvous"] if schemes.of(kv).is_distributed else ""),
        }
        if one["gpu_count"] is not None:
            job["gpus"] = ",".join(map(str, range(one["gpu_count"])))
        if job["data"] == "synthetic" and "num_examples" not in base:
            job["num_examples"] = own * workers * (measured + warm_up)  # one epoch
        identity = repr((sorted(job.items()), workers > 1 and one["scaling"]))
        if identity not in seen:
            about = {
                "network": one["network"],
                "kv": kv,
                "batch_size": own,
                "gpus": one["gpu_count"],
                "scaling": one["scaling"],
                "workers": workers,
            }
            seen[identity] = job
            jobs.append(Job("%03d" % (len(jobs) + 1), job, about))
    refuse(dict.fromkeys(problems))
    return jobs


def comparison_job(spec: Json, scheme: str, rate: Json, seed: int) -> Job:
    """Return the Job of a comparison with a scheme, a learning rate and a seed.

    Args: `scheme` a name in `schemes_table`; `rate` an entry of spec["rates"].
    """
    row = schemes_table.of(scheme)
    knobs = {
        **_only(spec["base"], row.knobs["kv"]),
        **row.knobs,
        "lr": rate["lr"],
        "lr_scale": "none",
        "seed": seed,
        "num_workers": 0,
        "measured": 0,
        "measure_waits": True,
        **_fixed(),
    }
    if "balance" not in row.knobs and "balance" in {option.name for option in OPTIONS}:
        knobs["balance"] = _default("balance")
    if scheme == schemes_table.FASTEST:
        # The runner replaces HOSTS_FILE with the path of a file. The servers stay the same.
        knobs.update(groups_file="", hosts_file=HOSTS_FILE)
    return Job(
        "%s-lr%g-seed%d" % (scheme, rate["lr"], seed),
        knobs,
        {"scheme": scheme, "lr": rate["lr"], "seed": seed},
    )


# A value of the knob hosts_file, for the path of a file with the text spec["fastest"]["hosts"].
HOSTS_FILE = "<fastest group>"


def seeds_of(spec: Json) -> List[int]:
    """Return the seeds of a comparison, in order."""
    first = spec["base"].get("seed", _default("seed"))
    return list(range(first, first + spec["knobs"]["seeds"]))


def rates_of(factors: Sequence[str], base: float, workers: int) -> List[Json]:
    """Return the learning rates in rising order, as [{"factor": text, "lr": number}].

    The list holds equal rates once, with the first factor that gives the rate.

    Args: `factors` strings of the knob lr_factors, such as "1/W"; `base` the learning rate to
    multiply; `workers` the number W.
    """
    found = {}  # type: Dict[float, str]
    for text in factors:
        match = knob_table.FACTOR.fullmatch(text)
        assert match, text
        below = {None: 1.0, "W": float(workers), "sqrt(W)": math.sqrt(workers)}.get(match.group(2))
        divisor = float(match.group(2)) if below is None else below
        factor = float(match.group(1)) / divisor if divisor else 0.0
        if factor <= 0:
            raise BadInput("lr_factors: %s is not above 0. Give a factor above 0" % text)
        found.setdefault(float("%.6g" % (base * factor)), text)
    return [{"factor": text, "lr": lr} for lr, text in sorted(found.items())]


def check_rendezvous(text: str, plan: Plan) -> None:
    """Raise BadInput if the rendezvous address differs from the address of the plan's scheduler.

    Args: `text` the value of the knob rendezvous.
    """
    match = knob_table.RENDEZVOUS.fullmatch(text)
    if not match or not plan.root or plan.root.address == match.group("address"):
        return
    scheduler = next(one.host for one in plan.of_role(SCHEDULER))
    owner = next(
        (host for host, node in plan.nodes.items() if node.address == match.group("address")),
        None,
    )
    raise BadInput(
        "rendezvous=%s: the scheduler runs on %s with the address %s. Give this address, or %s"
        % (
            text,
            scheduler,
            plan.root.address,
            "put %s into the group scheduler" % owner
            if owner
            else "give the interface with the address %s" % match.group("address"),
        )
    )


def _begin_comparison(spec: Json, whole: Plan, plan_of: PlanOf) -> None:
    """Add the schemes, groups, fastest group and learning rates to the specification `spec`."""
    knobs, there = spec["knobs"], schemes_table.available()
    missing = [name for name in knobs["schemes"] if name not in there]
    refuse(
        "schemes: this version of mxcluster cannot train %s. Leave this scheme out" % name
        for name in missing
    )
    knobs["schemes"] = chosen = knobs["schemes"] or there
    if {schemes_table.GROUPED, schemes_table.FASTEST} & set(chosen):
        plan = plan_of({**_only(spec["base"], "dist_gsync"), "kv": "dist_gsync", "num_workers": 0})
        spec["groups"] = list(plan.group_labels)
        if len(plan.groups) < 2:
            spec["notes"].append(
                "all workers form one group, so GSP equals BSP: for several groups, set "
                "worker_group"
            )
        if schemes_table.FASTEST in chosen:
            spec["fastest"] = _fastest(plan, knobs["fastest_group"])
            if spec["fastest"] is None:
                spec["notes"].append(
                    "the comparison leaves out the scheme `fastest`, which equals BSP with one "
                    "group"
                )
                knobs["schemes"] = [name for name in chosen if name != schemes_table.FASTEST]
    if len(knobs["schemes"]) < 1:
        raise BadInput("schemes: no scheme is left to compare. Name other schemes")
    base = plan_of({"kv": "dist_sync", "num_workers": 0, **_only(spec["base"], "dist_sync")})
    spec["base_lr"] = base.options["lr"]
    spec["rates"] = rates_of(knobs["lr_factors"], spec["base_lr"], whole.workers)


def _fastest(plan: Plan, wanted: str) -> Optional[Json]:
    """Return {"label", "workers": number, "hosts": text of a hosts file} of the fastest group.

    The result is None if all workers form one group. Raises BadInput if `wanted` is not the label
    of a group.

    Args: `plan` the plan of a dist_gsync job; `wanted` the knob fastest_group, "" for the default.
    """
    labels = list(plan.group_labels)
    if wanted and wanted not in labels:
        raise BadInput(
            "fastest_group=%s is not a group of the workers: name one of %s"
            % (shown(wanted), ", ".join(labels))
        )
    if len(labels) < 2:
        return None
    label = wanted or (FASTEST_LABEL if FASTEST_LABEL in labels else labels[0])
    members = plan.groups[labels.index(label)]
    addresses = {one.index: one.address for one in plan.of_role(WORKER)}
    return {
        "label": label,
        "workers": len(members),
        "hosts": "".join("%s\n" % addresses[index] for index in members),
    }


def _fixed() -> Json:
    """Return {knob: value} of the knobs that override the inventory in all jobs of a sweep."""
    return {"plan_only": False, "detach": False, "savemodel": False, "max_restarts": 0}


def _only(base: Json, kv: str) -> Json:
    """Return the knobs `base`, with defaults for the knobs that the scheme `kv` does not accept."""
    found = dict(base)
    known = {option.name for option in OPTIONS}
    for name, kvs in schemes_table.ONLY_KV.items():
        if name in known and kv not in kvs:
            found[name] = "" if _default(name) is None else _default(name)
    return found


def _meeting(rendezvous: str) -> Json:
    """Return {"root_port", "dmlc_interface"} from the knob `rendezvous`; {} without a value.

    Without an interface in the knob, "dmlc_interface" is missing.
    """
    match = knob_table.RENDEZVOUS.fullmatch(rendezvous)
    if not match:
        return {}
    found = {"root_port": match.group("port")}
    if match.group("interface"):
        found["dmlc_interface"] = match.group("interface")
    return found


def _option(name: str) -> Knob:
    return next(option for option in OPTIONS if option.name == name)


def _default(name: str) -> Any:
    return _option(name).default


def job_id(sweep: str, name: str, used: Callable[[str], bool]) -> str:
    """Return the first unused id for a run of a job: `<sweep>-<name>`, `<sweep>-<name>-a2`, ...

    Args: `name` the name of the job; `used(id)` returns True for the id of an earlier run.
    """
    first = "%s-%s" % (sweep, re.sub(r"[^A-Za-z0-9._-]", "_", name))
    number = 1
    while True:
        found = first if number == 1 else "%s-a%d" % (first, number)
        if not used(found):
            return found
        number += 1
