"""Make the text of report.html, a single file that opens without a network."""

import base64
import datetime
import json
import os
from typing import Any, Dict, List, Sequence

from mxcluster.exit_codes import describe
from mxcluster.job.plan import mpi
from mxcluster.job.report import series
from mxcluster.job.report.series import Run, group_label, several_groups
from mxcluster.job.verdict import clock, figure, hints, printable, sentence
from mxcluster.lists import spans
from mxcluster.model.events import Note
from mxcluster.model.plan import WORKER, Plan, Process

Json = Dict[str, Any]

TEMPLATE, STYLES = (
    os.path.join(os.path.dirname(os.path.abspath(__file__)), name)
    for name in ("page.html", "page.css")
)


def render(data: Run, plan: Plan, verdict: Json, picture: bytes, logs: Dict[str, List[str]]) -> str:
    """Return the text of report.html.

    Args: `data` from series.collect(); `plan` and `verdict` of the job; `picture` the PNG from
    curves.draw(); `logs` {process name: [last line of the log, ...]}.
    """
    return fill(TEMPLATE, context(data, plan, verdict, picture, logs))


def fill(path: str, variables: Json) -> str:
    """Return the text of the template file `path`, filled with `variables` and the common styles.

    The template extends frame.html, so `variables` must include the result of `frame`.
    """
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(os.path.dirname(STYLES)),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    with open(path, encoding="utf-8") as stream:
        template = environment.from_string(stream.read())
    with open(STYLES, encoding="utf-8") as stream:
        return template.render(css=stream.read(), **variables) + "\n"


def frame(
    name: str, badge: str, is_bad: bool, under: Sequence[str], knobs: Json, title: str, files: str
) -> Json:
    """Return {variable: value} for the template frame.html, which all reports use.

    Args:
        name: the name of the job or the sweep.
        badge: the state of the job or the sweep.
        is_bad: True for a failure.
        under: the facts below the name. The function leaves out empty facts.
        knobs: {knob: value}.
        title: the title of the table of knobs.
        files: the files that the footer names.
    """
    return {
        "name": name,
        "badge": badge,
        "is_bad": is_bad,
        "under": " · ".join(filter(None, under)),
        "knobs_title": title,
        "knobs": [
            (name, value if isinstance(value, str) else json.dumps(value))
            for name, value in sorted(knobs.items())
            if value not in ("", None, [], {})
        ],
        "files": files,
    }


def embedded(picture: bytes) -> str:
    """Return the PNG `picture` as a data URL, or "" for an empty picture."""
    encoded = base64.b64encode(picture).decode("ascii")
    return "data:image/png;base64," + encoded if picture else ""


def context(
    data: Run, plan: Plan, verdict: Json, picture: bytes, logs: Dict[str, List[str]]
) -> Json:
    """Return {variable: value} for the template page.html.

    The arguments are the arguments of `render`.
    """
    failure = verdict["first_failure"]
    rows = [_row(process, data, plan, verdict) for process in plan.processes]
    when = date(data.begin)
    return {
        **frame(
            verdict["job"],
            "OK" if verdict["ok"] else "FAILED",
            not verdict["ok"],
            (verdict["kv"], _what(plan.options), "started " + when if when else ""),
            {
                name: value
                for name, value in plan.options.items()
                if name in mpi.KNOBS or not plan.mpi
            },
            "Options",
            "verdict.json, events.jsonl, plan.json, nodes/",
        ),
        "verdict": verdict,
        "tiles": tiles(plan, verdict),
        "failure": failure
        and {
            "sentence": sentence(failure),
            "log": [printable(entry) for entry in failure["log"]],
            "hints": hints(failure),
        },
        "warnings": [printable(warning) for warning in verdict.get("warnings", [])],
        "picture": embedded(picture),
        "alt": alternative(data),
        "curves": ", ".join(curve.name for curve in series.CURVES),
        "trains": not plan.mpi,
        "grouped": several_groups(plan),
        "processes": rows,
        "columns": {
            name
            for name in ("gpus", "samples", "speed", "waited")
            if any(row[name] for row in rows)
        },
        "y": y_table(data, plan),
        "dropped": any(histogram.dropped for histogram in data.histograms.values()),
        "sizes": sizes_table(data, plan),
        "notes": [_note(event, data.begin or 0.0) for event in data.notes],
        "logs": [
            (process.name, process.host, logs.get(process.name, [])) for process in plan.processes
        ],
    }


def tiles(plan: Plan, verdict: Json) -> List[Json]:
    """Return the figures at the top of the page as a list of {"name", "value", "hint"}.

    All values are strings.
    """
    accuracy, speed = verdict["accuracy"], verdict["samples_per_s"]
    counts = (
        (len(plan.groups), "group"),
        (plan.servers, "server"),
        (len(plan.nodes), "node"),
    )
    found = [
        {
            "name": "Accuracy",
            "value": "%.2f %%" % (100 * accuracy),
            "hint": "held-out samples, worker-0",
        }
        if accuracy is not None
        else None,
        {
            "name": "Time",
            "value": clock(verdict["seconds"]),
            "hint": "until the job ended" if plan.mpi or not verdict["ok"] else "training",
        },
        {"name": "Speed", "value": figure(speed), "hint": "samples/s of all workers"}
        if speed is not None
        else None,
        {
            "name": "MPI processes" if plan.mpi else "Workers",
            "value": str(plan.workers),
            "hint": ", ".join(several(number, word) for number, word in counts if number),
        },
    ]
    return [tile for tile in found if tile]


