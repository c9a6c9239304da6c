"""Read the figures of a sweep's jobs from the run folders, and write them to results.jsonl.

`results.jsonl` holds the record of each job with a verdict, one record a line. The record includes
the environment of the job, so that later changes of the cluster leave the record unchanged.
"""

import csv
import io
import json
import os
from typing import Dict, Iterable, Optional, Sequence, Tuple, Type, Union

from mxcluster import __version__
from mxcluster import events as event_files
from mxcluster.errors import DAMAGED, BadInput
from mxcluster.file_io import replace
from mxcluster.job.report import files, series
from mxcluster.job.sweep import readings
from mxcluster.job.sweep.jobs import Job
from mxcluster.lists import quantile
from mxcluster.model import sweep_schemes
from mxcluster.model.events import End, Event, Machine, Measured, Waits
from mxcluster.model.failures import LEARNING, NAN
from mxcluster.model.plan import WORKER, Plan
from mxcluster.model.sweep import (
    DIVERGED,
    FAILED,
    OK,
    BenchmarkFigures,
    BenchmarkRecord,
    Comparison,
    ComparisonFigures,
    ComparisonRecord,
    Environment,
    GroupUpdates,
    JobRecord,
    Specification,
)
from mxcluster.model.verdict import Verdict

FILE, TABLE = "results.jsonl", "results.csv"
LATE_SHARE = 0.01  # of a worker's steps


def record(
    spec: Specification, job: Job, job_id: str, run_dir: str, wall_s: float
) -> Optional[JobRecord]:
    """Return the record of an ended job, or None without a verdict.

    Args: `job_id` the id of the run; `run_dir` the folder of the run; `wall_s` the seconds that
    ansible-playbook ran, 0 if unknown.
    """
    verdict = files.read_verdict(run_dir)
    if verdict is None:
        return None
    plan, path = files.read_plan(run_dir), os.path.join(run_dir, event_files.FILE)
    events = [line.event for line in event_files.read(path)] if os.path.exists(path) else []
    state, failure = state_of(verdict), verdict.first_failure
    why = None if state == OK or not failure else failure.reason
    figures: Union[BenchmarkFigures, ComparisonFigures]
    measured = benchmark_figures(events, plan.workers)
    if not isinstance(spec, Comparison):
        figures, is_measured = measured, True
    else:
        figures = comparison_figures(events, verdict, plan, spec.knobs.target)
        is_measured = vars(job.about).get("scheme") == sweep_schemes.SOLO
        if is_measured:
            figures = figures.replaced(samples_per_s=measured.samples_per_s)
    if state == OK and is_measured and measured.batches is None:
        state = FAILED
        why = "a worker has not reported the measured batches: read the logs of the job"
    late_steps, late = lateness(events)
    return _kind(spec)(
        job=job.name,
        id=job_id,
        state=state,
        why=why,
        about=job.about,
        wall_s=round(wall_s, 3),
        environment=environment(plan, events),
        late_steps=late_steps,
        late=late,
        **vars(figures),
    )


def _kind(spec: Specification) -> Type[JobRecord]:
    return ComparisonRecord if isinstance(spec, Comparison) else BenchmarkRecord


def state_of(verdict: Verdict) -> str:
    """Return OK, DIVERGED or FAILED for a verdict.

    DIVERGED means a wrong learning rate: the job learned nothing, or the loss became NaN. A sweep
    counts a diverged job as a result.
    """
    if verdict.ok:
        return OK
    failure = verdict.first_failure
    return DIVERGED if failure and failure.kind in (LEARNING, NAN) else FAILED


def lateness(events: Iterable[Event]) -> Tuple[Optional[int], Optional[bool]]:
    """Return (late_steps, late) of a job with emulated slowness, (None, None) of other jobs.

    A late step took longer than `slowdown` and `step_ms` say, because its machine was overloaded.
    late_steps is the largest number of a worker. late is True if a worker had more late steps than
    1, and more than LATE_SHARE of its steps: then the machines were slower than planned.
    """
    found = [
        (end.late_steps, end.steps)
        for end in series.last_of(events, End).values()
        if end.steps and end.late_steps is not None
    ]
    if not found:
        return None, None
    late = any(late_steps > max(1, LATE_SHARE * steps) for late_steps, steps in found)
    return max(late_steps for late_steps, _ in found), late


def benchmark_figures(events: Iterable[Event], workers: int) -> BenchmarkFigures:
    """Return the figures of all workers' measured batches, none if a worker's report is missing.

    samples_per_s is the sum of the workers' rates. median_s, p10_s and p90_s are seconds per batch:
    the median of the workers' medians, the smallest p10_s, and the largest p90_s.

    Args: `workers` the number of workers.
    """
    found = series.last_of(events, Measured)
    if set(found) != set(range(workers)):
        return BenchmarkFigures()
    each = list(found.values())
    return BenchmarkFigures(
        samples_per_s=sum(one.samples_per_s for one in each),
        median_s=quantile([one.median_s for one in each], 0.5),
        p10_s=min(one.p10_s for one in each),
        p90_s=max(one.p90_s for one in each),
        batches=each[0].batches,
        warm_up=each[0].warm_up,
    )


