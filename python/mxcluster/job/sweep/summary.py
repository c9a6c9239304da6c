"""Convert the records of a sweep to rows for the terminal, the report and the plots.

All functions are pure.
"""

import math
from typing import Callable, List, NamedTuple, Optional, Sequence, Tuple

from mxcluster.job.sweep import specs, stages
from mxcluster.job.sweep.stages import Records
from mxcluster.job.verdict_text import clock, figure, printable
from mxcluster.lists import aligned, quantile, several
from mxcluster.model import sweep_schemes
from mxcluster.model.sweep import (
    DIVERGED,
    FAILED,
    OK,
    Benchmark,
    BenchmarkAbout,
    BenchmarkRecord,
    Comparison,
    ComparisonRecord,
    Specification,
)

BEST, COMMON = "best", "common"
MOST_EFFICIENT = 1.1  # an efficiency above 1 by chance


class BenchmarkRow(NamedTuple):
    """One job of a benchmark in tables and plots."""

    record: BenchmarkRecord
    # samples_per_s per worker, divided by samples_per_s per worker of the base job. The base job
    # has the fewest workers of all successful jobs with the same network, scheme, GPUs and batch
    # size. Strong scaling compares the batch size of all workers together.
    efficiency: Optional[float] = None
    against: int = 0  # the number of workers of the base job

    @property
    def about(self) -> BenchmarkAbout:
        """The values of the job."""
        return self.record.about

    @property
    def times(self) -> Tuple[float, float, float]:
        """The median, p10 and p90 of a batch in milliseconds, 0 of a failed job."""
        one = self.record
        median, low, high = (1000 * (time or 0.0) for time in (one.median_s, one.p10_s, one.p90_s))
        return median, low, high


class Quartiles(NamedTuple):
    """The quartiles of a figure over the seeds; None for an infinite or unknown figure."""

    low: Optional[float]
    median: Optional[float]
    high: Optional[float]


class ComparisonRow(NamedTuple):
    """A scheme of a comparison at one learning rate.

    A job that misses the target has an infinite time.
    """

    scheme: str
    title: str
    kinds: List[str]  # [BEST], [COMMON] or both
    lr: float
    jobs: List[ComparisonRecord]
    reached: int  # the number of jobs that reached the target
    y: Optional[float]  # the mean Y
    target_s: Quartiles
    accuracy: Quartiles
    samples_per_s: Quartiles
    waited: Quartiles
    # The median time of BSP divided by the median time of the scheme, at rates of the same kind.
    speedup: Optional[float]


def benchmark_rows(spec: Benchmark, records: Records) -> List[BenchmarkRow]:
    """Return a row for each job of a benchmark with a record."""
    found = stages.known_records(spec, records)
    benchmarks = [one for one in found if isinstance(one, BenchmarkRecord)]
    return [_benchmark_row(one, benchmarks) for one in benchmarks]


def comparison_rows(spec: Comparison, records: Records) -> List[ComparisonRow]:
    """Return a row for each scheme at its best rate, then for each scheme at the common rate.

    The result is [] during the first stage, see `stages`.
    """
    chosen = stages.choose(spec, records)
    if chosen is None:
        return []
    rows = []  # type: List[ComparisonRow]
    for kind in (BEST, COMMON):
        for scheme in spec.knobs.schemes:
            lr = chosen.best.get(scheme) if kind == BEST else chosen.common
            if lr is None or scheme not in chosen.best:
                continue
            if kind == COMMON and lr == chosen.best[scheme]:
                same = next(row for row in rows if row.scheme == scheme)
                same.kinds.append(COMMON)
                continue
            rows.append(_comparison_row(spec, records, scheme, lr, kind))
    return [row._replace(speedup=_speedup(row, rows)) for row in rows]


def failed_schemes(spec: Comparison, records: Records) -> List[str]:
    """Return the titles of the schemes whose jobs with the first seed all failed.

    Such a scheme has no best rate, and no row of `comparison_rows`. [] while the first stage runs.
    """
    chosen = stages.choose(spec, records)
    if chosen is None:
        return []
    names = [name for name in spec.knobs.schemes if name not in chosen.best]
    return [sweep_schemes.of(name).title for name in names]


def findings(spec: Comparison, records: Records) -> List[str]:
    """Return sentences that compare GSP, load-balanced BSP and BSP with a deadline with rivals.

    The rivals are the best of BSP, ASP and SSP, and the fastest group alone. A sentence compares
    the median times to the target over the seeds, at each scheme's best rate. The result is []
    during the first stage, see `stages`.
    """
    best = {row.scheme: row for row in comparison_rows(spec, records) if BEST in row.kinds}
    usual = [(best[name].target_s.median, name) for name in ("bsp", "asp", "ssp") if name in best]
    timed = [(median, name) for median, name in usual if median is not None]
    rivals = [best[min(timed, key=lambda pair: pair[0])[1]]] if timed else []
    rivals += [best[sweep_schemes.FASTEST]] if sweep_schemes.FASTEST in best else []
    found = []
    for scheme in (sweep_schemes.GROUPED, sweep_schemes.BALANCED, sweep_schemes.BY_DEADLINE):
        if scheme in best:
            found += [_against(best[scheme], rival, spec.knobs.target) for rival in rivals]
    return list(dict.fromkeys(found))


