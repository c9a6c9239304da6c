"""events.csv and the files for TensorBoard."""

import csv
import glob

import pytest
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.record_writer import masked_crc32c  # the records carry this checksum

from mxcluster.events import Line
from mxcluster.job.report import exports
from mxcluster.model.events import Batch, Epoch, Latest, Metric, Note, Pushes
from tests.waiting import until


def records(path):
    """Yield the events of a file of TensorBoard."""
    with open(path, "rb") as stream:
        for header in iter(lambda: stream.read(12), b""):
            size = int.from_bytes(header[:8], "little")
            content = stream.read(size)
            if len(content) < size:  # a record that the library still writes
                return
            assert int.from_bytes(stream.read(4), "little") == masked_crc32c(content)
            yield Event.FromString(content)


@pytest.mark.slow
def test_each_worker_has_its_curves_in_tensorboard(good_run):
    for index in range(4):
        (path,) = glob.glob(str(good_run / "tensorboard" / ("worker-%d" % index) / "events.out.*"))
        found = {}
        for event in records(path):
            for value in event.summary.value:
                found.setdefault(value.tag, []).append((event.step, value.simple_value))
        assert set(found) == {"loss", "accuracy", "speed"}
        assert [step for step, _ in found["loss"]] == list(range(1, 61))
        assert [step for step, _ in found["accuracy"]][:6] == [10, 20, 30, 40, 50, 60]
    assert not (good_run / "tensorboard.part").exists()


@pytest.mark.slow
def test_a_running_worker_adds_each_event_once(tmp_path):
    live = exports.LiveCurves(str(tmp_path))
    batch = Batch(time=5.0, step=3, loss=0.5, samples_per_s=100.0)
    for latest in (
        Latest(batch=batch),
        Latest(batch=batch),
        Latest(batch=batch.replaced(time=6.0, step=4, loss=0.25), epoch=Epoch(accuracy=0.9)),
        Latest(
            metrics=[Metric(time=7.0, name="bleu", value=4.5)],
            pushes=Pushes(time=7.0, pushes=9, per_s=3.0),
        ),
    ):
        live.add(latest)
    (path,) = glob.glob(str(tmp_path / "events.out.*"))

    def found():
        """Return the figures that a thread of the library has written so far."""
        values = {}
        for event in records(path):
            for value in event.summary.value:
                figure = (event.step, round(value.simple_value, 3))
                values.setdefault(value.tag, []).append(figure)
        return values

    until(lambda: sum(map(len, found().values())) == 7, evidence=lambda: str(found()))
    assert found() == {
        "loss": [(3, 0.5), (4, 0.25)],
        "speed": [(3, 100.0), (4, 100.0)],
        "accuracy": [(4, 0.9)],
        "metric/bleu": [(4, 4.5)],
        "pushes": [(4, 3.0)],
    }


@pytest.mark.slow
def test_points_without_a_step_are_numbered(tmp_path):
    """The lines of a script tell no step, and TensorBoard shows only one point of each step."""
    live = exports.LiveCurves(str(tmp_path))
    for time in (1.0, 2.0, 2.0, 3.0):
        live.add(Latest(epoch=Epoch(time=time, accuracy=0.5)))
    (path,) = glob.glob(str(tmp_path / "events.out.*"))

    def steps():
        return [event.step for event in records(path) if event.summary.value]

    until(lambda: len(steps()) == 3, evidence=lambda: str(steps()))
    assert steps() == [0, 1, 2]


def test_each_event_is_a_row(good_run):
    with open(good_run / "events.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == len((good_run / "events.jsonl").read_text().splitlines())
    losses = [float(row["loss"]) for row in rows if row["event"] == "batch"]
    assert len(losses) == 240 and all(0 < loss < 3 for loss in losses)
    assert {row["y"][:1] for row in rows if row["event"] == "gsync"} == {"{"}


def test_metrics_and_pushes_have_columns(tmp_path):
    events = [Metric(name="bleu", value=4.5), Pushes(pushes=9, per_s=3.0)]
    exports.write_csv(str(tmp_path / "events.csv"), [Line(one, one.encode()) for one in events])
    with open(tmp_path / "events.csv", newline="") as stream:
        bleu, pushes = csv.DictReader(stream)
    assert (bleu["event"], bleu["name"], bleu["value"]) == ("metric", "bleu", "4.5")
    assert (pushes["event"], pushes["pushes"], pushes["per_s"]) == ("pushes", "9", "3.0")


@pytest.mark.parametrize("text", ["=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)", "\t=1"])
def test_a_text_of_a_script_is_no_formula(text, tmp_path):
    lines = [Line(Note(), {"event": "note", "text": text, text: 1})]
    exports.write_csv(str(tmp_path / "events.csv"), lines)
    with open(tmp_path / "events.csv", newline="") as stream:
        titles, row = csv.reader(stream)
    assert row[titles.index("text")] == "'" + text and "'" + text in titles