def comparison_figures(
    events: Sequence[Event], verdict: Verdict, plan: Plan, target: float
) -> ComparisonFigures:
    """Return the figures of one job of a comparison.

    Args: `target` the accuracy to reach.
    """
    own = [event for event in events if event.role == "worker"]
    found = readings.of_job(events)
    reached = readings.reached(found, target)
    waits = series.last_of(events, Waits).values()
    trained = sum(one.seconds for one in waits)
    ends = [event for event in own if isinstance(event, End)]
    return ComparisonFigures(
        readings=found,
        target_s=reached.seconds if reached else None,
        resolution=reached.resolution if reached else None,
        accuracy=verdict.accuracy,
        samples=sum(end.samples or 0 for end in ends),
        seconds=max([end.seconds or 0.0 for end in ends], default=0.0),
        samples_per_s=common_rate(events),
        waited=sum(one.waited_s for one in waits) / trained if trained > 0 else None,
        y={
            series.group_label(plan, group): GroupUpdates(
                mean=one.mean or 0.0, counts={str(y): count for y, count in one.counts.items()}
            )
            for group, one in series.y_histograms(events).items()
        },
    )


def common_rate(events: Iterable[Event]) -> Optional[float]:
    """Return the samples per second of all workers in their common training time, None if unknown.

    The common time begins when every worker has reported a batch. The common time ends as soon as
    one worker has sent its last report, because a fast worker may end early. The
    function interpolates the samples of a worker linearly between two reports.
    """
    reports = readings.samples_over_time(events)
    if not reports or not all(reports.values()):
        return None
    begin = max(points[0][0] for points in reports.values())
    end = min(points[-1][0] for points in reports.values())
    if end <= begin:
        return None
    trained = sum(
        readings.interpolated(points, end) - readings.interpolated(points, begin)
        for points in reports.values()
    )
    return trained / (end - begin)


def environment(plan: Plan, events: Iterable[Event]) -> Environment:
    """Return the environment of a job."""
    hosts = {one.index: one.host for one in plan.of_role(WORKER)}
    found = series.last_of(events, Machine).items()
    machines = {hosts[index]: one for index, one in found if index in hosts}.values()
    return Environment(
        mxcluster=__version__,
        mxnet=sorted({one.mxnet for one in machines} - {""}),
        numpy=sorted({one.numpy for one in machines} - {""}),
        python=sorted({one.python for one in machines} - {""}),
        cpus=sorted({"%s, %d cores" % (one.cpu or "unknown CPU", one.cores) for one in machines}),
        gpus=sorted({name for one in machines for name in one.gpus}),
        nodes=len(plan.nodes),
        workers=plan.workers,
        servers=plan.servers,
    )


def read(folder: str, spec: Specification) -> Dict[str, JobRecord]:
    """Return {name of a job: record} from the file results.jsonl in `folder`; {} without the file.

    Raises BadInput for a damaged line.
    """
    found, path = {}, os.path.join(folder, FILE)  # type: Dict[str, JobRecord], str
    if not os.path.exists(path):
        return {}
    kind = _kind(spec)
    with open(path, "rb") as stream:
        for number, line in enumerate(stream, 1):
            try:
                one = kind.decode(json.loads(line.decode("utf-8")))
            except DAMAGED as error:
                if not line.endswith(b"\n"):  # torn by a full disk
                    continue
                raise BadInput(
                    "%s is damaged in line %d (%s): restore the file, or remove this line. Without "
                    "the line, the sweep runs the job of the line once more" % (path, number, error)
                ) from error
            found[one.job] = one
    return found


def write(folder: str, records: Iterable[JobRecord]) -> None:
    """Write the records to results.jsonl and results.csv in `folder`, and replace earlier files."""
    records = list(records)
    lines = "".join(json.dumps(one.encode()) + "\n" for one in records)
    replace(os.path.join(folder, FILE), lines)
    replace(os.path.join(folder, TABLE), as_csv(records))


def as_csv(records: Sequence[JobRecord]) -> str:
    """Return the records as CSV text with a header line.

    A list of strings becomes "a; b". Other lists and dicts become JSON.
    """
    rows = [_row(one) for one in records]
    names = list(dict.fromkeys(name for row in rows for name in row))
    output = io.StringIO()
    writer = csv.writer(output, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        writer.writerow([row.get(name, "") for name in names])
    return output.getvalue()


def _row(one: JobRecord) -> Dict[str, str]:
    row = {}  # type: Dict[str, str]
    for name, value in one.encode().items():
        if isinstance(value, dict) and name in ("about", "environment"):
            row.update({key: _cell(item) for key, item in value.items() if key not in row})
        else:
            row[name] = _cell(value)
    return row


def _cell(value: object) -> str:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return "; ".join(value)
    if isinstance(value, (list, dict)):
        return json.dumps(value)
    return "" if value is None else str(value)