def late(spec: Specification, records: Records) -> List[str]:
    """Return a sentence that names the jobs with late steps, [] without such a job.

    `results.lateness` defines late steps.
    """
    names = [one.id for one in records.values() if one.late]
    if not names:
        return []
    return [
        "these jobs had late steps: %s; run them again with -e sweep=%s -e again=late on a quieter "
        "machine" % (", ".join(names), spec.sweep)
    ]


def too_efficient(spec: Specification, records: Records) -> List[str]:
    """Return a sentence that names the jobs of a benchmark with an efficiency above MOST_EFFICIENT.

    The result is [] without such a job, and for a comparison.
    """
    if not isinstance(spec, Benchmark):
        return []
    rows = [row for row in benchmark_rows(spec, records) if (row.efficiency or 0) > MOST_EFFICIENT]
    if not rows:
        return []
    return [
        "an efficiency far above 100 %% (%s) is no gain: the job with %s, which it is measured "
        "against, was slowed down, by other programs or by a first start. Run it again with a "
        "larger `measured` on quiet nodes"
        % (
            ", ".join(row.record.job for row in rows),
            several(min(row.against for row in rows), "worker"),
        )
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
            seconds(own.median),
            name,
        )
    ratio = other.median / own.median
    fast, slow = (own, other) if ratio >= 1 else (other, own)
    text = "%s %s against %s: it reaches %s in %s, %.2f times as fast as the rival." % (
        row.title,
        "wins" if ratio >= 1 else "loses",
        name,
        target,
        seconds(own.median),
        ratio,
    )
    if fast.high is None or slow.low is not None and slow.low <= fast.high:
        text += " The quartiles of the seeds overlap."
    return text


def text(spec: Specification, records: Records, path: str) -> List[str]:
    """Return the lines that the playbook shows at the end of a sweep.

    Args: `path` the folder of the sweep.
    """
    records = {one.job: one for one in stages.known_records(spec, records)}
    states = [one.state for one in records.values()]
    failed = states.count(FAILED)
    head = "%s sweep %s: %d jobs" % (
        "FAILED   " if failed else "OK       ",
        spec.sweep,
        len(states),
    )
    for state in (FAILED, DIVERGED):
        if state in states:
            head += ", %d %s" % (states.count(state), state)
    lines = [head]
    if isinstance(spec, Benchmark):
        lines += aligned(benchmark_table(benchmark_rows(spec, records)))
    elif isinstance(spec, Comparison):
        rows, losers = comparison_rows(spec, records), failed_schemes(spec, records)
        lines += aligned(comparison_table(rows, spec.knobs.target, losers))
        lines += ["found     %s" % line for line in findings(spec, records)]
    lines += [
        "failed    %s: %s" % (one.id, one.why) for one in records.values() if one.state == FAILED
    ]
    if failed:
        lines.append("again     -e sweep=%s -e again=failed" % spec.sweep)
    lines += ["late      %s" % line for line in late(spec, records)]
    lines += ["note      %s" % line for line in too_efficient(spec, records)]
    lines += ["note      %s" % note for note in spec.notes]
    return [printable(line) for line in lines + ["report    %s/report.html" % path]]


def benchmark_table(rows: Sequence[BenchmarkRow]) -> List[List[str]]:
    """Return the table of a benchmark as rows of strings; row 0 has the column titles."""
    table = [
        ["job", "network", "kv", "batch", "GPUs", "scaling", "workers"]
        + ["samples/s", "efficiency", "ms/batch", "p10", "p90"]
    ]
    for row in rows:
        about = row.about
        cells = [row.record.job, about.network, about.kv, str(about.batch_size)]
        cells += ["auto" if about.gpus is None else str(about.gpus)]
        cells += [about.scaling, str(about.workers)]
        if row.record.state == OK:
            cells += [figure(row.record.samples_per_s or 0.0), percent(row.efficiency)]
            cells += ["%.4g" % time for time in row.times]
        else:
            cells += [row.record.state, "", "", "", ""]
        table.append(cells)
    return table


