"""Keep the history of runs: runs/<job>/summary.json, the table of runs.yml, and runs/index.html."""

import contextlib
import json
import math
import os
import re
from typing import Dict, Iterable, List, Optional, Sequence

from mxcluster.errors import BadInput, did_you_mean, shown
from mxcluster.file_io import read_json, replace
from mxcluster.job import read_knobs
from mxcluster.job.report import ended_record, figures, files, page
from mxcluster.job.report.style import COLOURS
from mxcluster.job.verdict_text import clock, figure, printable
from mxcluster.lists import aligned, several
from mxcluster.model import names
from mxcluster.model.events import Event
from mxcluster.model.job_knobs import Options
from mxcluster.model.plan import Plan
from mxcluster.model.run_record import RunRecord
from mxcluster.model.run_summary import FAILED, OK, RunSummary
from mxcluster.model.verdict import Verdict

FILE, PAGE = "summary.json", "index.html"
TEMPLATE = os.path.join(figures.HERE, "history.html")
MARK = '<meta name="generator" content="mxcluster">'  # in each page of runs, near its begin
HEADINGS = ("job", "started", "scheme", "program", "accuracy", "samples/s", "time", "verdict")
MORE = ("tag", "knobs", "note")  # the last columns, which may be empty
COMPARISON = re.compile(r"(accuracy|samples/s|time)([<>])([0-9]+(?:\.[0-9]+)?)$")
EMPTY = ("", "[]", "{}")  # a restart replaces knobs by these
LONGEST = 200  # characters of a knob's value in a row
# A row shows these knobs elsewhere.
_SHOWN = ("kv", "script", "network", "data", "mpi_command", "note", "tag", "job_id")


def summary(
    plan: Plan,
    verdict: Verdict,
    started: Optional[float],
    record: Optional[RunRecord] = None,
) -> RunSummary:
    """Return the row of a job in the history.

    Args: `started` when the job began (unix seconds), None if unknown; `record` with the knobs that
    the user gave, None if unknown. Then those count that differ from their defaults.
    """
    accuracy = verdict.accuracy
    knobs = record.given if record else _changed(plan)
    return RunSummary(
        job=plan.job,
        started=started,
        kv=verdict.kv,
        what=printable(page.what(plan.options)),
        knobs={
            name: printable(text)[:LONGEST]
            for name, text in knobs.items()
            if name not in _SHOWN and text not in EMPTY
        },
        of_inventory=record.of_inventory if record else [],
        accuracy=None if accuracy is None or not math.isfinite(accuracy) else accuracy,
        samples_per_s=verdict.samples_per_s,
        seconds=verdict.seconds,
        state=OK if verdict.ok else FAILED,
        tag=plan.options.tag,
        note=printable(plan.options.note),
    )


def _changed(plan: Plan) -> Dict[str, str]:
    """Return {knob: value as text} of the knobs that differ from their defaults."""
    fields, found = type(plan.options).FIELDS, {}
    for name, value in read_knobs.values(plan):
        known = fields.get(name) or Options.FIELDS.get(name)
        if known is not None and value != known.value_of_new():
            found[name] = value if isinstance(value, str) else json.dumps(value, default=str)
    return found


def add(run_dir: str, plan: Plan, verdict: Verdict, events: Iterable[Event]) -> None:
    """Write summary.json of the run in `run_dir`, and the page of all runs beside `run_dir`.

    The tag and the note of an earlier summary.json stay, because `annotate` may have written them.

    Args: `events` of the job. Without any, the status of the agents tells the start.
    """
    begin = min((event.time for event in events), default=None)
    when = ended_record.started(run_dir, plan) if begin is None else begin
    path = os.path.join(run_dir, FILE)
    row = summary(plan, verdict, when, _record(run_dir))
    with contextlib.suppress(BadInput):
        known = read_json(path, RunSummary.decode)
        row = row.replaced(tag=known.tag, note=known.note) if known else row
    files.write_json(path, row)
    write_page(os.path.dirname(os.path.abspath(run_dir)))


def _record(run_dir: str) -> Optional[RunRecord]:
    """Return the record of the run in `run_dir`, None if its given knobs are unknown."""
    try:
        record = files.read_record(run_dir)
    except BadInput:
        return None
    return record if record and not record.attached else None


def annotate(
    runs_dir: str, job: str, tag: Optional[str], note: Optional[str], check: bool = False
) -> bool:
    """Replace the tag and the note of the ended run `job` in `runs_dir`; None keeps the former one.

    Return True if one of them changes. With `check`, the function writes nothing.

    Raises BadInput if the folder has no such run, or if the run has not ended.
    """
    row = of_run(os.path.join(runs_dir, job)) if names.is_job_id(job) else None
    if row is None:
        known = [one.job for one in read(runs_dir)]
        raise BadInput(
            "job=%s: %s has no ended run with this id%s. Give the id of a row of runs.yml; a job "
            "that still runs gets its note with train.yml -e note=..."
            % (shown(job), runs_dir, did_you_mean(job, known))
        )
    changed = {name: text for name, text in (("tag", tag), ("note", note)) if text is not None}
    annotated = row.replaced(**changed)
    if annotated != row and not check:
        files.write_json(os.path.join(runs_dir, job, FILE), annotated)
    return annotated != row


