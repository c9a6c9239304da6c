"""Convert the records of a comparison to rows, findings and remarks. All functions are pure."""

import csv
import io
import math
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence

from mxcluster.job.sweep import comparison, limit, readings, stages
from mxcluster.job.sweep.stages import Records
from mxcluster.job.verdict_text import clock, figure
from mxcluster.lists import listed, quantile, several
from mxcluster.model import sweep_schemes
from mxcluster.model.sweep import FAILED, OK, Comparison, ComparisonRecord, Setting

BEST, COMMON = "best", "common"


class Quartiles(NamedTuple):
    """The quartiles of a figure over the seeds; None for an infinite or unknown figure."""

    low: Optional[float]
    median: Optional[float]
    high: Optional[float]

    def shown(self, text: Callable[[Optional[float]], str]) -> str:
        """Return the median with the quartiles, such as "11.0 s (10.5 s to 11.5 s)"."""
        if self.low is None:
            return text(None)
        return "%s (%s to %s)" % (text(self.median), text(self.low), text(self.high))


class ComparisonRow(NamedTuple):
    """A scheme of a comparison at one setting, over the seeds that measure.

    A job that misses the target has an infinite time.
    """

    scheme: str
    title: str
    kinds: List[str]  # [BEST], [COMMON] or both
    setting: Setting
    jobs: List[ComparisonRecord]
    reached: int  # the number of jobs that reached the target
    y: Quartiles  # of the jobs' mean Y
    target_s: Quartiles
    accuracy: Quartiles
    samples_per_s: Quartiles
    part: Quartiles  # samples_per_s as a part of the absolute limit
    waited: Quartiles
    # BSP's time divided by the scheme's time with the same seed, at settings of the same kind.
    speedup: Quartiles

    @property
    def label(self) -> str:
        """The name of the row in plots."""
        return "%s, lr %g, momentum %g" % ((self.title,) + self.setting)


def rows(spec: Comparison, records: Records) -> List[ComparisonRow]:
    """Return a row for each scheme at its best setting, then for each at the common setting.

    The result is [] while the settings are chosen, see `stages`.
    """
    chosen = stages.choose(spec, records)
    if chosen is None:
        return []
    found: List[ComparisonRow] = []
    for kind in (BEST, COMMON):
        for scheme in spec.knobs.schemes:
            setting = chosen.best.get(scheme) if kind == BEST else chosen.common
            if setting is None or scheme not in chosen.best:
                continue
            if kind == COMMON and setting == chosen.best[scheme]:
                same = next(row for row in found if row.scheme == scheme)
                same.kinds.append(COMMON)
                continue
            found.append(_row(spec, records, scheme, setting, kind))
    return [row._replace(speedup=_speedup(row, found)) for row in found]


# The figures of a row with quartiles, in schemes.csv.
FIGURES = ("target_s", "speedup", "samples_per_s", "part", "accuracy", "waited", "y")


def as_csv(found: Sequence[ComparisonRow]) -> str:
    """Return the rows as CSV text with a header line: each figure with its median and quartiles.

    A time to the target of jobs that miss the target is "never". Another unknown figure is "".
    """
    output = io.StringIO()
    writer = csv.writer(output, lineterminator="\n")
    ends = ["%s_%s" % (name, end) for name in FIGURES for end in Quartiles._fields]
    writer.writerow(["scheme", "lr", "momentum", "setting", "seeds", "reached", *ends])
    for row in found:
        unknown = {"target_s": "never"} if row.jobs else {}
        cells = [
            unknown.get(name, "") if value is None else value
            for name in FIGURES
            for value in getattr(row, name)
        ]
        kinds = " and ".join(row.kinds)
        writer.writerow([row.scheme, *row.setting, kinds, len(row.jobs), row.reached, *cells])
    return output.getvalue()


def absolute_limit(spec: Comparison, records: Records) -> Optional[float]:
    """Return the sum of the speeds of all workers alone in samples/s, None if unknown."""
    found = [records.get(job.name) for job in comparison.solo_jobs(spec)]
    return limit.absolute(one.samples_per_s if one and one.state == OK else None for one in found)


