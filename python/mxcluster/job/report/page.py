"""Write report.html, one file with all its content, which opens without a network."""

import base64
import datetime
import json
import os
from typing import Any, Dict, List, Sequence

from mxcluster.exit_codes import describe
from mxcluster.job.plan import mpi
from mxcluster.job.report.series import group_label, several_groups
from mxcluster.job.verdict import clock, figure, hints, printable, sentence
from mxcluster.lists import spans

Json = Dict[str, Any]

TEMPLATE, STYLES = (
    os.path.join(os.path.dirname(os.path.abspath(__file__)), name)
    for name in ("page.html", "page.css")
)


def render(
    data: Json, plan: Json, verdict: Json, picture: bytes, logs: Dict[str, List[str]]
) -> str:
    """Return the text of report.html.

    Args: `data` from series.collect(); `picture` from curves.draw(); `logs` {process name: last
    lines}.
    """
    return fill(TEMPLATE, context(data, plan, verdict, picture, logs))


def fill(path: str, variables: Json) -> str:
    """Return the template `path` as text, filled in with `variables` and the common styles.

    The template extends frame.html, and `frame` returns the variables of frame.html.
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
    """Return {variable: value} of frame.html, the common template of all reports.

    Args: `name` of the job or the sweep; `badge` its state; `under` the facts below the name, of
    which empty ones are left out; `knobs` {name: value} and their `title`; `files` that the footer
    names.
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
    """Return the picture (PNG) as a data URL, which holds the whole picture; "" for no picture."""
    encoded = base64.b64encode(picture).decode("ascii")
    return "data:image/png;base64," + encoded if picture else ""


def context(
    data: Json, plan: Json, verdict: Json, picture: bytes, logs: Dict[str, List[str]]
) -> Json:
    """Return {variable: value} for the template page.html. The arguments are those of `render`."""
    failure = verdict["first_failure"]
    rows = [_row(process, data, plan, verdict) for process in plan["processes"]]
    when = date(data["begin"])
    return {
        **frame(
            verdict["job"],
            "OK" if verdict["ok"] else "FAILED",
            not verdict["ok"],
            (verdict["kv"], _what(plan["options"]), "started " + when if when else ""),
            {
                name: value
                for name, value in plan["options"].items()
                if name in mpi.KNOBS or not plan.get("mpi")
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
        "trains": not plan.get("mpi"),
        "grouped": several_groups(plan),
        "processes": rows,
        "columns": {
            name
            for name in ("gpus", "samples", "speed", "waited")
            if any(row[name] for row in rows)
        },
        "y": y_table(data, plan),
        "dropped": any(histogram["dropped"] for histogram in data["y"].values()),
        "sizes": sizes_table(data, plan),
        "notes": [_note(event, data["begin"]) for event in data["notes"]],
        "logs": [
            (process["name"], process["host"], logs.get(process["name"], []))
            for process in plan["processes"]
        ],
    }


def tiles(plan: Json, verdict: Json) -> List[Json]:
    """Return the figures at the top of the page: [{"name", "value", "hint"}], all of them text."""
    accuracy, speed = verdict["accuracy"], verdict["samples_per_s"]
    counts = (
        (len(plan.get("groups") or []), "group"),
        (plan["servers"], "server"),
        (len(plan["nodes"]), "node"),
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
            "hint": "until the job ended" if plan.get("mpi") or not verdict["ok"] else "training",
        },
        {"name": "Speed", "value": figure(speed), "hint": "samples/s of all workers"}
        if speed is not None
        else None,
        {
            "name": "MPI processes" if plan.get("mpi") else "Workers",
            "value": str(plan["workers"]),
            "hint": ", ".join(several(number, word) for number, word in counts if number),
        },
    ]
    return [tile for tile in found if tile]


def y_table(data: Json, plan: Json) -> List[Json]:
    """Return a row of the table of Y for each group; its bars are [(Y, count, percent)]."""
    return [
        {
            "group": group_label(plan, group),
            "members": ", ".join(spans(plan["groups"][group], "–")),
            "updates": histogram["updates"],
            "mean": "" if histogram["mean"] is None else "%.2f" % histogram["mean"],
            "dropped": histogram["dropped"],
            "bars": [
                (y, count, round(100.0 * count / histogram["updates"], 1))
                for y, count in histogram["counts"].items()
            ],
            "most": max(histogram["counts"].values(), default=0),
        }
        for group, histogram in sorted(data["y"].items())
    ]


def sizes_table(data: Json, plan: Json) -> List[Json]:
    """Return a row for each set of batch sizes of a job that balances them, the oldest set first.

    The fields are "when" (time since the job's first event), "epoch" (from 1), "group" (its label,
    "" for all workers), "sizes" and "speeds" (samples per second). The last two are texts with the
    workers' values in order. [] for a job that balances no batch sizes.
    """
    if not plan.get("balance"):
        return []
    begin = data["begin"]
    first, groups = plan["balance"]["sizes"], plan["together"]
    labels = {
        members[0]: plan["group_labels"][number] if len(groups) > 1 else ""
        for number, members in enumerate(groups)
    }
    rows = [
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
            "when": clock(event["time"] - begin),
            "epoch": event["epoch"] + 1,
            "group": labels.get(event.get("index"), ""),
            "sizes": event["sizes"],
            "speeds": event["speeds"],
        }
        for event in data["balance"]
    ]
    return [
        dict(
            row,
            sizes=", ".join(map(str, row["sizes"])),
            speeds=", ".join(map(figure, row["speeds"])),
        )
        for row in rows
    ]


