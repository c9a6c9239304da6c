"""Make the specification of a sweep, or check knobs against an earlier specification.

All functions are pure. The argument `plan_of` is a function that returns the plan of a job, see
`runner.Means`.
"""

import itertools
import os
import re
from typing import (
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    Tuple,
)

from mxcluster import schemes
from mxcluster.errors import BadInput, for_each, refuse, shown
from mxcluster.job.sweep import comparison, jobs, rendezvous
from mxcluster.job.sweep.jobs import Job, PlanOf
from mxcluster.model import sweep_knobs
from mxcluster.model.job_knobs import Options
from mxcluster.model.knob import COMPARE, knobs_of, value_of
from mxcluster.model.shapes import Wrong
from mxcluster.model.sweep import (
    METHOD,
    Benchmark,
    BenchmarkAbout,
    Knobs,
    Specification,
)
from mxcluster.model.sweep_knobs import BenchmarkKnobs, ComparisonKnobs

MOST_COMBINATIONS = 10 * sweep_knobs.MOST_JOBS  # of a benchmark; some give the same job
MEASURED = 50  # batches of a benchmark's job, unless the knob `measured` gives a number
_PATHS = ("data_src", "hosts_file", "groups_file", "data_sharding_file")
# Knobs about the run of the playbook, which the specification leaves out.
_OF_THE_RUN = ("sweep", "again", "max_jobs", "plan_only")


def begin(
    sweep: str,
    knobs: sweep_knobs.Both,
    base: Knobs,
    when: float,
    plan_of: PlanOf,
) -> Specification:
    """Return the specification of a new sweep.

    Raises BadInput if a job of the sweep is impossible.

    Args:
        sweep: the name of the sweep.
        knobs: the knobs of the sweep.
        base: {knob of train.yml: value} that the user gave with -e.
        when: the time of the start in unix seconds.
        plan_of: see the docstring of this module.
    """
    whole = plan_of({"kv": "dist_sync", "num_workers": 0, **jobs.accepted({}, "dist_sync")})
    if isinstance(knobs, sweep_knobs.BenchmarkInput):
        own = sweep_knobs.part(BenchmarkKnobs, knobs)
        return Benchmark(
            sweep=sweep,
            begun=round(when, 3),
            base=base,
            workers=whole.workers,
            knobs=own.replaced(worker_counts=own.worker_counts or powers(whole.workers)),
        )
    own_knobs = sweep_knobs.part(ComparisonKnobs, knobs)
    return comparison.begin(sweep, round(when, 3), base, own_knobs, whole.workers, plan_of)


def checked(value: object, sweep: str, path: str) -> Specification:
    """Return the specification of the file sweep.json with the content `value`.

    Raises Wrong if a field is damaged, and BadInput for a comparison with another method.

    Args: `sweep` the name of the sweep, which is also the name of its folder; `path` of the file.
    """
    if isinstance(value, dict) and value.get("playbook") == COMPARE:
        if value.get("method") != METHOD:
            raise BadInput(
                "%s: another version of mxcluster began sweep=%s with another method of "
                "comparison, so its results are not comparable with those of this version. Its "
                "report stays as it is: choose another name for a new sweep" % (path, sweep)
            )
    spec = Specification.decode(value)
    if spec.sweep != sweep:
        raise Wrong("the name of the sweep's folder", spec.sweep, "sweep")
    return spec


def powers(workers: int) -> List[int]:
    """Return the powers of 2 below `workers`, then `workers`: [1, 2, 4, 6] for 6 workers."""
    found, count = [], 1
    while count < workers:
        found.append(count)
        count *= 2
    return found + [workers]


def going_on(
    spec: Specification,
    playbook: str,
    knobs: sweep_knobs.Both,
    base: Knobs,
    given: Iterable[str],
) -> None:
    """Raise BadInput if the playbook or a given knob differs from the specification of a sweep.

    The function ignores knobs outside `given`, because the sweep keeps its earlier values.

    Args: `spec` the specification of the earlier sweep; `playbook`, `knobs` and `base` as for
    `begin`; `given` the names that the user gave with -e.
    """
    if spec.KIND != playbook:
        raise BadInput(
            "sweep=%s belongs to %s: continue this sweep with ansible-playbook %s -e sweep=%s, or "
            "choose another name for the new sweep" % (spec.sweep, spec.KIND, spec.KIND, spec.sweep)
        )
    problems = []
    own = knobs.encode()
    for name in sorted(set(given) - set(_OF_THE_RUN)):
        earlier, now = (spec.knobs.encode(), own) if name in own else (spec.base, base)
        if name not in now or name == "worker_counts" and not now[name]:
            continue
        before = earlier.get(name)
        if before != now[name]:
            problems.append(
                "sweep=%s was begun %s: leave %s out, or begin a new sweep"
                % (
                    spec.sweep,
                    "without %s" % name
                    if before is None
                    else "with %s=%s, not %s" % (name, shown(before), shown(now[name])),
                    name,
                )
            )
    refuse(problems)


