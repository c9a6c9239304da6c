"""Write the events of a run for other programs: events.csv, and tensorboard/ for TensorBoard."""

import csv
import io
import json
import os
import shutil
from typing import Dict, Iterable, Optional

from mxcluster.events import Line
from mxcluster.file_io import replace
from mxcluster.job.report.series import CURVES, PUSHES, Curve, Run, of_metric
from mxcluster.model.events import Event, Latest

CSV, TENSORBOARD = "events.csv", "tensorboard"
FLUSH = 1  # seconds until a figure of a running job is in the file
_FIRST = ("time", "event", "role", "index", "host")
# A spreadsheet takes a text that begins with one of these signs for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def write_csv(path: str, lines: Iterable[Line]) -> None:
    """Write events as a table with a column for each field, and a row for each event.

    A list or an object is JSON in its cell.

    Args: `lines` the events in their order.
    """
    rows = [line.content for line in lines]
    fields = {name: None for row in rows for name in row}
    columns = [*_FIRST, *(name for name in fields if name not in _FIRST)]
    output = io.StringIO()
    table = csv.writer(output)
    table.writerow([_cell(name) for name in columns])
    table.writerows([_cell(row.get(name)) for name in columns] for row in rows)
    replace(path, output.getvalue())


def _cell(value: object) -> object:
    if value is None or isinstance(value, (int, float)):
        return value
    text = value if isinstance(value, str) else json.dumps(value)
    return "'" + text if text.startswith(_FORMULA) else text


class LiveCurves:
    """Write the figures of a worker to TensorBoard's files while the job runs.

    The report replaces these files, which have only the events of the polls.
    """

    def __init__(self, folder: str) -> None:
        """Args: `folder` of the worker, such as runs/<job>/tensorboard/worker-0."""
        from tensorboardX import SummaryWriter

        self._writer = SummaryWriter(folder, flush_secs=FLUSH)
        self._seen: Dict[str, float] = {}  # {curve: the time of its last event}
        self._written: Dict[str, int] = {}  # {curve: the number of its points}
        self._step: Optional[int] = None

    def add(self, latest: Latest) -> None:
        """Write the figures of the worker's latest events that no earlier call has written.

        A point without a step gets its number in the curve: TensorBoard shows one point for a step.

        Raises OSError if the files cannot be written.
        """
        if latest.batch and latest.batch.step is not None:
            self._step = latest.batch.step
        for event in (latest.batch, latest.epoch, latest.end, latest.pushes):
            for curve in (*CURVES, PUSHES):
                if isinstance(event, curve.kinds):
                    self._add(curve, event, getattr(event, curve.field))
        for metric in latest.metrics or ():
            self._add(of_metric(str(metric.name)), metric, metric.value)

    def _add(self, curve: Curve, event: Event, value: Optional[float]) -> None:
        """Write `value` of `event`, unless it is None or no event after the last of its curve."""
        if value is not None and event.time > self._seen.get(curve.name, 0.0):
            self._seen[curve.name] = event.time
            number = self._written.get(curve.name, 0)
            self._written[curve.name] = number + 1
            step = number if self._step is None else self._step
            self._writer.add_scalar(curve.name, value, step, event.time)


def write_tensorboard(folder: str, run: Run) -> None:
    """Write the curves of each worker to `folder`, a folder such as worker-0 for each worker.

    The function replaces an earlier `folder`. A point without a step gets its number in the curve.
    """
    from tensorboardX import SummaryWriter

    draft = folder + ".part"
    shutil.rmtree(draft, ignore_errors=True)
    for index, worker in sorted(run.workers.items()):
        if not any(worker.readings.values()):
            continue
        with SummaryWriter(os.path.join(draft, "worker-%d" % index), max_queue=1000) as writer:
            for name, readings in worker.readings.items():
                for number, one in enumerate(readings):
                    step = number if one.step is None else int(one.step)
                    writer.add_scalar(name, one.value, step, (run.begin or 0.0) + one.seconds)
    shutil.rmtree(folder, ignore_errors=True)
    if os.path.isdir(draft):
        os.rename(draft, folder)