def alternative(data: Run) -> str:
    """Return the text that replaces the picture of the curves for a reader who cannot see it."""
    titles = ", ".join(curve.title for curve in series.drawn(data))
    parts = ["%s of every worker over time" % titles] if titles else []
    if any(histogram.updates for histogram in data.histograms.values()):
        parts.append("Histogram of Y")
    if data.profile:
        parts.append("Speeds and times of the profile")
    return "; ".join(parts)


def y_table(data: Run, plan: Plan) -> List[Json]:
    """Return the rows of the table of Y, one dict for each group.

    Y is the number of a parameter's updates since the group's last update (dist_gsync).
    The entry "bars" of a row is [(Y, number of updates, percent of the updates), ...].
    """
    return [
        {
            "group": group_label(plan, group),
            "members": ", ".join(spans(plan.groups[group], "–")),
            "updates": histogram.updates,
            "mean": "" if histogram.mean is None else "%.2f" % histogram.mean,
            "dropped": histogram.dropped,
            "bars": [
                (y, count, round(100.0 * count / histogram.updates, 1))
                for y, count in histogram.counts.items()
            ],
            "most": max(histogram.counts.values(), default=0),
        }
        for group, histogram in data.histograms.items()
    ]


def sizes_table(data: Run, plan: Plan) -> List[Json]:
    """Return the rows of the table of batch sizes, the oldest sizes first.

    A row holds the batch sizes of a group from one time on. The fields are "when" (time since the
    job's first event), "epoch" (from 1), "group" (the group's label, "" for all workers), "sizes"
    and "speeds" (samples per second). "sizes" and "speeds" are strings with the workers' values
    in order.

    The list is empty for a job that does not balance batch sizes.
    """
    if not plan.balance:
        return []
    first, groups = plan.balance.sizes, plan.together
    labels = {
        members[0]: plan.group_labels[number] if len(groups) > 1 else ""
        for number, members in enumerate(groups)
    }
    rows: List[Json] = [
        {
            "when": "",
            "epoch": "",
            "group": labels[members[0]],
            "sizes": [first[index] for index in members],
            "speeds": [],
        }
        for members in groups
    ] + [
        {
            "when": clock(event.time - (data.begin or 0.0)),
            "epoch": event.epoch + 1,
            "group": labels.get(event.index or 0, ""),
            "sizes": event.sizes,
            "speeds": event.speeds,
        }
        for event in data.balance
    ]
    return [
        dict(
            row,
            sizes=", ".join(map(str, row["sizes"])),
            speeds=", ".join(map(figure, row["speeds"])),
        )
        for row in rows
    ]


def _row(process: Process, data: Run, plan: Plan, verdict: Json) -> Json:
    """Return the row of `process` in the table of processes, with "" for unknown fields."""
    code = verdict["exit_codes"].get(process.name)
    failure = verdict["first_failure"]
    row = {
        "role": process.role,
        "index": "" if process.index is None else process.index,
        "host": process.host,
        "address": process.address or "",
        "port": process.port or "",
        "gpus": ", ".join(map(str, process.gpus)),
        "group": "",
        "share": "",
        "in_share": "",
        "samples": "",
        "speed": "",
        "waited": "",
        "exit": "not known" if code is None else "0" if code == 0 else describe(code),
        "good": code == 0,
        "first": bool(failure) and failure["name"] == process.name,
    }
    if process.role != WORKER or process.index is None:
        return row
    worker = data.workers[process.index]
    start, end, waits = worker.start, worker.end, worker.waits
    row["group"] = group_label(plan, process.group) if process.group is not None else ""
    if process.share:
        row["share"] = "%.4g – %.4g" % process.share
    if start and start.samples_in_share is not None:
        row["in_share"] = "%d samples" % start.samples_in_share
        if start.repeated:
            row["in_share"] += ", %d repeated" % start.repeated
    if end and end.samples is not None:
        row["samples"] = str(end.samples)
    if end and end.samples_per_s is not None:
        row["speed"] = figure(end.samples_per_s)
    if waits and waits.waited_s is not None and waits.seconds:
        row["waited"] = "%.1f %%" % (100.0 * waits.waited_s / waits.seconds)
    return row


def _what(options: Json) -> str:
    """Return the program of a job as text, such as "mlp on digits".

    The text is the command of an MPI job, and the file name of a user's script. Args: `options` of
    the job.
    """
    if options.get("mpi_command"):
        return printable(str(options["mpi_command"]))
    if options.get("script"):
        script: str = options["script"]
        return os.path.basename(script)
    return "%s on %s" % (options["network"], options["data"]) if options.get("network") else ""


def several(number: int, word: str) -> str:
    """Return `number` and the noun `word` as text, for example "1 node" or "2 nodes"."""
    return "%d %s%s" % (number, word, "" if number == 1 else "s")


def date(seconds: Any) -> str:
    """Return unix `seconds` as text with the local date and time, or "" for None."""
    return (
        ""
        if seconds is None
        else datetime.datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M:%S")
    )


def _note(event: Note, begin: float) -> Json:
    index = "" if event.index is None else event.index
    who = "%s %s on %s" % (event.role or "process", index, event.host)
    return {
        "when": clock(event.time - begin),
        "who": printable(who),
        "text": printable(event.text),
    }
