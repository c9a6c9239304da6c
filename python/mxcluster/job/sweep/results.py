"""Read the figures of a sweep's jobs from the run folders, and write them to results.jsonl.

`results.jsonl` holds the record of each job with a verdict, one record a line. The record includes
the environment of the job, so that later changes of the cluster leave the record unchanged.
"""

import csv
import io
import json
import math
import os
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple, Type, TypeVar

from mxcluster import __version__, exit_codes
from mxcluster import events as event_files
from mxcluster.errors import DAMAGED, BadInput
from mxcluster.file_io import replace
from mxcluster.job.option_types import is_job_id
from mxcluster.job.report import files, series
from mxcluster.job.sweep.knob_table import BENCHMARK
from mxcluster.job.sweep.specs import Job
from mxcluster.model import shapes
from mxcluster.model.events import Batch, End, Epoch, Event, Machine, Measured, Start, Waits
from mxcluster.model.plan import WORKER, Plan

Json = Dict[str, Any]
Points = List[Tuple[float, float]]

FILE, TABLE = "results.jsonl", "results.csv"
OK, DIVERGED, FAILED = "ok", "diverged", "failed"
LATE_SHARE = 0.01  # of a worker's steps

E = TypeVar("E", bound=Event)

_text = shapes.text
_texts = shapes.each(_text)
# An accuracy may be NaN.
_figure = shapes.optional(shapes.figure)
_point = shapes.passing(list, lambda value: len(value) == 2, "[s, accuracy]")
# The fields of a record that the tables, plots and reports read, and those of each playbook.
_RECORD = {
    "job": _text,
    "id": shapes.passing(str, is_job_id, "a job's id"),
    "state": shapes.one_of(OK, DIVERGED, FAILED),
    "why": shapes.optional(_text),
    "about": shapes.fields({}, rest=shapes.anything),
    "wall_s": shapes.number,
    "environment": shapes.fields({}, rest=shapes.anything),
}  # type: Dict[str, shapes.Shape[Any]]
_POSSIBLE = {
    "late": shapes.flag,
    "late_steps": shapes.whole(),
    "accuracy": _figure,
    "samples_per_s": _figure,
}  # type: Dict[str, shapes.Shape[Any]]
_about = shapes.fields(
    {
        "network": _text,
        "kv": _text,
        "batch_size": shapes.whole(1),
        "gpus": shapes.optional(shapes.whole()),
        "scaling": _text,
        "workers": shapes.whole(1),
    }
)
_MEASURED = dict.fromkeys(("samples_per_s", "median_s", "p10_s", "p90_s"), shapes.number)  # type: Dict[str, shapes.Shape[Any]]
_COMPARISON = {
    "target_s": _figure,
    "accuracy": _figure,
    "samples_per_s": _figure,
    "waited": _figure,
    "samples": shapes.number,
    "curve": shapes.each(lambda value: shapes.each(shapes.number)(_point(value)), 10**6),
    "y": shapes.table(
        _text,
        shapes.fields(
            {
                "mean": shapes.number,
                "counts": shapes.table(
                    shapes.matching("[0-9]{1,9}", "a whole number"), shapes.whole(), 10**6
                ),
            }
        ),
    ),
}  # type: Dict[str, shapes.Shape[Any]]


def record(spec: Json, job: Job, job_id: str, run_dir: str, wall_s: float) -> Optional[Json]:
    """Return the record of an ended job, or None without a verdict.

    Args: `job_id` the id of the run; `run_dir` the folder of the run; `wall_s` the seconds that
    ansible-playbook ran, 0 if unknown.
    """
    verdict = files.read_verdict(run_dir)
    if verdict is None:
        return None
    plan, path = files.read_plan(run_dir), os.path.join(run_dir, event_files.FILE)
    events = [line.event for line in event_files.read(path)] if os.path.exists(path) else []
    state = state_of(verdict)
    failure = verdict.get("first_failure")
    found = {
        "job": job.name,
        "id": job_id,
        "state": state,
        "why": None if state == OK or not failure else failure["reason"],
        "about": job.about,
        "wall_s": round(wall_s, 3),
        "environment": environment(plan, events),
        **lateness(events),
    }
    if spec["playbook"] == BENCHMARK:
        found.update(benchmark_figures(events, plan.workers) or {})
        if state == OK and found.get("samples_per_s") is None:
            found.update(
                state=FAILED,
                why="a worker has not reported the measured batches: read the logs of the job",
            )
    else:
        found.update(comparison_figures(events, verdict, plan, spec["knobs"]["target"]))
    return found


