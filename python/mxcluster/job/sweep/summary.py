"""Convert the records of a sweep to rows for the terminal, the report and the plots.

All functions are pure.
"""

from typing import Any, Dict, List, Mapping, Optional, Sequence

from mxcluster.job.sweep import results, schemes_table, specs, stages
from mxcluster.job.sweep.knob_table import BENCHMARK
from mxcluster.job.verdict_text import clock, figure, printable
from mxcluster.lists import several

Json = Dict[str, Any]
Records = Mapping[str, Json]

BEST, COMMON = "best", "common"
MOST_EFFICIENT = 1.1  # an efficiency above 1 by chance


def benchmark_rows(spec: Json, records: Records) -> List[Json]:
    """Return the records of a benchmark's jobs, with the new entries "efficiency" and "against".

    "efficiency" is samples_per_s per worker, divided by samples_per_s per worker of the base job.
    The base job has the fewest workers of all successful jobs with the same network, scheme, GPUs
    and batch size. Strong scaling compares the batch size of all workers together.
    "against" is the number of workers of the base job. Unsuccessful jobs have None in both entries.
    """
    found = [records[job.name] for job in stages.known_jobs(spec, records) if job.name in records]
    return [_with_efficiency(one, found) for one in found]


def comparison_rows(spec: Json, records: Records) -> List[Json]:
    """Return a row for each scheme at its best rate, then for each scheme at the common rate.

    The result is [] during the first stage, see `stages`. A row is a dict with these entries:

    - "scheme", "title", "lr", "jobs" (the records), "kinds" ([BEST], [COMMON] or both);
    - "reached", the number of jobs that reached the target;
    - "y", the mean Y or None;
    - "target_s", "accuracy", "samples_per_s" and "waited", each {"low", "median", "high"}, the
      quartiles over the seeds. A job that misses the target has an infinite time. An infinite
      quartile is None;
    - "speedup", the median time of BSP divided by the median time of the scheme, at rates of the
      same kind, or None.
    """
    chosen = stages.choose(spec, records)
    if chosen is None:
        return []
    rows = []  # type: List[Json]
    for kind in (BEST, COMMON):
        for scheme in spec["knobs"]["schemes"]:
            lr = chosen.best.get(scheme) if kind == BEST else chosen.common
            if lr is None or scheme not in chosen.best:
                continue
            if kind == COMMON and lr == chosen.best[scheme]:
                same = next(row for row in rows if row["scheme"] == scheme)
                same["kinds"].append(COMMON)
                continue
            rows.append(_row(spec, records, scheme, lr, kind))
    for row in rows:
        row["speedup"] = _speedup(row, rows)
    return rows


def failed_schemes(spec: Json, records: Records) -> List[str]:
    """Return the titles of the schemes whose jobs with the first seed all failed.

    Such a scheme has no best rate, and no row of `comparison_rows`. [] while the first stage runs.
    """
    chosen = stages.choose(spec, records)
    if chosen is None:
        return []
    names = [name for name in spec["knobs"]["schemes"] if name not in chosen.best]
    return [schemes_table.of(name).title for name in names]


def findings(spec: Json, records: Records) -> List[str]:
    """Return sentences that compare GSP and load-balanced BSP with rival schemes.

    The rivals are the best of BSP, ASP and SSP, and the fastest group alone. A sentence compares
    the median times to the target over the seeds, at each scheme's best rate. The result is []
    during the first stage, see `stages`.
    """
    best = {row["scheme"]: row for row in comparison_rows(spec, records) if BEST in row["kinds"]}
    usual = [best[name] for name in ("bsp", "asp", "ssp") if name in best]
    usual = [row for row in usual if row["target_s"]["median"] is not None]
    rivals = [min(usual, key=lambda row: float(row["target_s"]["median"]))] if usual else []
    rivals += [best[schemes_table.FASTEST]] if schemes_table.FASTEST in best else []
    found = []
    for scheme in (schemes_table.GROUPED, schemes_table.BALANCED):
        if scheme in best:
            found += [_against(best[scheme], rival, rival in usual, spec) for rival in rivals]
    return list(dict.fromkeys(found))


def late(spec: Json, records: Records) -> List[str]:
    """Return a sentence that names the jobs with late steps, [] without such a job.

    `results.lateness` defines late steps.
    """
    names = [one["id"] for one in records.values() if one.get("late")]
    if not names:
        return []
    return [
        "these jobs had late steps: %s; run them again with -e sweep=%s -e again=late on a quieter "
        "machine" % (", ".join(names), spec["sweep"])
    ]


