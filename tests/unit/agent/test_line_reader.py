"""The reader of lines: a process that follows the logs of workers, with real logs and patterns."""

import json
import subprocess
import sys
import time

import pytest

from mxcluster import events
from mxcluster.agent import line_reader
from mxcluster.agent.line_reader import MOST_BYTES, GrowingLog
from mxcluster.model.events import Batch, DroppedMetric, Epoch, Metric, Pushes
from mxcluster.model.line_request import LineRequest
from tests.unit.agent.jobs import PACKAGE

pytestmark = pytest.mark.slow

SPEED = "Epoch[%d] Batch [20]\tSpeed: 100.00 samples/sec\taccuracy=0.500000\n"


class Follower:
    """A reader process in the job folder `path`."""

    def __init__(self, path, workers, metrics=None):
        self.path = path
        request = LineRequest(host="node1", workers=workers, metrics=metrics or {})
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mxcluster.agent.line_reader"],
            stdin=subprocess.PIPE,
            cwd=str(path),
            env={"PYTHONPATH": PACKAGE},
        )
        self.process.stdin.write(json.dumps(request.encode()).encode() + b"\n")
        self.process.stdin.flush()

    def events(self):
        """Return the events so far."""
        path = self.path / events.FILE
        return [line.event for line in events.read(str(path))] if path.exists() else []

    def until(self, cls):
        """Wait for an event of the class `cls`."""
        deadline = time.monotonic() + 60
        while not any(isinstance(event, cls) for event in self.events()):
            assert self.process.poll() is None and time.monotonic() < deadline, self.events()
            time.sleep(0.05)

    def finish(self):
        """End stdin, wait for the process, and return all events."""
        self.process.stdin.close()
        assert self.process.wait(timeout=120) == 0
        return self.events()


@pytest.fixture
def follow(tmp_path):
    """Yield a function that starts a Follower in the test's folder. Kill the process at the end."""
    made = []

    def begin(workers, **more):
        made.append(Follower(tmp_path, workers, **more))
        return made[-1]

    yield begin
    for one in made:
        one.process.kill()
        one.process.wait()
        one.process.stdin.close()


def test_the_lines_of_each_worker_become_its_events(follow, tmp_path):
    follower = follow({"worker-0": 0, "worker-3": 3})
    with open(str(tmp_path / "worker-0.log"), "w", buffering=1) as log:
        log.write(SPEED % 0)
        follower.until(Batch)  # while the worker runs
        (tmp_path / "worker-3.log").write_text("Epoch[0] Validation-accuracy=0.75")  # no line end
        log.write(SPEED % 1)
        found = follower.finish()
    assert {(event.role, event.host, event.source) for event in found} == {
        ("worker", "node1", "lines")
    }
    batches = [(event.index, event.epoch) for event in found if isinstance(event, Batch)]
    assert batches == [(0, 0), (0, 1)]
    assert [event.index for event in found if isinstance(event, Epoch)] == [3]


def test_a_slow_pattern_is_dropped_and_the_others_go_on(follow, tmp_path):
    metrics = {"slow": "(a+)+$", "bleu": r"BLEU (?P<epoch>\d+) is (?P<value>[\d.]+)"}
    (tmp_path / "worker-0.log").write_text("a" * 60 + "b\nBLEU 4 is 31.5\n" + "a" * 60 + "b\n")
    found = follow({"worker-0": 0}, metrics=metrics).finish()
    [drop] = [event for event in found if isinstance(event, DroppedMetric)]
    assert (drop.name, drop.host) == ("slow", "node1")
    assert drop.why == "needs more than 1 s for a line of 61 characters"
    [metric] = [event for event in found if isinstance(event, Metric)]
    assert (metric.name, metric.value, metric.epoch, metric.index) == ("bleu", 31.5, 4, 0)


def test_a_pattern_that_the_nodes_python_refuses_is_dropped(follow, tmp_path):
    (tmp_path / "worker-0.log").write_text(SPEED % 0)
    found = follow({"worker-0": 0}, metrics={"later": "(a"}).finish()
    assert [type(event) for event in found] == [DroppedMetric, Batch, Metric]
    assert "this node's Python" in found[0].why


def test_a_worker_without_a_known_line_shows_its_pushes(follow, tmp_path, monkeypatch):
    pulse = {"phase": "training", "pushes": 10, "time": 1.0}
    (tmp_path / "worker-0.pulse").write_text(json.dumps(pulse))
    follower = follow({"worker-0": 0, "worker-1": 1})
    follower.until(Pushes)
    found = follower.finish()
    assert [(event.index, event.pushes, event.per_s) for event in found][:1] == [(0, 10, 0.0)]


def test_the_pushes_of_a_second(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    worker = line_reader.Worker("worker-0", 0, "node1", line_reader.Patterns({}, None))
    clock = iter([100.0, 104.0])
    monkeypatch.setattr(line_reader.time, "monotonic", lambda: next(clock))
    for pushes in (10, 110):
        pulse = {"phase": "training", "pushes": pushes, "time": 1.0}
        (tmp_path / "worker-0.pulse").write_text(json.dumps(pulse))
        worker.count()
    [line] = events.read(events.FILE)
    assert (line.event.pushes, line.event.per_s) == (110, 25.0)


def test_a_log_is_read_once_in_lines_of_a_thousand_characters(tmp_path):
    path = tmp_path / "worker-0.log"
    log = GrowingLog(str(path))
    assert list(log.lines()) == []
    path.write_bytes(b"one\ntw")
    assert list(log.lines()) == ["one"]
    with path.open("ab") as stream:
        stream.write(b"o\n" + b"x" * 5000)
    assert list(log.lines()) == ["two"]
    with path.open("ab") as stream:
        stream.write(b"y" * 5000 + b"\nna\xc3\xafve \xff\n")
    assert list(log.lines()) == ["x" * 1000, "na\u00efve \ufffd"]
    assert list(log.lines()) == []


def test_the_frames_of_a_bar_that_runs_are_read(tmp_path):
    path = tmp_path / "worker-0.log"
    log = GrowingLog(str(path))
    path.write_bytes(b"10% loss=3\r20% loss=2\r30% lo")
    assert list(log.lines()) == ["20% loss=2"]
    with path.open("ab") as stream:
        stream.write(b"ss=1\r\nend\r\n")
    assert list(log.lines()) == ["30% loss=1", "end"]
    with path.open("ab") as stream:
        stream.write(b"no end")
    assert list(log.lines()) == [] and list(log.lines(has_ended=True)) == ["no end"]


def test_of_a_flood_of_lines_the_last_are_read(tmp_path):
    path = tmp_path / "worker-0.log"
    log = GrowingLog(str(path))
    path.write_bytes(b"first\n" + b"0123456\n" * (MOST_BYTES // 4) + b"last\n")
    found = list(log.lines())
    assert found[-1] == "last" and set(found[:-1]) == {"0123456"}
    assert len(found) <= MOST_BYTES // 8 + 1 and list(log.lines()) == []
    with path.open("ab") as stream:
        stream.write(b"more\n")
    assert list(log.lines()) == ["more"]


def test_a_log_that_is_a_link_is_not_read(tmp_path):
    (tmp_path / "secret").write_text("Epoch[0] Train-loss=1\n")
    (tmp_path / "worker-0.log").symlink_to(tmp_path / "secret")
    assert list(GrowingLog(str(tmp_path / "worker-0.log")).lines()) == []
