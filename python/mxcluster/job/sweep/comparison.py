"""Make the specification and the jobs of a comparison. All functions are pure."""

import math
from typing import Dict, List, Optional, Sequence, cast

from mxcluster.datasets import training_samples
from mxcluster.errors import BadInput, shown
from mxcluster.job.sweep import jobs
from mxcluster.job.sweep.jobs import Job, PlanOf
from mxcluster.lists import listed, several
from mxcluster.model import sweep_knobs, sweep_schemes
from mxcluster.model.plan import WORKER, Plan
from mxcluster.model.sweep import (
    METHOD,
    Comparison,
    ComparisonAbout,
    FastestGroup,
    Knobs,
    Rate,
    Setting,
)
from mxcluster.model.sweep_knobs import ComparisonKnobs

# The label that a profile gives to its fastest group.
FASTEST_LABEL = "speed1"
# The evaluations of a job, unless the knob gives a number. Two of them are 0.5 % of a job apart,
# and 2 % of the time to a target that comes after a quarter of the job.
EVALUATIONS = 200
# Batches of a job with one worker: to skip, and the least and the most number to measure.
WARM_UP, LEAST_MEASURED, MOST_MEASURED = 5, 30, 300
FEWEST_SEEDS = 5  # from which quartiles tell something
SOLO_KV = "device"  # sums the gradients of several GPUs on one of them, and also trains on CPUs
Y_OF_GROUP = 4  # the default of gsync_max_y for `ringmaster`, for each group


def job(spec: Comparison, scheme: str, setting: Setting, seed: int) -> Job:
    """Return the Job of a comparison with a scheme, a setting and a seed.

    Args: `scheme` a name in `sweep_schemes`.
    """
    row = sweep_schemes.of(scheme)
    knobs = {
        **jobs.accepted(_given(spec.base), row.knobs["kv"]),
        **row.knobs,
        **setting._asdict(),
        "lr_scale": "none",
        "seed": seed,
        "num_workers": 0,
        "measured": 0,
        "measure_waits": True,
        **jobs.FIXED,
    }
    if "balance" not in row.knobs:
        knobs["balance"] = jobs.default("balance")
    if scheme == sweep_schemes.RINGMASTER:
        knobs["gsync_max_y"] = spec.max_y
    hosts: Sequence[str] = ()
    if scheme == sweep_schemes.FASTEST:
        # The plan of a dist_gsync job decides which workers form the fastest group.
        assert spec.fastest, spec.sweep
        knobs["groups_file"], hosts = "", spec.fastest.hosts.split()
    return Job(
        "%s-lr%g-m%g-seed%d" % (scheme, setting.lr, setting.momentum, seed),
        knobs,
        ComparisonAbout(scheme=scheme, seed=seed, **setting._asdict()),
        hosts,
    )


def solo_jobs(spec: Comparison) -> List[Job]:
    """Return a Job for each worker that trains alone, [] if the comparison has no such jobs.

    A worker trains without servers (`kv=device`): so the sum of the speeds is the speed of machines
    with a network and servers that take no time.
    """
    setting, measured = Setting(spec.base_lr, 0.0), solo_batches(spec)
    first = jobs.number(spec.base, "seed")
    return [
        Job(
            "%s-%d" % (sweep_schemes.SOLO, index),
            {
                **jobs.accepted(spec.base, SOLO_KV),
                **setting._asdict(),
                "kv": SOLO_KV,
                "groups_file": "",
                "num_workers": 0,
                "evaluations": 0,
                "warm_up": WARM_UP,
                "measured": measured,
                "measure_waits": False,
                **jobs.FIXED,
            },
            ComparisonAbout(
                scheme=sweep_schemes.SOLO, seed=first, worker=index, **setting._asdict()
            ),
            [address],
        )
        for index, address in enumerate(spec.addresses)
    ]


def solo_batches(spec: Comparison) -> int:
    """Return the number of batches that a worker measures alone: those of an epoch of its share.

    LEAST_MEASURED and MOST_MEASURED bound it. Short batches need many: a quota of CPU time acts on
    the mean over several of its periods of about 100 ms.
    """
    data = cast(str, spec.base.get("data", jobs.default("data")))
    samples = training_samples(data, jobs.number(spec.base, "num_examples"))
    batches = samples // (spec.workers * jobs.number(spec.base, "batch_size"))
    return min(max(LEAST_MEASURED, batches), MOST_MEASURED)


def choosing_seeds(spec: Comparison) -> List[int]:
    """Return the seeds that choose a scheme's setting, in order."""
    first = jobs.number(spec.base, "seed")
    return list(range(first, first + spec.knobs.choosing_seeds))


def measuring_seeds(spec: Comparison) -> List[int]:
    """Return the seeds that measure, in order. None of them chooses a setting.

    A setting is the best one of many with a seed that chooses, by chance, too. With another seed
    this luck is gone.
    """
    first = choosing_seeds(spec)[-1] + 1
    return list(range(first, first + spec.knobs.seeds))


def rates_of(factors: Sequence[str], base: float, workers: int) -> List[Rate]:
    """Return the learning rates in rising order.

    The list holds equal rates once, with the first factor that gives the rate.

    Args: `factors` strings of the knob lr_factors, such as "1/W"; `base` the learning rate to
    multiply; `workers` the number W.
    """
    found: Dict[float, str] = {}
    for text in factors:
        match = sweep_knobs.FACTOR.fullmatch(text)
        assert match, text
        below = {None: 1.0, "W": float(workers), "sqrt(W)": math.sqrt(workers)}.get(match.group(2))
        divisor = float(match.group(2)) if below is None else below
        factor = float(match.group(1)) / divisor if divisor else 0.0
        if factor <= 0:
            raise BadInput("lr_factors: %s is not above 0. Give a factor above 0" % text)
        found.setdefault(float("%.6g" % (base * factor)), text)
    return [Rate(factor=text, lr=lr) for lr, text in sorted(found.items())]


