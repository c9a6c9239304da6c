"""Choose the jobs that a sweep still has to run. All functions are pure.

A benchmark has a fixed list of jobs. The list of a comparison grows in three stages:

1. Each worker trains alone. The sum of these speeds is the limit of all schemes.
2. Every scheme trains with every setting (learning rate and momentum) and the seeds that choose.
   For each momentum, the list of learning rates grows in the direction of its best rate, until the
   best rate lies inside, or has grown by `lr_growth` rates.
3. Every scheme trains with the seeds that measure: at its best setting, then at the common setting,
   unless the knob `common` is false.

The best job reaches the target accuracy first. If no job reaches the target, the best job has the
highest final accuracy. A failed job counts as the worst job. With several seeds that choose, the
worst of a setting's jobs counts.

A scheme's best setting is the one of the scheme's best job. The common setting is the same for all
schemes. The jobs of a scheme rank the settings that all schemes have tried, so a setting has one
rank from each scheme. The common setting has the smallest worst rank. Among settings with equal
worst ranks, the smallest sum of ranks decides, then the smallest setting.
"""

from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from mxcluster.job.sweep import comparison, specs
from mxcluster.job.sweep.jobs import Job
from mxcluster.model.sweep import (
    FAILED,
    Benchmark,
    Comparison,
    ComparisonRecord,
    JobRecord,
    Setting,
    Specification,
)

Records = Mapping[str, JobRecord]  # {name of a job: its record}
Score = Tuple[int, float]  # a smaller one is better

GROWTH = 2.0  # the ratio of two rates in a list that begins with one rate


class Choice(NamedTuple):
    """The best setting of each scheme, and the common setting.

    Without the knob `common`, or if all schemes failed, the common setting is None. A scheme whose
    jobs of the second stage all failed has no best setting.
    """

    best: Dict[str, Setting]
    common: Optional[Setting]


class Line(NamedTuple):
    """The settings of a scheme with one momentum."""

    settings: List[Setting]  # by rising rate
    scores: Optional[Dict[Setting, Score]]  # None while a job of the line has no record
    at_edge: bool = False  # True if the best rate is the first or last, and the list must not grow


def next_jobs(spec: Specification, records: Records) -> List[Job]:
    """Return the known jobs without a record, in the order of their runs."""
    return [job for job in known_jobs(spec, records) if job.name not in records]


def known_jobs(spec: Specification, records: Records) -> List[Job]:
    """Return all jobs of the sweep that follow from `records`, in the order of their runs."""
    if isinstance(spec, Benchmark):
        return specs.benchmark_jobs(spec)
    assert isinstance(spec, Comparison)
    jobs = comparison.solo_jobs(spec) + [
        comparison.job(spec, scheme, setting, seed)
        for scheme in spec.knobs.schemes
        for line in lines(spec, records, scheme)
        for setting in line.settings
        for seed in comparison.choosing_seeds(spec)
    ]
    chosen = choose(spec, records)
    if chosen is None:
        return jobs
    best = list(chosen.best.items())
    common = [
        (scheme, chosen.common)
        for scheme, setting in best
        if chosen.common is not None and chosen.common != setting
    ]
    # Order the jobs by seed, so that an interrupted sweep has the same seeds for all schemes.
    return jobs + [
        comparison.job(spec, scheme, setting, seed)
        for pairs in (best, common)
        for seed in comparison.measuring_seeds(spec)
        for scheme, setting in pairs
    ]


def known_records(spec: Specification, records: Records) -> List[JobRecord]:
    """Return the records of the known jobs, in the order of the jobs."""
    return [records[job.name] for job in known_jobs(spec, records) if job.name in records]


def most_jobs(spec: Specification) -> int:
    """Return the largest number of jobs that the sweep can have."""
    if isinstance(spec, Benchmark):
        return len(specs.benchmark_jobs(spec))
    assert isinstance(spec, Comparison)
    knobs = spec.knobs
    settings = len(knobs.momenta) * (len(spec.rates) + 2 * knobs.lr_growth)
    measured = min(settings, 2 if knobs.common else 1)
    of_scheme = settings * knobs.choosing_seeds + measured * knobs.seeds
    return len(spec.addresses) + len(knobs.schemes) * of_scheme


