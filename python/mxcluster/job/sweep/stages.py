"""Choose the jobs that a sweep still has to run. All functions are pure.

A benchmark has a fixed list of jobs. The list of a comparison grows in two stages:

1. Every scheme trains with every learning rate and the first seed.
2. Every scheme trains with the other seeds, first at the best rate, then at the common rate.

The best job reaches the target accuracy first. If no job reaches the target, the best job has the
highest final accuracy. A failed job counts as the worst job.

A scheme's best rate is the learning rate of the scheme's best job. The common rate is the same for
all schemes. The jobs of a scheme rank the rates, so a rate has one rank from each scheme. The
common rate is the rate with the smallest worst rank. Among rates with equal worst ranks, the
smallest sum of ranks decides, then the smallest rate.
"""

from typing import Dict, List, Mapping, NamedTuple, Optional, Tuple

from mxcluster.job.sweep import specs
from mxcluster.job.sweep.specs import Job
from mxcluster.model.sweep import (
    FAILED,
    Benchmark,
    Comparison,
    ComparisonRecord,
    JobRecord,
    Specification,
)

Records = Mapping[str, JobRecord]  # {name of a job: its record}


class Choice(NamedTuple):
    """The best rate of each scheme and the common rate, from the jobs with the first seed."""

    best: Dict[str, float]  # by scheme; a scheme whose jobs all failed is missing
    common: Optional[float]  # None if all jobs failed


def next_jobs(spec: Specification, records: Records) -> List[Job]:
    """Return the known jobs without a record, in order; [] after the last job of the sweep."""
    return [job for job in known_jobs(spec, records) if job.name not in records]


def known_jobs(spec: Specification, records: Records) -> List[Job]:
    """Return all jobs of the sweep that follow from `records`, in the order of their runs."""
    if isinstance(spec, Benchmark):
        return specs.benchmark_jobs(spec)
    assert isinstance(spec, Comparison)
    seeds = specs.seeds_of(spec)
    jobs = [
        specs.comparison_job(spec, scheme, rate.lr, seeds[0])
        for scheme in spec.knobs.schemes
        for rate in spec.rates
    ]
    chosen = choose(spec, records)
    if chosen is None:
        return jobs
    best = list(chosen.best.items())
    common = [
        (scheme, chosen.common)
        for scheme, lr in best
        if chosen.common is not None and chosen.common != lr
    ]
    # Order the jobs by seed, so that an interrupted sweep has the same seeds for all schemes.
    return jobs + [
        specs.comparison_job(spec, scheme, lr, seed)
        for pairs in (best, common)
        for seed in seeds[1:]
        for scheme, lr in pairs
    ]


def known_records(spec: Specification, records: Records) -> List[JobRecord]:
    """Return the records of the known jobs, in the order of the jobs."""
    return [records[job.name] for job in known_jobs(spec, records) if job.name in records]


def most_jobs(spec: Specification) -> int:
    """Return the largest number of jobs that the sweep can have."""
    if isinstance(spec, Benchmark):
        return len(specs.benchmark_jobs(spec))
    assert isinstance(spec, Comparison)
    schemes, rates = len(spec.knobs.schemes), len(spec.rates)
    return schemes * (rates + min(rates, 2) * (spec.knobs.seeds - 1))


def has_all_jobs(spec: Specification, records: Records) -> bool:
    """Return True unless a comparison is in its first stage, whose records decide further jobs."""
    return not isinstance(spec, Comparison) or choose(spec, records) is not None


def choose(spec: Comparison, records: Records) -> Optional[Choice]:
    """Return the Choice of the best rates and the common rate of a comparison.

    The result is None while a job of the first stage has no record.
    """
    seed = specs.seeds_of(spec)[0]
    lrs = [rate.lr for rate in spec.rates]
    best, ranks = {}, {lr: [] for lr in lrs}  # type: Dict[str, float], Dict[float, List[int]]
    for scheme in spec.knobs.schemes:
        names = [specs.comparison_job(spec, scheme, lr, seed).name for lr in lrs]
        if not all(name in records for name in names):
            return None
        scores = {lr: score(records[name]) for lr, name in zip(lrs, names)}
        if all(records[name].state == FAILED for name in names):
            continue
        best[scheme] = min(lrs, key=lambda lr: (scores[lr], lr))
        for lr in lrs:
            ranks[lr].append(len([one for one in scores.values() if one < scores[lr]]))
    if not best:
        return Choice({}, None)
    return Choice(best, min(lrs, key=lambda lr: (max(ranks[lr]), sum(ranks[lr]), lr)))


def score(record: JobRecord) -> Tuple[int, float]:
    """Return the sort key of a job's record in a comparison; a better job has a smaller key."""
    if record.state == FAILED or not isinstance(record, ComparisonRecord):
        return 2, 0.0
    if record.target_s is not None:
        return 0, record.target_s
    return 1, -(record.accuracy or 0.0)