def begin(
    sweep: str, begun: float, base: Knobs, knobs: ComparisonKnobs, workers: int, plan_of: PlanOf
) -> Comparison:
    """Return the specification of a new comparison.

    Raises BadInput if a job of the comparison is impossible.

    Args: `workers` the number of workers of the whole cluster; the others as for `specs.begin`.
    """
    notes = few_seeds(knobs)
    names = list(knobs.schemes or sweep_schemes.NAMES)
    whole = plan_of({"kv": "dist_sync", "num_workers": 0, **jobs.accepted(base, "dist_sync")})
    labels, fastest, groups = None, None, 1
    grouped = {sweep_schemes.GROUPED, sweep_schemes.RINGMASTER, sweep_schemes.FASTEST}
    if grouped & set(names):
        plan = plan_of({**jobs.accepted(base, "dist_gsync"), "kv": "dist_gsync", "num_workers": 0})
        labels, groups = list(plan.group_labels), len(plan.groups)
        fastest = _fastest(plan, knobs.fastest_group) if sweep_schemes.FASTEST in names else None
        if groups < 2:
            names = _without_groups(names, notes)
    if not names:
        raise BadInput("schemes: no scheme is left to compare. Name other schemes")
    notes += _equal_shares(names, base, groups, plan_of)
    return Comparison(
        method=METHOD,
        sweep=sweep,
        begun=begun,
        base=base,
        workers=workers,
        notes=notes,
        knobs=knobs.replaced(schemes=names),
        base_lr=whole.options.lr,
        rates=rates_of(knobs.lr_factors, whole.options.lr, workers),
        groups=labels,
        fastest=fastest,
        addresses=_addresses(whole) if knobs.solo else [],
        max_y=knobs.ringmaster_max_y or Y_OF_GROUP * groups,
    )


def _given(base: Knobs) -> Knobs:
    """Return the knobs `base` with a comparison's own defaults."""
    return {"data_allocator": 1, "evaluations": EVALUATIONS, **base}


def _equal_shares(names: Sequence[str], base: Knobs, groups: int, plan_of: PlanOf) -> List[str]:
    """Return [a note] if schemes whose workers can use unequal shares have equal ones, else [].

    With one group, GSP can use none.
    """
    rows = [
        row
        for row in map(sweep_schemes.of, names)
        if row.knobs["kv"] in sweep_schemes.ONLY_KV["data_allocator"]
        and (row.name != sweep_schemes.GROUPED or groups > 1)
    ]
    given = _given(base)
    if not rows or not given["data_allocator"]:
        return []
    kv = rows[0].knobs["kv"]
    plan = plan_of({**jobs.accepted(given, kv), "kv": kv, "num_workers": 0})
    lengths = [end - begin for begin, end in plan.shares]
    from_profile = plan.profile is not None and plan.profile.fits
    if from_profile or not lengths or max(lengths) - min(lengths) > 1e-6:
        return []
    return [
        "no profile gives shares, so %s with equal shares: run profile.yml -e apply=true first, or "
        "set worker_share"
        % (
            "%s trains" % rows[0].title
            if len(rows) == 1
            else "%s train" % listed([row.title for row in rows])
        )
    ]


def few_seeds(knobs: ComparisonKnobs) -> List[str]:
    """Return a note about a comparison with fewer than FEWEST_SEEDS seeds that measure, or []."""
    if knobs.seeds >= FEWEST_SEEDS:
        return []
    return [
        "%s measured, so medians and quartiles say little: use seeds=%d or more"
        % (several(knobs.seeds, "seed"), FEWEST_SEEDS)
    ]


def _without_groups(names: List[str], notes: List[str]) -> List[str]:
    """Return the schemes `names` that make sense with one group, and add the reasons to `notes`."""
    notes.append(
        "all workers form one group, so GSP equals BSP: for several groups, set worker_group"
    )
    equal = [name for name in names if name in (sweep_schemes.FASTEST, sweep_schemes.RINGMASTER)]
    notes.extend(
        "the comparison leaves out the scheme `%s`, which equals BSP with one group" % name
        for name in equal
    )
    return [name for name in names if name not in equal]


def _addresses(plan: Plan) -> List[str]:
    """Return the address of each worker of the plan, by index."""
    found = {one.index or 0: one.address for one in plan.of_role(WORKER)}
    return [found[index] for index in sorted(found)]


def _fastest(plan: Plan, chosen: str) -> Optional[FastestGroup]:
    """Return the fastest group, or None if all workers form one group.

    Raises BadInput if `chosen` is not the label of a group.

    Args: `plan` the plan of a dist_gsync job; `chosen` the knob fastest_group, "" for the default.
    """
    labels = list(plan.group_labels)
    if chosen and chosen not in labels:
        raise BadInput(
            "fastest_group=%s is not a group of the workers: name one of %s"
            % (shown(chosen), ", ".join(labels))
        )
    if len(labels) < 2:
        return None
    label = chosen or (FASTEST_LABEL if FASTEST_LABEL in labels else labels[0])
    members = plan.groups[labels.index(label)]
    addresses = _addresses(plan)
    return FastestGroup(
        label=label,
        workers=len(members),
        hosts="".join("%s\n" % addresses[index] for index in members),
    )