def comparison_table(
    rows: Sequence[ComparisonRow], target: float, failed: Sequence[str] = ()
) -> List[List[str]]:
    """Return the table of a comparison as rows of strings; row 0 has the column titles.

    Args: `rows` from `comparison_rows`; `target` the accuracy; `failed` from `failed_schemes`.
    """
    table = [
        ["scheme", "lr", "rate", "to %g %%" % (100 * target), "quartiles", "reached"]
        + ["speed-up", "samples/s", "accuracy", "quartiles", "waited", "Y"]
    ]
    for row in rows:
        cells = [row.title, "%g" % row.lr, " and ".join(row.kinds)]
        if not row.jobs:
            cells.append("all failed")
            table.append(cells + [""] * (len(table[0]) - len(cells)))
            continue
        time, accuracy, speed = row.target_s, row.accuracy, row.samples_per_s.median
        table.append(
            cells
            + [
                seconds(time.median),
                "never"
                if time.low is None
                else "%s to %s" % (seconds(time.low), seconds(time.high)),
                "%d of %d" % (row.reached, len(row.jobs)),
                "-" if row.speedup is None else "%.2f" % row.speedup,
                "-" if speed is None else figure(speed),
                percent(accuracy.median, 2),
                "%s to %s" % (percent(accuracy.low, 2), percent(accuracy.high, 2)),
                percent(row.waited.median),
                "-" if row.y is None else "%.2f" % row.y,
            ]
        )
    for title in failed:
        table.append([title, "", "", "all failed"] + [""] * (len(table[0]) - 4))
    return table


def seconds(value: Optional[float]) -> str:
    """Return a time in seconds as text, such as "12.3 s"; "never" for None."""
    return "never" if value is None else "%.1f s" % value if value < 60 else clock(value)


def percent(value: Optional[float], decimals: int = 0) -> str:
    """Return a share from 0 to 1 as text in percent, such as "95 %"; "-" for None."""
    return "-" if value is None else "%.*f %%" % (decimals, 100 * value)


def _benchmark_row(one: BenchmarkRecord, found: Sequence[BenchmarkRecord]) -> BenchmarkRow:
    """Return the row of the record `one`. The base job is among the records `found`."""
    if one.state != OK:
        return BenchmarkRow(one)
    base = min(
        (other for other in found if _is_base(one.about, other)),
        key=lambda other: (other.about.workers, other.about.scaling != one.about.scaling),
    )
    own, before = _worker_speed(one), _worker_speed(base)
    return BenchmarkRow(one, own / before if before else None, base.about.workers)


def _worker_speed(one: BenchmarkRecord) -> float:
    return (one.samples_per_s or 0.0) / one.about.workers


def _is_base(about: BenchmarkAbout, other: BenchmarkRecord) -> bool:
    """Return True if the job of the record `other` can be the base job for the job of `about`.

    A base job is successful, and has the same network, scheme, GPUs and batch size.
    """
    base = other.about
    if other.state != OK or (about.network, about.kv, about.gpus) != (
        base.network,
        base.kv,
        base.gpus,
    ):
        return False
    if about.scaling == "strong":
        return about.batch_size * about.workers == base.batch_size * base.workers
    return about.batch_size == base.batch_size


def _comparison_row(
    spec: Comparison, records: Records, scheme: str, lr: float, kind: str
) -> ComparisonRow:
    names = [specs.comparison_job(spec, scheme, lr, seed).name for seed in specs.seeds_of(spec)]
    found = [records[name] for name in names if name in records]
    # Count diverged jobs. Leave out failed jobs, because a failure has causes outside the scheme.
    jobs = [one for one in found if isinstance(one, ComparisonRecord) and one.state != FAILED]
    ys = [one.mean for job in jobs for one in job.y.values()]
    return ComparisonRow(
        scheme=scheme,
        title=sweep_schemes.of(scheme).title,
        kinds=[kind],
        lr=lr,
        jobs=jobs,
        reached=sum(job.target_s is not None for job in jobs),
        y=sum(ys) / len(ys) if ys else None,
        target_s=_quartiles([math.inf if job.target_s is None else job.target_s for job in jobs]),
        accuracy=_known_quartiles(jobs, lambda job: job.accuracy),
        samples_per_s=_known_quartiles(jobs, lambda job: job.samples_per_s),
        waited=_known_quartiles(jobs, lambda job: job.waited),
        speedup=None,
    )


def _known_quartiles(
    jobs: Sequence[ComparisonRecord], of: Callable[[ComparisonRecord], Optional[float]]
) -> Quartiles:
    values = [of(job) for job in jobs]
    return _quartiles([value for value in values if value is not None])


def _quartiles(values: Sequence[float]) -> Quartiles:
    found = [quantile(values, part) if values else math.inf for part in (0.25, 0.5, 0.75)]
    return Quartiles(*(None if math.isinf(value) else value for value in found))


def _speedup(row: ComparisonRow, rows: Sequence[ComparisonRow]) -> Optional[float]:
    base = next(
        (other for other in rows if other.scheme == "bsp" and set(other.kinds) & set(row.kinds)),
        None,
    )
    if not base or not base.target_s.median or not row.target_s.median:
        return None
    return base.target_s.median / row.target_s.median