def has_all_jobs(spec: Specification, records: Records) -> bool:
    """Return True unless a comparison still chooses the settings, which decide further jobs."""
    return not isinstance(spec, Comparison) or choose(spec, records) is not None


def lines(spec: Comparison, records: Records, scheme: str) -> List[Line]:
    """Return the line of each momentum of `scheme`, grown as far as the records decide."""
    return [_line(spec, records, scheme, momentum) for momentum in spec.knobs.momenta]


def _line(spec: Comparison, records: Records, scheme: str, momentum: float) -> Line:
    rates = [rate.lr for rate in spec.rates]
    room = {True: spec.knobs.lr_growth, False: spec.knobs.lr_growth}  # {at the upper end: rates}
    while True:
        settings = [Setting(lr, momentum) for lr in rates]
        scores = _scores(spec, records, scheme, settings)
        if scores is None or all(score == _FAILED for score in scores.values()):
            return Line(settings, scores)
        best = best_of(scores).lr
        edges = [is_upper for is_upper in (True, False) if best == rates[-1 if is_upper else 0]]
        open_edges = [is_upper for is_upper in edges if room[is_upper]]
        if not open_edges:
            return Line(settings, scores, bool(edges))
        for is_upper in open_edges:
            rates = grown(rates, is_upper)
            room[is_upper] -= 1


def grown(rates: Sequence[float], is_upper: bool) -> List[float]:
    """Return the rising list `rates` with one more rate at the upper or at the lower end.

    The ratio to its neighbour is that of the two rates at this end.
    """
    if is_upper:
        ratio = rates[-1] / rates[-2] if len(rates) > 1 else GROWTH
        return [*rates, float("%.6g" % (rates[-1] * ratio))]
    ratio = rates[1] / rates[0] if len(rates) > 1 else GROWTH
    return [float("%.6g" % (rates[0] / ratio)), *rates]


def choose(spec: Comparison, records: Records) -> Optional[Choice]:
    """Return the Choice of the best settings and the common setting of a comparison.

    The result is None while a job that chooses has no record.
    """
    best: Dict[str, Setting] = {}
    scores: Dict[str, Dict[Setting, Score]] = {}
    for scheme in spec.knobs.schemes:
        found: Dict[Setting, Score] = {}
        for line in lines(spec, records, scheme):
            if line.scores is None:
                return None
            found.update(line.scores)
        if any(score != _FAILED for score in found.values()):
            best[scheme], scores[scheme] = best_of(found), found
    return Choice(best, _common(list(scores.values())) if spec.knobs.common else None)


def best_of(scores: Mapping[Setting, Score]) -> Setting:
    """Return the setting with the smallest score, the smaller setting of equally good ones."""
    return min(scores, key=lambda setting: (scores[setting], setting))


def _common(scores: Sequence[Mapping[Setting, Score]]) -> Optional[Setting]:
    """Return the common setting. Args: `scores` of each scheme that has a best setting."""
    if not scores:
        return None
    shared = [one for one in scores[0] if all(one in others for others in scores)]
    ranks = {
        setting: [sum(each[one] < each[setting] for one in shared) for each in scores]
        for setting in shared
    }
    return min(shared, key=lambda one: (max(ranks[one]), sum(ranks[one]), one))


def _scores(
    spec: Comparison, records: Records, scheme: str, settings: Sequence[Setting]
) -> Optional[Dict[Setting, Score]]:
    """Return {setting: the score of its worst job}, None while a job has no record."""
    found = {}
    for setting in settings:
        names = [
            comparison.job(spec, scheme, setting, seed).name
            for seed in comparison.choosing_seeds(spec)
        ]
        if not all(name in records for name in names):
            return None
        found[setting] = max(score(records[name]) for name in names)
    return found


_FAILED: Score = (2, 0.0)


def score(record: JobRecord) -> Score:
    """Return the sort key of a job's record in a comparison; a better job has a smaller key."""
    if record.state == FAILED or not isinstance(record, ComparisonRecord):
        return _FAILED
    if record.target_s is not None:
        return 0, record.target_s
    return 1, -(record.accuracy or 0.0)