def state_of(verdict: Json) -> str:
    """Return OK, DIVERGED or FAILED for a verdict.

    DIVERGED means a wrong learning rate: the job learned nothing, or the loss became NaN. A sweep
    counts a diverged job as a result.
    """
    if verdict["ok"]:
        return OK
    failure = verdict.get("first_failure") or {}
    wrong_rate = failure.get("kind") == "learning" or (
        failure.get("exit_code") == exit_codes.NOT_A_NUMBER
    )
    return DIVERGED if wrong_rate else FAILED


def lateness(events: Iterable[Event]) -> Json:
    """Return {"late_steps": int, "late": bool} of a job with emulated slowness, {} for other jobs.

    A late step took longer than `slowdown` and `step_ms` say, because its machine was overloaded.
    late_steps is the largest number of a worker. late is True if a worker had more late steps than
    1, and more than LATE_SHARE of its steps: then the machines were slower than planned.
    """
    found = [
        (end.late_steps, end.steps)
        for end in _of_workers(events, End).values()
        if end.steps and end.late_steps is not None
    ]
    if not found:
        return {}
    return {
        "late_steps": max(late_steps for late_steps, _ in found),
        "late": any(late_steps > max(1, LATE_SHARE * steps) for late_steps, steps in found),
    }


def benchmark_figures(events: Iterable[Event], workers: int) -> Optional[Json]:
    """Return {name: figure} of all workers' measured batches, None if a worker's report is missing.

    samples_per_s is the sum of the workers' rates. median_s, p10_s and p90_s are seconds per batch:
    the median of the workers' medians, the smallest p10_s, and the largest p90_s.

    Args: `workers` the number of workers.
    """
    found = _of_workers(events, Measured)
    if set(found) != set(range(workers)):
        return None
    each = list(found.values())
    return {
        "samples_per_s": sum(one.samples_per_s for one in each),
        "median_s": quantile([one.median_s for one in each], 0.5),
        "p10_s": min(one.p10_s for one in each),
        "p90_s": max(one.p90_s for one in each),
        "batches": each[0].batches,
        "warm_up": each[0].warm_up,
    }


def comparison_figures(events: Sequence[Event], verdict: Json, plan: Plan, target: float) -> Json:
    """Return {name: figure} of one job of a comparison.

    curve: [(seconds since the first worker's start, accuracy)] from worker 0, at the end of each
        epoch and at the end of the job. Under some schemes a fast worker 0 ends before the others.
    target_s: the seconds until worker 0 measured the accuracy `target`, or None.
    accuracy: the final accuracy of the job, or None.
    samples: the number of samples of all workers.
    seconds: the training time of the slowest worker.
    samples_per_s: from `common_rate`.
    waited: the share of the workers' training time spent waiting, from 0 to 1; None if unknown.
    y: {label of a group: {"mean", "counts": {Y: count}}}.
    """
    own = [event for event in events if event.role == "worker"]
    begin = min([event.time for event in own if isinstance(event, Start)], default=None)
    points = [
        (event.time - begin, event.accuracy)
        for event in own
        if begin is not None and isinstance(event, (Epoch, End)) and event.index == 0
        if event.accuracy is not None
    ]
    waits = _of_workers(events, Waits).values()
    trained = sum(one.seconds for one in waits)
    ends = [event for event in own if isinstance(event, End)]
    return {
        "curve": [(round(moment, 3), round(accuracy, 5)) for moment, accuracy in points],
        "target_s": next((moment for moment, accuracy in points if accuracy >= target), None),
        "accuracy": verdict.get("accuracy"),
        "samples": sum(end.samples or 0 for end in ends),
        "seconds": max([end.seconds or 0.0 for end in ends], default=0.0),
        "samples_per_s": common_rate(events),
        "waited": sum(one.waited_s for one in waits) / trained if trained > 0 else None,
        "y": {
            series.group_label(plan, group): {"mean": one.mean, "counts": one.counts}
            for group, one in series.y_histograms(events).items()
        },
    }


def common_rate(events: Iterable[Event]) -> Optional[float]:
    """Return the samples per second of all workers in their common training time, None if unknown.

    The common time begins when every worker has reported a batch. The common time ends as soon as
    one worker has sent its last report, because a fast worker may end early. The
    function interpolates the samples of a worker linearly between two reports.
    """
    reports = {}  # type: Dict[int, Points]
    workers = set()
    for event in events:
        if event.role != "worker" or event.index is None:
            continue
        workers.add(event.index)
        if isinstance(event, Batch) and event.samples is not None:
            reports.setdefault(event.index, []).append((event.time, event.samples))
    if not reports or set(reports) != workers:
        return None
    begin = max(points[0][0] for points in reports.values())
    end = min(points[-1][0] for points in reports.values())
    if end <= begin:
        return None
    return sum(_at(points, end) - _at(points, begin) for points in reports.values()) / (end - begin)


