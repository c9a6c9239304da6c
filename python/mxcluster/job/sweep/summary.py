"""Convert the records of a sweep to rows for the terminal, the report and the plots.

All functions are pure.
"""

from typing import List, NamedTuple, Optional, Sequence, Tuple

from mxcluster.job.sweep import comparison_rows, stages
from mxcluster.job.sweep.comparison_rows import (
    ComparisonRow,
    failed_schemes,
    findings,
    percent,
    ratio,
    remarks,
    seconds,
)
from mxcluster.job.sweep.stages import Records
from mxcluster.job.verdict_text import figure, printable
from mxcluster.lists import aligned, several
from mxcluster.model.sweep import (
    DIVERGED,
    FAILED,
    OK,
    Benchmark,
    BenchmarkAbout,
    BenchmarkRecord,
    Comparison,
    Specification,
)

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


def benchmark_rows(spec: Benchmark, records: Records) -> List[BenchmarkRow]:
    """Return a row for each job of a benchmark with a record."""
    found = stages.known_records(spec, records)
    benchmarks = [one for one in found if isinstance(one, BenchmarkRecord)]
    return [_benchmark_row(one, benchmarks) for one in benchmarks]


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
        rows, losers = comparison_rows.rows(spec, records), failed_schemes(spec, records)
        lines += aligned(comparison_table(rows, spec.knobs.target, losers))
        lines += ["found     %s" % line for line in findings(spec, records)]
        lines += ["note      %s" % line for line in remarks(spec, records)]
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

    Each figure is a median with its quartiles.

    Args: `rows` from `comparison_rows.rows`; `target` the accuracy; `failed` from
    `failed_schemes`.
    """
    table = [
        ["scheme", "lr", "momentum", "setting", "to %g %%" % (100 * target), "reached"]
        + ["speed-up", "samples/s", "of the limit", "accuracy", "waited", "Y"]
    ]
    for row in rows:
        cells = [row.title, "%g" % row.setting.lr, "%g" % row.setting.momentum]
        cells.append(" and ".join(row.kinds))
        if row.jobs:
            cells += [
                row.target_s.shown(seconds),
                "%d of %d" % (row.reached, len(row.jobs)),
                row.speedup.shown(ratio),
                row.samples_per_s.shown(lambda value: "-" if value is None else figure(value)),
                row.part.shown(ratio),
                row.accuracy.shown(lambda value: percent(value, 1)),
                row.waited.shown(percent),
                row.y.shown(ratio),
            ]
        else:
            cells.append("all failed")
        table.append(cells + [""] * (len(table[0]) - len(cells)))
    for title in failed:
        table.append([title, "", "", "", "all failed"] + [""] * (len(table[0]) - 5))
    return table


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
