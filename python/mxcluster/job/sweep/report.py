"""Write report.html and plots.png of a sweep from the specification and the records."""

import os
from typing import Dict, Iterable, List, Optional, Tuple

from mxcluster.file_io import replace
from mxcluster.job.report import page
from mxcluster.job.report.figures import Figures
from mxcluster.job.sweep import comparison_rows, plot_figures, plots, stages, summary
from mxcluster.job.sweep.stages import Records
from mxcluster.job.verdict_text import printable
from mxcluster.model.sweep import (
    FAILED,
    Benchmark,
    Comparison,
    ComparisonRecord,
    JobRecord,
    Specification,
)

Table = List[List[str]]  # row 0 has the column titles

TEMPLATE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "page.html")
PAGE, PICTURE, SCHEMES = "report.html", "plots.png", "schemes.csv"
ALT_OF_BENCHMARK = "Samples per second, efficiency and time of a batch by the number of workers"
ALT_OF_COMPARISON = (
    "Accuracy over time, time to the target, samples per second and Y of each scheme"
)


def write(
    folder: str, spec: Specification, records: Records, cache_dir: Optional[str] = None
) -> None:
    """Write report.html, plots.png and, of a comparison, schemes.csv into `folder`.

    Without data to plot, remove plots.png.

    Args: `folder` the folder of the sweep; `cache_dir` the folder of matplotlib's font list, None
    for a temporary folder.
    """
    picture = b""
    if isinstance(spec, Benchmark):
        picture = plots.benchmark(summary.benchmark_rows(spec, records), cache_dir)
    elif isinstance(spec, Comparison):
        rows = comparison_rows.rows(spec, records)
        replace(os.path.join(folder, SCHEMES), comparison_rows.as_csv(rows))
        picture = plots.comparison(
            rows,
            spec.knobs.target,
            comparison_rows.absolute_limit(spec, records),
            cache_dir,
        )
    path = os.path.join(folder, PICTURE)
    if picture:
        replace(path, picture)
    elif os.path.exists(path):
        os.remove(path)
    replace(os.path.join(folder, PAGE), render(spec, records, bool(picture)))


def render(spec: Specification, records: Records, has_picture: bool = False) -> str:
    """Return the text of report.html.

    Args: `has_picture` whether plots.png is beside the page.
    """
    jobs = stages.known_jobs(spec, records)
    found = stages.known_records(spec, records)
    failed = sum(one.state == FAILED for one in found)
    frame = page.Frame(
        name=spec.sweep,
        badge="%d FAILED" % failed if failed else "OK" if len(found) == len(jobs) else "UNFINISHED",
        is_bad=bool(failed),
        under=page.joined(
            spec.KIND,
            "%d of %d jobs" % (len(found), len(jobs)),
            "begun " + page.date(spec.begun),
        ),
        knobs_title="Knobs",
        knobs=page.knob_rows([*spec.base.items(), *spec.knobs.encode().items()]),
        files=[
            "results.jsonl",
            "results.csv",
            *[SCHEMES] * isinstance(spec, Comparison),
            "sweep.json",
            *[PICTURE] * has_picture,
            "../index.html",
        ],
    )
    return page.fill(
        TEMPLATE,
        frame,
        notes=[printable(note) for note in [*spec.notes, *_remarks(spec, records)]],
        findings=(comparison_rows.findings(spec, records) if isinstance(spec, Comparison) else [])
        + summary.late(spec, {one.job: one for one in found})
        + summary.too_efficient(spec, records),
        tables=tables(spec, records),
        links={name: "../%s/report.html" % one.id for one in found for name in (one.job, one.id)},
        **page.of_figures(figures(spec, records)),
        alt=ALT_OF_BENCHMARK if isinstance(spec, Benchmark) else ALT_OF_COMPARISON,
        environments=environments(found),
    )


def _remarks(spec: Specification, records: Records) -> List[str]:
    return comparison_rows.remarks(spec, records) if isinstance(spec, Comparison) else []


def figures(spec: Specification, records: Records) -> Figures:
    """Return the interactive figures of a sweep, without figures for other kinds of sweeps."""
    if isinstance(spec, Benchmark):
        return plot_figures.benchmark(summary.benchmark_rows(spec, records))
    if isinstance(spec, Comparison):
        rows = comparison_rows.rows(spec, records)
        whole = comparison_rows.absolute_limit(spec, records)
        return plot_figures.comparison(rows, spec.knobs.target, whole)
    return plot_figures.NO_FIGURES


def tables(spec: Specification, records: Records) -> List[Tuple[str, str, Table]]:
    """Return [(title, explanation, table)] of the report's tables."""
    if isinstance(spec, Benchmark):
        table = summary.benchmark_table(summary.benchmark_rows(spec, records))
        under = (
            "samples/s: sum of the workers, each over its measured batches. efficiency: samples/s "
            "of a worker against the job with the fewest workers. ms/batch: median; p10: 10 % "
            "quantile of the fastest worker; p90: 90 % quantile of the slowest worker."
        )
        return [("Jobs", under, table)]
    assert isinstance(spec, Comparison)
    target, rows = spec.knobs.target, comparison_rows.rows(spec, records)
    found, failed = [], comparison_rows.failed_schemes(spec, records)
    if rows or failed:
        under = (
            "Medians with quartiles, over the seeds that measure. Other seeds have chosen the best "
            "setting of each scheme (learning rate and momentum) and the common setting. To the "
            "target: the first of two readings in a row of the servers' weights. speed-up: time of "
            "BSP divided by the time of the scheme with the same seed. samples/s: while all "
            "workers train; of the limit: as a part of the sum of the workers' speeds alone. "
            "waited: the share of the training time in which workers wait for the network, the "
            "servers and other workers."
        )
        table = summary.comparison_table(rows, target, failed)
        found.append(("Schemes", under, table))
    under = (
        "Jobs with the same seed train equal numbers of samples. resolution: the time from the "
        "reading before, as a part of the time to the target."
    )
    return found + [("Jobs", under, jobs_table(spec, records))]


def jobs_table(spec: Comparison, records: Records) -> Table:
    """Return the table of a comparison's jobs."""
    table = [
        [
            "job",
            "state",
            "to the target",
            "resolution",
            "accuracy",
            "samples",
            "samples/s",
            "waited",
        ]
    ]
    for job in stages.known_jobs(spec, records):
        one = records.get(job.name)
        if not isinstance(one, ComparisonRecord):
            table.append([job.name, "to do", *[""] * 6])
            continue
        table.append(
            [
                one.id,
                one.state,
                # A worker alone has no accuracy to reach.
                "-" if one.about.worker is not None else comparison_rows.seconds(one.target_s),
                comparison_rows.percent(one.resolution, 1),
                comparison_rows.percent(one.accuracy, 2),
                str(one.samples),
                "-" if one.samples_per_s is None else "%.4g" % one.samples_per_s,
                comparison_rows.percent(one.waited),
            ]
        )
    return table


def environments(found: Iterable[JobRecord]) -> List[Tuple[str, str]]:
    """Return [(names of jobs, environment)] as strings, one pair for each different environment.

    Args: `found` the records of the jobs.
    """
    jobs: Dict[str, List[str]] = {}
    for one in found:
        words = [
            "%s %s" % (name, ", ".join(map(str, value)) if isinstance(value, list) else value)
            for name, value in one.environment.encode().items()
            if value not in ([], "") and name not in ("nodes", "workers", "servers")
        ]
        jobs.setdefault(printable("; ".join(words)), []).append(one.job)
    return [
        ("all jobs" if len(jobs) == 1 else ", ".join(names), text) for text, names in jobs.items()
    ]