def environment(plan: Plan, events: Iterable[Event]) -> Json:
    """Return the environment of a job as a dict: nodes, processes, versions, CPUs and GPUs."""
    hosts = {one.index: one.host for one in plan.of_role(WORKER)}
    by_host = {
        hosts[index]: one for index, one in _of_workers(events, Machine).items() if index in hosts
    }
    machines = by_host.values()
    return {
        "mxcluster": __version__,
        "mxnet": sorted({one.mxnet for one in machines} - {""}),
        "numpy": sorted({one.numpy for one in machines} - {""}),
        "python": sorted({one.python for one in machines} - {""}),
        "cpus": sorted(
            {"%s, %d cores" % (one.cpu or "unknown CPU", one.cores) for one in machines}
        ),
        "gpus": sorted({name for one in machines for name in one.gpus}),
        "nodes": len(plan.nodes),
        "workers": plan.workers,
        "servers": plan.servers,
    }


def quantile(values: Sequence[Optional[float]], part: float) -> Optional[float]:
    """Return the quantile `part` (0 to 1) of `values`, with linear interpolation.

    A value None counts as infinite. The result is None without values, or if the quantile is
    infinite.
    """
    numbers = sorted(math.inf if value is None else value for value in values)
    if not numbers:
        return None
    place = part * (len(numbers) - 1)
    low, high = numbers[math.floor(place)], numbers[math.ceil(place)]
    if math.isinf(high) and place > math.floor(place) or math.isinf(low):
        return None
    return low + (high - low) * (place - math.floor(place)) if low != high else low


def read(folder: str, playbook: str) -> Dict[str, Json]:
    """Return {name of a job: record} from the file results.jsonl in `folder`; {} without the file.

    Raises BadInput for a damaged line.

    Args: `playbook` the playbook of the sweep, which decides the figures of a record.
    """
    found, path = {}, os.path.join(folder, FILE)
    if not os.path.exists(path):
        return {}
    with open(path, "rb") as stream:
        for number, line in enumerate(stream, 1):
            try:
                one = _record_of(playbook, json.loads(line.decode("utf-8")))
            except DAMAGED as error:
                if not line.endswith(b"\n"):  # torn by a full disk
                    continue
                raise BadInput(
                    "%s is damaged in line %d (%s): restore the file, or remove this line. Without "
                    "the line, the sweep runs the job of the line once more" % (path, number, error)
                ) from error
            found[one["job"]] = one
    return found


def _record_of(playbook: str, value: Any) -> Json:
    """Return the record `value` of a job after a check. Raises shapes.Wrong if it is damaged."""
    found: Json = shapes.fields(_RECORD, _POSSIBLE, shapes.anything)(value)
    if playbook == BENCHMARK:
        figures = dict(_MEASURED if found["state"] == OK else {}, about=_about)
    else:
        figures = _COMPARISON
    shapes.fields(figures)(found)
    return found


def write(folder: str, records: Iterable[Json]) -> None:
    """Write the records to results.jsonl and results.csv in `folder`, and replace earlier files."""
    records = list(records)
    replace(os.path.join(folder, FILE), "".join(json.dumps(one) + "\n" for one in records))
    replace(os.path.join(folder, TABLE), as_csv(records))


def as_csv(records: Sequence[Json]) -> str:
    """Return the records as CSV text with a header line.

    A list of strings becomes "a; b". Other lists and dicts become JSON.
    """
    rows = [_flat(one) for one in records]
    names = list(dict.fromkeys(name for row in rows for name in row))
    output = io.StringIO()
    writer = csv.writer(output, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        writer.writerow([row.get(name, "") for name in names])
    return output.getvalue()


def _flat(one: Json) -> Json:
    row = {}
    for name, value in one.items():
        if name in ("about", "environment"):
            row.update({key: _cell(item) for key, item in value.items() if key not in row})
        else:
            row[name] = _cell(value)
    return row


def _cell(value: Any) -> Any:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return "; ".join(value)
    if isinstance(value, (list, dict)):
        return json.dumps(value)
    return "" if value is None else value


def _of_workers(events: Iterable[Event], kind: Type[E]) -> Dict[int, E]:
    """Return {index of a worker: the worker's last event of the class `kind`}."""
    return {
        event.index: event
        for event in events
        if isinstance(event, kind) and event.role == "worker" and event.index is not None
    }


def _at(points: Points, moment: float) -> float:
    """Return the value at the time `moment`, interpolated linearly between `points`.

    Before the first point, the result is the first value. After the last point, the result is the
    last value.

    Args: `points` [(seconds, value)] by rising time.
    """
    for (before, low), (after, high) in zip(points, points[1:]):
        if before <= moment <= after:
            return low + (high - low) * ((moment - before) / (after - before or 1.0))
    return points[0][1] if moment <= points[0][0] else points[-1][1]
