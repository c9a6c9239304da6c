"""Make the text of report.html, a single file that opens without a network."""

import datetime
import json
import os
import urllib.parse
from typing import (
    Dict,
    FrozenSet,
    Iterable,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Set,
    Tuple,
)

from mxcluster.exit_codes import describe
from mxcluster.job import read_knobs
from mxcluster.job.plan import paces
from mxcluster.job.report import figures, resources, series, what_ran_panel
from mxcluster.job.report.figures import Figures
from mxcluster.job.report.series import Histogram, Run, group_label, several_groups
from mxcluster.job.verdict_text import clock, figure, hints, printable, sentence
from mxcluster.lists import several, spans
from mxcluster.model.events import Note, StepTimes
from mxcluster.model.job_knobs import DEADLINE, MpiOptions, Options
from mxcluster.model.plan import WORKER, Plan, Process
from mxcluster.model.run_record import RunRecord
from mxcluster.model.verdict import Verdict

TEMPLATE, STYLES = (
    os.path.join(os.path.dirname(os.path.abspath(__file__)), name)
    for name in ("page.html", "page.css")
)


class ProcessRow(NamedTuple):
    """A row of the table of processes, with "" for unknown fields."""

    process: str  # role and index
    host: str
    address: str
    port: str
    gpus: str
    exit: str
    good: bool  # the exit code is 0
    first: bool  # the process failed first
    group: str
    share: str
    in_share: str
    samples: str
    speed: str
    waited: str


class SizesRow(NamedTuple):
    """The batch sizes of a group from one time on."""

    when: str  # time since the job's first event
    epoch: str  # from 1
    group: str  # the group's label, "" for all workers
    sizes: str  # of the workers in order
    speeds: str  # samples per second of the workers in order
    small: str = ""  # with balance=deadline, of the small batches of the workers in order
    deadline: str = ""  # seconds


class StepRow(NamedTuple):
    """The parts of a worker's steps, in milliseconds a step."""

    process: str
    steps: str
    step: str
    compute: str
    data: str
    exchange: str
    remainder: str
    push_pull: str
    quota: str


class Frame(NamedTuple):
    """The variables of the template frame.html, which all pages extend."""

    name: str  # the name of the job or the sweep
    badge: str  # the state of the job or the sweep
    is_bad: bool  # True for a failure
    under: str  # the facts below the name
    knobs_title: str
    knobs: List[Tuple[str, str]]  # [(knob, value), ...]
    files: List[str]  # the files and folders beside the page that the footer links to
    given: FrozenSet[str] = frozenset()  # the knobs that the user gave with -e, which stand out


# The files of a run folder in the footer. `write` drops the names of missing files.
FILES = (
    "verdict.json",
    "events.jsonl",
    "events.csv",
    "plan.json",
    "profile.json",
    "run.json",
    "knobs.yml",
    "requirements.txt",
    "curves.png",
    "nodes/",
    "tensorboard/",
    "../index.html",
)


def render(
    data: Run,
    plan: Plan,
    verdict: Verdict,
    drawn: Figures,
    logs: Mapping[str, List[str]],
    record: Optional[RunRecord] = None,
    beside: Sequence[str] = FILES,
) -> str:
    """Return the text of report.html.

    Args: `data` from series.collect(), with the start of the job; `plan` and `verdict` of the job;
    `drawn` from job_figures.with_resources(); `logs` {process name: [last line of the log, ...]};
    `record` of what ran; `beside` the files and folders for the footer.
    """
    failure = verdict.first_failure
    rows = [_row(process, data, plan, verdict) for process in plan.processes]
    frame = Frame(
        name=verdict.job,
        badge="OK" if verdict.ok else "FAILED",
        is_bad=not verdict.ok,
        under=joined(*_kind(plan, verdict), _started(data, record)),
        knobs_title="Options",
        knobs=knob_rows(read_knobs.values(plan), record.of_inventory if record else ()),
        files=list(beside),
        given=frozenset(set(record.given) - set(record.of_inventory) if record else ()),
    )
    return fill(
        TEMPLATE,
        frame,
        tiles=tiles(plan, verdict, data),
        facts=what_ran_panel.facts(record) if record else [],
        machines=what_ran_panel.machines(record) if record else [],
        failure=failure,
        sentence=failure and sentence(failure),
        log=[printable(line) for line in failure.log] if failure else [],
        hints=hints(failure) if failure else [],
        warnings=[printable(warning) for warning in verdict.warnings],
        **of_figures(drawn),
        alt=alternative(data),
        proposal=list(verdict.proposal or []),
        sources=verdict.figures,
        trains=not plan.mpi,
        grouped=several_groups(plan),
        processes=rows,
        columns=_filled(rows),
        bottleneck=verdict.bottleneck and printable(verdict.bottleneck),
        used=resources.process_rows(data.resources, plan) if data.resources else [],
        unmeasured=resources.why_empty(verdict.seconds),
        nodes_used=resources.node_rows(data.resources, plan) if data.resources else [],
        y=y_table(data, plan),
        dropped=any(histogram.dropped for histogram in data.histograms.values()),
        sizes=sizes_table(data, plan),
        steps=steps_table(data),
        notes=[_note(event, data.begin or 0.0) for event in data.notes],
        logs=log_rows(plan, logs),
    )