def base_of(playbook: str, options: Knobs, given: Iterable[str], cwd: str) -> Knobs:
    """Return {knob: typed value} of the user's train.yml knobs for all jobs of a sweep.

    Raises BadInput with all wrong values.

    Args: `options` {knob: value}; `given` the names that the user gave with -e; `cwd` the folder at
    which relative paths begin.
    """
    passed, known = sweep_knobs.passed_on(playbook), knobs_of(Options)
    names = [name for name in given if name in passed and name in options]
    found = dict(zip(names, for_each(lambda name: value_of(known[name], options[name]), names)))
    for name in _PATHS:
        if found.get(name):
            found[name] = os.path.abspath(os.path.join(cwd, os.path.expanduser(str(found[name]))))
    return {name: value for name, value in found.items() if name not in _OF_THE_RUN}


def benchmark_jobs(spec: Benchmark) -> List[Job]:
    """Return the jobs of a benchmark, in a fixed order.

    Raises BadInput if a batch size is not divisible by the number of workers (strong scaling).

    Schemes without servers have one worker. With one worker, weak and strong scaling give the same
    job, and the list holds this job once.
    """
    jobs: Dict[str, Job] = {}
    problems: List[str] = []
    for total, about in _combinations(spec.knobs):
        if not schemes.of(about.kv).is_distributed and about.workers > 1:
            continue
        if about.scaling == "strong" and total % about.workers:
            problems.append(
                "batch_sizes: %d cannot be divided evenly among %d workers, as scaling=strong "
                "requires. Use a multiple of the number of workers, or leave %d out of "
                "worker_counts" % (total, about.workers, about.workers)
            )
            continue
        knobs = _benchmark_knobs(spec, about)
        identity = repr((sorted(knobs.items()), about.workers > 1 and about.scaling))
        jobs.setdefault(identity, Job("%03d" % (len(jobs) + 1), knobs, about))
    refuse(dict.fromkeys(problems))
    return list(jobs.values())


def _combinations(knobs: BenchmarkKnobs) -> Iterator[Tuple[int, BenchmarkAbout]]:
    """Yield (value of batch_sizes, values of the job) for each combination of the lists.

    The number of workers changes fastest. Raises BadInput for too many combinations.
    """
    lists = (
        knobs.networks,
        knobs.kvs,
        knobs.batch_sizes,
        knobs.gpu_counts or (None,),
        knobs.scaling,
        knobs.worker_counts,
    )
    count = 1
    for values in lists:
        count *= len(values)
    if count > MOST_COMBINATIONS:
        raise BadInput(
            "the lists of the sweep have %d combinations, and a sweep can have %d: shorten the "
            "lists" % (count, MOST_COMBINATIONS)
        )
    for network, kv, size, gpus, scaling, workers in itertools.product(*lists):
        yield (
            size,
            BenchmarkAbout(
                network=network,
                kv=kv,
                batch_size=size // workers if scaling == "strong" else size,
                gpus=gpus,
                scaling=scaling,
                workers=workers,
            ),
        )


def _benchmark_knobs(spec: Benchmark, about: BenchmarkAbout) -> Knobs:
    """Return the knobs of train.yml of a benchmark's job."""
    base, is_distributed = spec.base, schemes.of(about.kv).is_distributed
    measured = jobs.number(base, "measured") or MEASURED
    warm_up = jobs.number(base, "warm_up")
    knobs = {
        "data": "synthetic",
        **jobs.accepted(base, about.kv),
        "network": about.network,
        "kv": about.kv,
        "batch_size": about.batch_size,
        "num_workers": about.workers if is_distributed else 0,
        "measured": measured,
        "warm_up": warm_up,
        "measure_waits": False,
        **jobs.FIXED,
        **rendezvous.knobs_of(spec.knobs.rendezvous if is_distributed else ""),
    }
    if about.gpus is not None:
        knobs["gpus"] = ",".join(map(str, range(about.gpus)))
    if knobs["data"] == "synthetic" and "num_examples" not in base:
        knobs["num_examples"] = about.batch_size * about.workers * (measured + warm_up)  # one epoch
    return knobs


def job_id(sweep: str, name: str, used: Callable[[str], bool]) -> str:
    """Return the first unused id for a run of a job: `<sweep>-<name>`, `<sweep>-<name>-a2`, ...

    Args: `name` the name of the job; `used(id)` returns True for the id of an earlier run.
    """
    first = "%s-%s" % (sweep, re.sub(r"[^A-Za-z0-9._-]", "_", name))
    later = ("%s-a%d" % (first, number) for number in itertools.count(2))
    return next(found for found in itertools.chain([first], later) if not used(found))
