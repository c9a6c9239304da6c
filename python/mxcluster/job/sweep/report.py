"""Write report.html and plots.png of a sweep from the specification and the records."""

import os
from typing import Any, Dict, List, Mapping, Optional, Tuple

from mxcluster.file_io import replace
from mxcluster.job.report import page
from mxcluster.job.sweep import plots, results, stages, summary
from mxcluster.job.sweep.knob_table import BENCHMARK
from mxcluster.job.verdict_text import printable

Json = Dict[str, Any]
Records = Mapping[str, Json]

TEMPLATE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "page.html")
PAGE, PICTURE = "report.html", "plots.png"
ALT = {
    True: "Samples per second, efficiency and time of a batch by the number of workers",
    False: "Accuracy over time, time to the target, samples per second and Y of each scheme",
}


def write(folder: str, spec: Json, records: Records, cache_dir: Optional[str] = None) -> None:
    """Write report.html and plots.png into `folder`. Without data to plot, remove plots.png.

    Args: `folder` the folder of the sweep; `spec` the specification; `records` {name of a job:
    record}; `cache_dir` the folder of matplotlib's font list, None for a temporary folder.
    """
    is_benchmark = spec["playbook"] == BENCHMARK
    if is_benchmark:
        picture = plots.benchmark(summary.benchmark_rows(spec, records), cache_dir)
    else:
        rows = summary.comparison_rows(spec, records)
        picture = plots.comparison(rows, spec["knobs"]["target"], cache_dir)
    path = os.path.join(folder, PICTURE)
    if picture:
        replace(path, picture)
    elif os.path.exists(path):
        os.remove(path)
    replace(os.path.join(folder, PAGE), page.fill(TEMPLATE, context(spec, records, picture)))


def context(spec: Json, records: Records, picture: bytes) -> Json:
    """Return {variable: value} for the template page.html.

    Args: `spec` and `records` as for `write`; `picture` the PNG of the plots, or b"".
    """
    jobs = stages.known_jobs(spec, records)
    found = [records[job.name] for job in jobs if job.name in records]
    failed = sum(one["state"] == results.FAILED for one in found)
    return {
        **page.frame(
            spec["sweep"],
            "%d FAILED" % failed if failed else "OK" if len(found) == len(jobs) else "UNFINISHED",
            bool(failed),
            (
                spec["playbook"],
                "%d of %d jobs" % (len(found), len(jobs)),
                "begun " + page.date(spec["begun"]),
            ),
            {**spec["base"], **spec["knobs"]},
            "Knobs",
            "results.jsonl, results.csv, sweep.json",
        ),
        "notes": [printable(note) for note in spec["notes"]],
        "findings": ([] if spec["playbook"] == BENCHMARK else summary.findings(spec, records))
        + summary.late(spec, {one["job"]: one for one in found})
        + summary.too_efficient(spec, records),
        "tables": tables(spec, records),
        "picture": page.embedded(picture),
        "alt": ALT[spec["playbook"] == BENCHMARK],
        "environments": environments(found),
    }


def tables(spec: Json, records: Records) -> List[Tuple[str, str, List[List[str]]]]:
    """Return [(title, explanation, rows)] of the report's tables; row 0 has the column titles."""
    if spec["playbook"] == BENCHMARK:
        table = summary.benchmark_table(summary.benchmark_rows(spec, records))
        under = (
            "samples/s: sum of the workers, each over its measured batches. efficiency: samples/s "
            "of a worker against the job with the fewest workers. ms/batch: median; p10: 10 % "
            "quantile of the fastest worker; p90: 90 % quantile of the slowest worker."
        )
        return [("Jobs", under, table)]
    target, rows = spec["knobs"]["target"], summary.comparison_rows(spec, records)
    found, failed = [], summary.failed_schemes(spec, records)
    if rows or failed:
        under = (
            "Median and quartiles over the seeds. The jobs with the first seed decide the best "
            "rate of each scheme and the common rate. speed-up: time of BSP divided by the time of "
            "the scheme. samples/s: while all workers train. waited: the share of the training "
            "time in which workers wait for the network, the servers and other workers."
        )
        table = summary.comparison_table(rows, target, failed)
        found.append(("Schemes", under, table))
    under = "Jobs with the same seed train equal numbers of samples."
    return found + [("Jobs", under, jobs_table(spec, records))]


def jobs_table(spec: Json, records: Records) -> List[List[str]]:
    """Return the table of a comparison's jobs as rows of strings; row 0 has the column titles."""
    table = [["job", "state", "to the target", "accuracy", "samples", "samples/s", "waited"]]
    for job in stages.known_jobs(spec, records):
        one = records.get(job.name)
        if one is None:
            table.append([job.name, "to do", "", "", "", "", ""])
            continue
        speed = one.get("samples_per_s")
        table.append(
            [
                one["id"],
                one["state"],
                summary.seconds(one.get("target_s")),
                summary.percent(one.get("accuracy"), 2),
                str(one.get("samples", "")),
                "-" if speed is None else "%.4g" % speed,
                summary.percent(one.get("waited")),
            ]
        )
    return table


def environments(found: List[Json]) -> List[Tuple[str, str]]:
    """Return [(names of jobs, environment)] as strings, one pair for each different environment.

    Args: `found` the records of the jobs.
    """
    jobs = {}  # type: Dict[str, List[str]]
    for one in found:
        about = one["environment"]
        words = [
            "%s %s" % (name, ", ".join(map(str, value)) if isinstance(value, list) else value)
            for name, value in about.items()
            if value not in ([], "") and name not in ("nodes", "workers", "servers")
        ]
        jobs.setdefault(printable("; ".join(words)), []).append(one["job"])
    return [
        ("all jobs" if len(jobs) == 1 else ", ".join(names), text) for text, names in jobs.items()
    ]