def failed_schemes(spec: Comparison, records: Records) -> List[str]:
    """Return the titles of the schemes whose jobs that choose a setting all failed.

    Such a scheme has no best setting, and no row. [] while the settings are chosen.
    """
    chosen = stages.choose(spec, records)
    if chosen is None:
        return []
    names = [name for name in spec.knobs.schemes if name not in chosen.best]
    return [sweep_schemes.of(name).title for name in names]


def findings(spec: Comparison, records: Records) -> List[str]:
    """Return sentences that compare the schemes of mxcluster with rival schemes.

    The rivals are the best of BSP, ASP and SSP, and the fastest group alone. A sentence compares
    the median times to the target over the seeds, at each scheme's best setting. Another sentence
    has the speeds as parts of the absolute limit. The result is [] while the settings are chosen.
    """
    best = {row.scheme: row for row in rows(spec, records) if BEST in row.kinds}
    timed = [
        (best[name].target_s.median or math.inf, name)
        for name in sweep_schemes.USUAL
        if name in best and best[name].target_s.median is not None
    ]
    rivals = [best[min(timed)[1]]] if timed else []
    rivals += [best[sweep_schemes.FASTEST]] if sweep_schemes.FASTEST in best else []
    found = [
        _against(best[scheme], rival, spec.knobs.target)
        for scheme in sweep_schemes.OWN
        if scheme in best
        for rival in rivals
    ]
    return list(dict.fromkeys(found + _parts(list(best.values()), absolute_limit(spec, records))))


def remarks(spec: Comparison, records: Records) -> List[str]:
    """Return sentences about figures that are less certain than the method wants, [] without one.

    They name best settings at the edge of the tried rates, and coarse times to the target.
    """
    return _edges(spec, records) + _coarse(spec, records)


def _edges(spec: Comparison, records: Records) -> List[str]:
    names = [
        "%s with momentum %g at %g"
        % (sweep_schemes.of(scheme).title, momentum, stages.best_of(line.scores).lr)
        for scheme in spec.knobs.schemes
        for momentum, line in zip(spec.knobs.momenta, stages.lines(spec, records, scheme))
        if line.at_edge and line.scores
    ]
    if not names:
        return []
    return [
        "the best rate is the first or the last one that was tried, and the list has grown by "
        "lr_growth=%d rates: %s. A better rate may lie outside: begin a new sweep with other "
        "lr_factors, or a larger lr_growth" % (spec.knobs.lr_growth, listed(names))
    ]


def _coarse(spec: Comparison, records: Records) -> List[str]:
    found = [
        (job.resolution or 0.0, job.id)
        for row in rows(spec, records)
        for job in row.jobs
        if job.target_s is not None and (job.resolution or 0.0) > readings.FINE
    ]
    if not found:
        return []
    worst, name = max(found)
    return [
        "the times to the target of %s are coarser than %s: up to %s, of %s. Begin a "
        "new sweep with more evaluations, or with a smaller batch_size if a job has fewer steps"
        % (several(len(found), "job"), percent(readings.FINE), percent(worst, 1), name)
    ]


def _parts(best: Sequence[ComparisonRow], whole: Optional[float]) -> List[str]:
    """Return the sentence with the speeds of the rows `best` as parts of the limit `whole`."""
    parts = ["%s %s" % (row.title, row.part.shown(ratio)) for row in best if row.part.median]
    if whole is None or not parts:
        return []
    return [
        "Parts of the absolute limit, %s samples/s, the sum of the workers' speeds alone: %s."
        % (figure(whole), "; ".join(parts))
    ]