def of_run(run_dir: str) -> Optional[RunSummary]:
    """Return the row of the run in `run_dir`, None for a folder without a verdict.

    A run of an earlier version has no summary.json, which the function then writes. Raises BadInput
    if a file of the run is damaged.
    """
    path = os.path.join(run_dir, FILE)
    found = read_json(path, RunSummary.decode)
    if found is None:
        verdict = files.read_verdict(run_dir)
        if verdict is None:
            return None
        plan = files.read_plan(run_dir)
        found = summary(plan, verdict, ended_record.started(run_dir, plan), _record(run_dir))
        files.write_json(path, found)
    return found


def read(runs_dir: str) -> List[RunSummary]:
    """Return the rows of all runs in `runs_dir`, the newest first. Damaged runs are left out."""
    found = []
    for name in os.listdir(runs_dir) if os.path.isdir(runs_dir) else []:
        try:
            one = of_run(os.path.join(runs_dir, name))
        except (BadInput, OSError):
            continue
        if one and one.job == name:
            found.append(one)
    return sorted(found, key=lambda one: (one.started or 0.0, one.job), reverse=True)


def matching(rows: Iterable[RunSummary], words: str) -> List[RunSummary]:
    """Return the rows that contain each of the `words`, in any column and any case.

    A word such as accuracy>0.9, samples/s<500 or time>60 (seconds) compares a column with a number.
    The script of history.html does the same.
    """
    wanted = words.lower().split()
    return [row for row in rows if all(_matches(row, word) for word in wanted)]


def _matches(row: RunSummary, word: str) -> bool:
    compared = COMPARISON.match(word)
    if not compared:
        return word in " ".join(cells(row)).lower()
    columns = {"accuracy": row.accuracy, "samples/s": row.samples_per_s, "time": row.seconds}
    value, limit = columns[compared.group(1)], float(compared.group(3))
    return value is not None and (value > limit if compared.group(2) == ">" else value < limit)


def cells(row: RunSummary) -> List[str]:
    """Return the texts of a row, in the order of HEADINGS and MORE."""
    texts = {name: "%s=%s" % (name, value) for name, value in sorted(row.knobs.items())}
    knobs = [text for name, text in texts.items() if name not in row.of_inventory]
    others = " ".join(text for name, text in texts.items() if name in row.of_inventory)
    return [
        row.job,
        page.date(row.started),
        row.kv,
        row.what,
        "" if row.accuracy is None else "%.4f" % row.accuracy,
        "" if row.samples_per_s is None else figure(row.samples_per_s),
        clock(row.seconds),
        row.state,
        row.tag,
        " ".join(knobs + (["(inventory: %s)" % others] if others else [])),
        row.note,
    ]


def table(rows: Sequence[RunSummary], most: int) -> List[str]:
    """Return the lines of the table for a terminal, with the newest `most` rows."""
    if not rows:
        return ["no runs"]
    lines = [cells(row) for row in rows[:most]]
    titles = [*HEADINGS, *MORE]
    used = [
        place
        for place in range(len(titles))
        if place < len(HEADINGS) or any(line[place] for line in lines)
    ]
    found = aligned([[line[place] for place in used] for line in [titles, *lines]])
    if len(rows) > most:
        found.append("and %s more: give lines=" % several(len(rows) - most, "run"))
    return [printable(line.rstrip()) for line in found]


def write_page(runs_dir: str) -> str:
    """Write index.html in `runs_dir`, the page of all runs, and return its path.

    A page of this name that mxcluster has not written stays as it is.
    """
    rows = read(runs_dir)
    path = os.path.join(runs_dir, PAGE)
    if os.path.exists(path):
        with open(path, encoding="utf-8", errors="replace") as stream:
            if MARK not in stream.read(4096):
                return path
    content = json.dumps(
        {
            "titles": [*HEADINGS, *MORE],
            "colours": COLOURS,
            "comparison": COMPARISON.pattern,
            "rows": [{"cells": cells(row), "keys": [row.started, row.seconds]} for row in rows],
        }
    )
    replace(
        path,
        page.filled(
            TEMPLATE,
            data=content.replace("<", "\\u003c"),
            library=figures.library(),
            script=figures.script(),
            call=figures.CALL,
            number=several(len(rows), "run"),
        ),
    )
    return path