def too_efficient(spec: Json, records: Records) -> List[str]:
    """Return a sentence that names the jobs of a benchmark with an efficiency above MOST_EFFICIENT.

    The result is [] without such a job, and for a comparison.
    """
    if spec["playbook"] != BENCHMARK:
        return []
    rows = [
        row
        for row in benchmark_rows(spec, records)
        if row["efficiency"] is not None and row["efficiency"] > MOST_EFFICIENT
    ]
    if not rows:
        return []
    return [
        "an efficiency far above 100 %% (%s) is no gain: the job with %s, which it is measured "
        "against, was slowed down, by other programs or by a first start. Run it again with a "
        "larger `measured` on quiet nodes"
        % (
            ", ".join(row["job"] for row in rows),
            several(min(row["against"] for row in rows), "worker"),
        )
    ]


def _against(row: Json, rival: Json, is_best: bool, spec: Json) -> str:
    """Return the sentence that compares the times to the target of `row` and `rival`.

    Args: `is_best` True if the rival is the best of BSP, ASP and SSP.
    """
    own, other = row["target_s"], rival["target_s"]
    name = rival["title"] + (", the best of BSP, ASP and SSP" if is_best else "")
    target = percent(spec["knobs"]["target"])
    if own["median"] is None:
        return "%s loses: at least half of the seeds do not reach %s." % (row["title"], target)
    if other["median"] is None:
        return "%s reaches %s in %s, and %s does not." % (
            row["title"],
            target,
            seconds(own["median"]),
            name,
        )
    ratio = other["median"] / own["median"]
    fast, slow = (own, other) if ratio >= 1 else (other, own)
    text = "%s %s against %s: it reaches %s in %s, %.2f times as fast as the rival." % (
        row["title"],
        "wins" if ratio >= 1 else "loses",
        name,
        target,
        seconds(own["median"]),
        ratio,
    )
    if fast["high"] is None or slow["low"] is not None and slow["low"] <= fast["high"]:
        text += " The quartiles of the seeds overlap."
    return text


def common_lr(spec: Json, records: Records) -> Optional[float]:
    """Return the common learning rate of a comparison, or None if unknown."""
    chosen = stages.choose(spec, records)
    return chosen.common if chosen else None


def text(spec: Json, records: Records, path: str) -> List[str]:
    """Return the lines that the playbook shows at the end of a sweep.

    Args: `path` the folder of the sweep.
    """
    records = {
        job.name: records[job.name]
        for job in stages.known_jobs(spec, records)
        if job.name in records
    }
    states = [one["state"] for one in records.values()]
    failed = states.count(results.FAILED)
    head = "%s sweep %s: %d jobs" % (
        "FAILED   " if failed else "OK       ",
        spec["sweep"],
        len(states),
    )
    for state in (results.FAILED, results.DIVERGED):
        if state in states:
            head += ", %d %s" % (states.count(state), state)
    if spec["playbook"] == BENCHMARK:
        table = benchmark_table(benchmark_rows(spec, records))
    else:
        table = comparison_table(
            comparison_rows(spec, records),
            spec["knobs"]["target"],
            failed_schemes(spec, records),
        )
    lines = [head] + aligned(table)
    if spec["playbook"] != BENCHMARK:
        lines += ["found     %s" % line for line in findings(spec, records)]
    lines += [
        "failed    %s: %s" % (one["id"], one["why"])
        for one in records.values()
        if one["state"] == results.FAILED
    ]
    if failed:
        lines.append("again     -e sweep=%s -e again=failed" % spec["sweep"])
    lines += ["late      %s" % line for line in late(spec, records)]
    lines += ["note      %s" % line for line in too_efficient(spec, records)]
    lines += ["note      %s" % note for note in spec["notes"]]
    return [printable(line) for line in lines + ["report    %s/report.html" % path]]


def benchmark_table(rows: Sequence[Json]) -> List[List[str]]:
    """Return the table of a benchmark as rows of strings; row 0 has the column titles."""
    table = [
        ["job", "network", "kv", "batch", "GPUs", "scaling", "workers"]
        + ["samples/s", "efficiency", "ms/batch", "p10", "p90"]
    ]
    for row in rows:
        about = row["about"]
        cells = [row["job"], about["network"], about["kv"], str(about["batch_size"])]
        cells += ["auto" if about["gpus"] is None else str(about["gpus"])]
        cells += [about["scaling"], str(about["workers"])]
        if row["state"] == results.OK:
            cells += [figure(row["samples_per_s"]), percent(row["efficiency"])]
            cells += ["%.4g" % (1000 * row[name]) for name in ("median_s", "p10_s", "p90_s")]
        else:
            cells += [row["state"], "", "", "", ""]
        table.append(cells)
    return table