def _against(row: ComparisonRow, rival: ComparisonRow, accuracy: float) -> str:
    """Return the sentence that compares the times of `row` and `rival` to the target `accuracy`."""
    own, other, target = row.target_s, rival.target_s, percent(accuracy)
    is_best = rival.scheme != sweep_schemes.FASTEST
    name = rival.title + (", the best of BSP, ASP and SSP" if is_best else "")
    if own.median is None:
        return "%s loses: at least half of the seeds do not reach %s." % (row.title, target)
    if other.median is None:
        return "%s reaches %s in %s, and %s does not." % (
            row.title,
            target,
            own.shown(seconds),
            name,
        )
    gain = other.median / own.median
    fast, slow = (own, other) if gain >= 1 else (other, own)
    text = "%s %s against %s: it reaches %s in %s, %.2f times as fast as the rival with %s." % (
        row.title,
        "wins" if gain >= 1 else "loses",
        name,
        target,
        own.shown(seconds),
        gain,
        other.shown(seconds),
    )
    if fast.high is None or slow.low is not None and slow.low <= fast.high:
        text += " The quartiles of the seeds overlap."
    return text


def _row(
    spec: Comparison, records: Records, scheme: str, setting: Setting, kind: str
) -> ComparisonRow:
    names = [
        comparison.job(spec, scheme, setting, seed).name
        for seed in comparison.measuring_seeds(spec)
    ]
    found = [records[name] for name in names if name in records]
    # Count diverged jobs. Leave out failed jobs, because a failure has causes outside the scheme.
    jobs = [one for one in found if isinstance(one, ComparisonRecord) and one.state != FAILED]
    whole = absolute_limit(spec, records)
    return ComparisonRow(
        scheme=scheme,
        title=sweep_schemes.of(scheme).title,
        kinds=[kind],
        setting=setting,
        jobs=jobs,
        reached=sum(job.target_s is not None for job in jobs),
        y=_known(jobs, mean_y),
        target_s=quartiles([_time(job) for job in jobs]),
        accuracy=_known(jobs, lambda job: job.accuracy),
        samples_per_s=_known(jobs, lambda job: job.samples_per_s),
        part=_known(jobs, lambda job: limit.part(job.samples_per_s, whole)),
        waited=_known(jobs, lambda job: job.waited),
        speedup=quartiles([]),
    )


def mean_y(job: ComparisonRecord) -> Optional[float]:
    """Return the mean of the groups' mean Y, None for a scheme without Y."""
    found = [one.mean for one in job.y.values()]
    return sum(found) / len(found) if found else None


def _time(job: ComparisonRecord) -> float:
    return math.inf if job.target_s is None else job.target_s


def _known(
    jobs: Sequence[ComparisonRecord], of: Callable[[ComparisonRecord], Optional[float]]
) -> Quartiles:
    values = [of(job) for job in jobs]
    return quartiles([value for value in values if value is not None])


def quartiles(values: Sequence[float]) -> Quartiles:
    """Return the quartiles of `values`, which may be infinite; all None without a value."""
    found = [quantile(values, part) if values else math.inf for part in (0.25, 0.5, 0.75)]
    return Quartiles(*(None if math.isinf(value) else value for value in found))


def _speedup(row: ComparisonRow, found: Sequence[ComparisonRow]) -> Quartiles:
    """Return the quartiles of BSP's time divided by the row's time, over the common seeds.

    A seed with which both miss the target has no ratio.
    """
    base = next(
        (other for other in found if other.scheme == "bsp" and set(other.kinds) & set(row.kinds)),
        None,
    )
    times: Dict[int, float] = {job.about.seed: _time(job) for job in base.jobs} if base else {}
    pairs = [(times[job.about.seed], _time(job)) for job in row.jobs if job.about.seed in times]
    return quartiles([base_s / own for base_s, own in pairs if own and min(base_s, own) < math.inf])


def seconds(value: Optional[float]) -> str:
    """Return a time in seconds as text, such as "12.3 s"; "never" for None."""
    return "never" if value is None else "%.1f s" % value if value < 60 else clock(value)


def percent(value: Optional[float], decimals: int = 0) -> str:
    """Return a share from 0 to 1 as text in percent, such as "95 %"; "-" for None."""
    return "-" if value is None else "%.*f %%" % (decimals, 100 * value)


def ratio(value: Optional[float]) -> str:
    """Return a ratio as text, such as "0.96"; "-" for None."""
    return "-" if value is None else "%.2f" % value
