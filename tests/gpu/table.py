"""The rows of `make gpu`: their outcomes, the table, and the report that a person sends back."""

import collections
import itertools
import json
import re
import textwrap
from typing import List, Optional

from mxcluster.model.check_answer import CudaGpu
from mxcluster.model.record import Record, field, record
from mxcluster.model.shapes import each, flag, matching, one_of, optional, real, whole, words

PASSED, FAILED, NOT_RUN, STAND_IN = OUTCOMES = "passed", "failed", "not run", "stand-in"
# The exit statuses of pytest under `make gpu`. 77 is what automake and others take for "skipped".
ALL_PASSED, SOME_FAILED, NOTHING_PASSED = 0, 1, 77
SCHEMA = 1
MARK = "The same as JSON:"
WIDTH, NAME = 110, 40  # characters of the table, and of its first column
UUID = re.compile(r"\b((?:GPU|MIG)-[0-9a-f]{4})[0-9a-f]{4}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
IPV4 = re.compile(r"\b(?!127\.)(?:[0-9]{1,3}\.){3}[0-9]{1,3}\b(?!\.)")


class Row(Record):
    """One row of the table."""

    name: str = field(words)
    outcome: str = field(one_of(*OUTCOMES))
    seen: str = field(words)
    """What the row has seen, why it failed, or why it did not run."""
    seconds: float = field(real(0, 1e6))


class Report(Record, nulls=True):
    """The content of the file that a person sends back."""

    schema: int = field(whole(1), default=SCHEMA)
    commit: str = field(matching(r"[0-9a-f]{7,40}(\+changes)?|unknown", "a commit"))
    date: str = field(matching(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", "a date"))
    stand_in: bool = field(flag)
    """True if no kernel module of NVIDIA is there, so no GPU has computed."""
    system: str = field(words)
    python: str = field(words)
    driver: Optional[str] = field(optional(words))
    gpus: List[CudaGpu] = field(each(record(CudaGpu)))
    mxnet: str = field(words)
    """The MXNet of the rows and its CUDA, or the reason that there is none."""
    rows: List[Row] = field(each(record(Row)))


def outcome(phases, real_gpu):
    """Return the (outcome, reason) of a row.

    Only a row that has passed on a real GPU is "passed".

    Args: `phases` [(outcome of pytest, reason)] of set-up, call and tear-down; `real_gpu` False for
    a stand-in.
    """
    for verdict, reason in phases:
        if verdict == "failed":
            return FAILED, reason
    for verdict, reason in phases:
        if verdict == "skipped":
            return NOT_RUN, reason
    return (PASSED if real_gpu else STAND_IN), ""


def status(rows):
    """Return the exit status: only 0 says that something passed on a GPU and nothing failed."""
    outcomes = {row.outcome for row in rows}
    if FAILED in outcomes:
        return SOME_FAILED
    return ALL_PASSED if PASSED in outcomes else NOTHING_PASSED


def counted(rows):
    """Return the number of each outcome as text, such as "3 passed, 1 not run"."""
    counts = collections.Counter(row.outcome for row in rows)
    return ", ".join("%d %s" % (counts[name], name) for name in OUTCOMES if counts[name])


def private(text, names):
    """Return `text` without what identifies a site.

    The function shortens UUIDs, and removes IPv4 addresses except those of loopback.

    Args: `names` {text such as the host's name or the home: its replacement}.
    """
    for name in sorted(names, key=len, reverse=True):
        if len(name) > 2:
            text = re.sub(r"(?<!\w)%s(?!\w)" % re.escape(name), names[name], text)
    return IPV4.sub("ADDRESS", UUID.sub(r"\1...", text))


def table(rows):
    """Return the rows as the text of a table with three columns: row, outcome, what was seen."""
    form = "%%-%ds  %%-%ds  %%s" % (NAME, max(map(len, OUTCOMES)))
    lines = [form % ("row", "outcome", "what was seen")]
    for row in rows:
        names = textwrap.wrap(row.name, NAME) or [""]
        seen = textwrap.wrap(row.seen, WIDTH - len(form % ("", "", ""))) or [""]
        both = itertools.zip_longest(names, seen, fillvalue="")
        for number, (name, part) in enumerate(both):
            lines.append((form % (name, "" if number else row.outcome, part)).rstrip())
    return "\n".join(lines)


def text(report):
    """Return the report as the text of its file: head, table, and the same as one line of JSON."""
    gpus = [
        "  GPU %d: %s, %s" % (at, gpu.name, gpu.capability) for at, gpu in enumerate(report.gpus)
    ]
    head = [
        "make gpu of mxcluster %s on %s" % (report.commit, report.date),
        "  system: %s, Python %s" % (report.system, report.python),
        "  driver: %s" % (report.driver or "none"),
        *gpus,
        "  MXNet: %s" % report.mxnet,
    ]
    if report.stand_in:
        head.append("  STAND-IN: no kernel module of NVIDIA is loaded. No GPU has computed.")
    parts = ["\n".join(head), table(report.rows), counted(report.rows), MARK]
    return "\n\n".join(parts) + "\n" + json.dumps(report.encode(), sort_keys=True) + "\n"


def parsed(content):
    """Return the Report in the text of a file. Raises ValueError for another text."""
    _, found, data = content.partition("\n%s\n" % MARK)
    if not found:
        raise ValueError("the file has no line %r" % MARK)
    return Report.decode(json.loads(data))