def comparison_table(
    rows: Sequence[Json], target: float, failed: Sequence[str] = ()
) -> List[List[str]]:
    """Return the table of a comparison as rows of strings; row 0 has the column titles.

    Args: `rows` from `comparison_rows`; `target` the accuracy; `failed` from `failed_schemes`.
    """
    table = [
        ["scheme", "lr", "rate", "to %g %%" % (100 * target), "quartiles", "reached"]
        + ["speed-up", "samples/s", "accuracy", "quartiles", "waited", "Y"]
    ]
    for row in rows:
        if not row["jobs"]:
            cells = [row["title"], "%g" % row["lr"], " and ".join(row["kinds"]), "all failed"]
            table.append(cells + [""] * (len(table[0]) - len(cells)))
            continue
        time, accuracy = row["target_s"], row["accuracy"]
        table.append(
            [
                row["title"],
                "%g" % row["lr"],
                " and ".join(row["kinds"]),
                seconds(time["median"]),
                "never"
                if time["low"] is None
                else "%s to %s" % (seconds(time["low"]), seconds(time["high"])),
                "%d of %d" % (row["reached"], len(row["jobs"])),
                "%.2f" % row["speedup"] if row["speedup"] is not None else "-",
                figure(row["samples_per_s"]["median"])
                if row["samples_per_s"]["median"] is not None
                else "-",
                percent(accuracy["median"], 2),
                "%s to %s" % (percent(accuracy["low"], 2), percent(accuracy["high"], 2)),
                percent(row["waited"]["median"]),
                "%.2f" % row["y"] if row["y"] is not None else "-",
            ]
        )
    for title in failed:
        table.append([title, "", "", "all failed"] + [""] * (len(table[0]) - 4))
    return table


def aligned(table: Sequence[Sequence[str]]) -> List[str]:
    """Return the rows of a table as lines with aligned columns."""
    if not table:
        return []
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in table
    ]


def seconds(value: Optional[float]) -> str:
    """Return a time in seconds as text, such as "12.3 s"; "never" for None."""
    return "never" if value is None else "%.1f s" % value if value < 60 else clock(value)


def percent(value: Optional[float], decimals: int = 0) -> str:
    """Return a share from 0 to 1 as text in percent, such as "95 %"; "-" for None."""
    return "-" if value is None else "%.*f %%" % (decimals, 100 * value)


def _with_efficiency(one: Json, found: Sequence[Json]) -> Json:
    row = dict(one, efficiency=None, against=None)
    if one["state"] != results.OK:
        return row
    base = min(
        (other for other in found if _is_base(one["about"], other)),
        key=lambda other: (
            other["about"]["workers"],
            other["about"]["scaling"] != one["about"]["scaling"],
        ),
    )
    before, now = base["about"]["workers"], one["about"]["workers"]
    row["efficiency"] = (one["samples_per_s"] / now) / (base["samples_per_s"] / before)
    row["against"] = before
    return row


def _is_base(about: Json, other: Json) -> bool:
    """Return True if the job of the record `other` can be the base job for `about`.

    A base job is successful, and has the same network, scheme, GPUs and batch size.

    Args: `about` the field "about" in the record of a job.
    """
    if other["state"] != results.OK:
        return False
    theirs = other["about"]
    if any(about[name] != theirs[name] for name in ("network", "kv", "gpus")):
        return False
    if about["scaling"] == "strong":
        return bool(
            about["batch_size"] * about["workers"] == theirs["batch_size"] * theirs["workers"]
        )
    return bool(about["batch_size"] == theirs["batch_size"])


def _row(spec: Json, records: Records, scheme: str, lr: float, kind: str) -> Json:
    rate = next(one for one in spec["rates"] if one["lr"] == lr)
    names = [specs.comparison_job(spec, scheme, rate, seed).name for seed in specs.seeds_of(spec)]
    # Count diverged jobs. Leave out failed jobs, because a failure has causes outside the scheme.
    jobs = [
        records[name]
        for name in names
        if name in records and records[name]["state"] != results.FAILED
    ]
    ys = [one["mean"] for job in jobs for one in (job.get("y") or {}).values()]
    row = {
        "scheme": scheme,
        "title": schemes_table.of(scheme).title,
        "kinds": [kind],
        "lr": lr,
        "jobs": jobs,
        "reached": sum(job["target_s"] is not None for job in jobs),
        "y": sum(ys) / len(ys) if ys else None,
    }
    for name in ("target_s", "accuracy", "samples_per_s", "waited"):
        values = [job.get(name) for job in jobs]
        if name != "target_s":
            values = [value for value in values if value is not None]
        row[name] = {
            word: results.quantile(values, part)
            for word, part in (("low", 0.25), ("median", 0.5), ("high", 0.75))
        }
    return row


def _speedup(row: Json, rows: Sequence[Json]) -> Optional[float]:
    base = next(
        (
            other
            for other in rows
            if other["scheme"] == "bsp" and set(other["kinds"]) & set(row["kinds"])
        ),
        None,
    )
    if not base or not base["target_s"]["median"] or not row["target_s"]["median"]:
        return None
    return float(base["target_s"]["median"] / row["target_s"]["median"])