def _filled(rows: Sequence[ProcessRow]) -> Set[str]:
    """Return the optional columns of the table of processes in which a row has a text."""
    names = ("gpus", "samples", "speed", "waited")
    return {name for name in names if any(getattr(row, name) for row in rows)}


def log_rows(plan: Plan, logs: Mapping[str, List[str]]) -> List[Tuple[str, str, List[str], str]]:
    """Return [(process, host, last lines of its log, path of the log), ...].

    Args: `logs` {process name: [last line of the log, ...]}.
    """
    return [
        (
            process.name,
            process.host,
            logs.get(process.name, []),
            "nodes/%s/%s.log" % (process.host, process.name),
        )
        for process in plan.processes
    ]


def of_figures(drawn: Figures) -> Dict[str, str]:
    """Return the variables of the templates for the figures, empty texts without a figure."""
    if not drawn.figures:
        return {"figures": "", "library": "", "script": ""}
    return {
        "figures": figures.text(drawn),
        "library": figures.library(),
        "script": figures.script(),
    }


def fill(path: str, frame: Frame, **variables: object) -> str:
    """Return the text of the template file `path`, filled with `frame` and its own `variables`."""
    return filled(path, **frame._asdict(), **variables)


def filled(path: str, **variables: object) -> str:
    """Return the text of the template file `path`, filled with `variables` and the styles."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(os.path.dirname(STYLES)),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["address"] = urllib.parse.quote
    with open(path, encoding="utf-8") as stream:
        template = environment.from_string(stream.read())
    with open(STYLES, encoding="utf-8") as stream:
        return template.render(css=stream.read(), **variables) + "\n"


def knob_rows(
    knobs: Iterable[Tuple[str, object]], of_inventory: Sequence[str] = ()
) -> List[Tuple[str, str]]:
    """Return the (knob, value) pairs with a value as texts, by name.

    Args: `of_inventory` the knobs whose values are marked as those of the inventory.
    """
    return sorted(
        (
            name,
            (value if isinstance(value, str) else json.dumps(value))
            + (" (inventory)" if name in of_inventory else ""),
        )
        for name, value in knobs
        if value not in ("", None, [], {})
    )


def joined(*facts: str) -> str:
    """Return the facts below a name as one text, without empty facts."""
    return " · ".join(filter(None, facts))


def tiles(plan: Plan, verdict: Verdict, data: Run) -> List[Tuple[str, str, str]]:
    """Return the figures at the top of the page: [(name, value, hint), ...]."""
    # A job that measures has one group; its profile proposes the groups.
    groups = data.profile.groups if data.profile else plan.groups
    counts = ((len(groups), "group"), (plan.servers, "server"), (len(plan.nodes), "node"))
    found = []
    if verdict.accuracy is not None:
        accuracy = "%.2f %%" % (100 * verdict.accuracy)
        found.append(("Accuracy", accuracy, "held-out samples, worker-0"))
    is_whole = plan.mpi or not verdict.ok
    hint = "until the job ended" if is_whole else "training"
    found.append(("Time", clock(verdict.seconds), hint))
    if verdict.samples_per_s is not None:
        found.append(("Speed", figure(verdict.samples_per_s), "samples/s of all workers"))
    name = "MPI processes" if plan.mpi else "Workers"
    hint = ", ".join(several(number, word) for number, word in counts if number)
    return [*found, (name, str(plan.workers), hint)]


def alternative(data: Run) -> str:
    """Return the text that describes the figures for a reader who cannot see them."""
    titles = ", ".join(curve.title for curve in series.drawn(data))
    parts = ["%s of every worker over time" % titles] if titles else []
    if any(histogram.updates for histogram in data.histograms.values()):
        parts.append("Histogram of Y")
    if data.profile:
        parts.append("Speeds and times of the profile")
    return "; ".join(parts)


def y_table(data: Run, plan: Plan) -> List[Tuple[str, str, Histogram]]:
    """Return the rows of the table of Y: [(group, its workers, the histogram of its Y), ...]."""
    return [
        (group_label(plan, group), ", ".join(spans(plan.groups[group], "–")), histogram)
        for group, histogram in data.histograms.items()
    ]


def sizes_table(data: Run, plan: Plan) -> List[SizesRow]:
    """Return the rows of the table of batch sizes, the oldest sizes first.

    The list is empty for a job that does not balance batch sizes.
    """
    if not plan.balance:
        return []
    first, groups = plan.balance.sizes, plan.together
    labels: Dict[Optional[int], str] = {
        members[0]: plan.group_labels[number] if len(groups) > 1 else ""
        for number, members in enumerate(groups)
    }

    def row(first: Optional[int], sizes: Sequence[int], **others: str) -> SizesRow:
        return SizesRow(group=labels.get(first, ""), sizes=_listed(sizes), **others)

    small = paces.small_sizes(plan.balance) if plan.options.balance == DEADLINE else []
    return [
        row(
            members[0],
            [first[index] for index in members],
            when="",
            epoch="",
            speeds="",
            small=_listed([small[index] for index in members] if small else []),
        )
        for members in groups
    ] + [
        row(
            event.index,
            event.sizes,
            when=clock(event.time - (data.begin or 0.0)),
            epoch=str(event.epoch + 1),
            speeds=_listed(event.speeds),
            small=_listed(event.small or []),
            deadline="" if event.deadline_s is None else figure(event.deadline_s),
        )
        for event in data.balance
    ]


def _listed(numbers: Sequence[float]) -> str:
    return ", ".join(
        str(number) if isinstance(number, int) else figure(number) for number in numbers
    )


def steps_table(data: Run) -> List[StepRow]:
    """Return the rows of the table of steps, [] for a job that did not measure them."""

    def row(index: int, found: StepTimes) -> StepRow:
        parts = [found.compute, found.data, found.exchange, found.remainder, found.push_pull]
        parts.append(found.quota)
        means = ("%.3g" % (1000 * part / found.steps) for part in [sum(parts), *parts])
        return StepRow("worker %d" % index, str(found.steps), *means)

    return [
        row(index, worker.step_times)
        for index, worker in sorted(data.workers.items())
        if worker.step_times and worker.step_times.steps
    ]


def _row(process: Process, data: Run, plan: Plan, verdict: Verdict) -> ProcessRow:
    """Return the row of `process` in the table of processes."""
    code, failure = verdict.exit_codes.get(process.name), verdict.first_failure
    is_worker = process.role == WORKER and process.index is not None
    worker = data.workers[process.index or 0] if is_worker else series.Worker()
    start, end, waits = worker.start, worker.end, worker.waits
    speed = end.samples_per_s
    if speed is None and is_worker:
        speed = data.speeds.get(process.index or 0)
    in_share = "%d samples" % start.samples_in_share if start.samples_in_share is not None else ""
    if in_share and start.repeated:
        in_share += ", %d repeated" % start.repeated
    return ProcessRow(
        process=process.role + ("" if process.index is None else " %d" % process.index),
        host=process.host,
        address=process.address,
        port=str(process.port or ""),
        gpus=", ".join(map(str, process.gpus)),
        exit="not known" if code is None else "0" if code == 0 else describe(code),
        good=code == 0,
        first=failure is not None and failure.name == process.name,
        group=group_label(plan, process.group) if is_worker and process.group is not None else "",
        share="%.4g – %.4g" % process.share if is_worker and process.share else "",
        in_share=in_share,
        samples="" if end.samples is None else str(end.samples),
        speed="" if speed is None else figure(speed),
        waited="%.1f %%" % (100.0 * waits.waited_s / waits.seconds)
        if waits.waited_s is not None and waits.seconds
        else "",
    )


def _started(data: Run, record: Optional[RunRecord]) -> str:
    """Return when the job started, as text."""
    when = record.begun.replace("T", " ") if record else date(data.begin)
    return "started " + when if when else ""


def _kind(plan: Plan, verdict: Verdict) -> Tuple[str, str]:
    """Return the scheme and the program of a job as two texts."""
    options = plan.options
    if options.measures_cluster:
        return "profile of the cluster", "%s on %s" % (options.network, options.data)
    return verdict.kv, what(options)


def what(options: Options) -> str:
    """Return the program of a job as text, such as "mlp on digits".

    The text is the command of an MPI job, and the file name of a user's script. Args: `options` of
    the job.
    """
    if isinstance(options, MpiOptions):
        return printable(options.mpi_command)
    if options.script:
        return os.path.basename(options.script)
    return "%s on %s" % (options.network, options.data)


def date(seconds: Optional[float]) -> str:
    """Return unix `seconds` as text with the local date, time and zone, or "" for None."""
    return (
        ""
        if seconds is None
        else datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
        .astimezone()
        .isoformat(" ", "seconds")
    )


def _note(event: Note, begin: float) -> Tuple[str, str, str]:
    """Return the time of a note since the job's first event, the process, and the text."""
    index = "" if event.index is None else event.index
    process = "%s %s on %s" % (event.role or "process", index, event.host)
    return clock(event.time - begin), printable(process), printable(event.text)