def _row(process: Json, data: Json, plan: Json, verdict: Json) -> Json:
    """Return the row of one process in the table of processes; unknown fields are ""."""
    code = verdict["exit_codes"].get(process["name"])
    failure = verdict["first_failure"]
    row = {
        "role": process["role"],
        "index": "" if process["index"] is None else process["index"],
        "host": process["host"],
        "address": process.get("address") or "",
        "port": process.get("port") or "",
        "gpus": ", ".join(map(str, process.get("gpus") or [])),
        "group": "",
        "share": "",
        "in_share": "",
        "samples": "",
        "speed": "",
        "waited": "",
        "exit": "not known" if code is None else "0" if code == 0 else describe(code),
        "good": code == 0,
        "first": bool(failure) and failure["name"] == process["name"],
    }
    if process["role"] != "worker":
        return row
    worker = data["workers"][process["index"]]
    start, end, kv = worker["start"], worker["end"], worker["kv"]
    row["group"] = group_label(plan, process["group"]) if process.get("group") is not None else ""
    if process.get("share"):
        row["share"] = "%.4g – %.4g" % tuple(process["share"])
    if start.get("samples_in_share") is not None:
        row["in_share"] = "%d samples" % start["samples_in_share"]
        if start.get("repeated"):
            row["in_share"] += ", %d repeated" % start["repeated"]
    if end.get("samples") is not None:
        row["samples"] = str(end["samples"])
    if end.get("samples_per_s") is not None:
        row["speed"] = figure(end["samples_per_s"])
    if kv.get("waited_s") is not None and kv.get("seconds"):
        row["waited"] = "%.1f %%" % (100.0 * kv["waited_s"] / kv["seconds"])
    return row


def _what(options: Json) -> str:
    """Return the job's MPI command, its script, or its network and data set: "mlp on digits"."""
    if options.get("mpi_command"):
        return printable(str(options["mpi_command"]))
    if options.get("script"):
        script: str = options["script"]
        return os.path.basename(script)
    return "%s on %s" % (options["network"], options["data"]) if options.get("network") else ""


def several(number: int, word: str) -> str:
    """Return a number with its noun: "1 node", "2 nodes"."""
    return "%d %s%s" % (number, word, "" if number == 1 else "s")


def date(seconds: Any) -> str:
    """Return the local date and time of unix seconds as text, "" for None."""
    return (
        ""
        if seconds is None
        else datetime.datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M:%S")
    )


def _note(event: Json, begin: float) -> Json:
    index = "" if event.get("index") is None else event["index"]
    who = "%s %s on %s" % (event.get("role") or "process", index, event.get("host"))
    return {
        "when": clock(event["time"] - begin),
        "who": printable(who),
        "text": printable(str(event.get("text", ""))),
    }
