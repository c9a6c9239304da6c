import json
import multiprocessing
import threading
import time

import numpy
import pytest

from mxcluster import events
from mxcluster.model.events import Batch, Note


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def kinds_of(lines):
    return [line.content["event"] for line in lines]


def test_an_event_has_its_process_and_time(tmp_path):
    log = events.EventLog(str(tmp_path / "events.jsonl"), role="worker", index=2, host="node1")
    log.write(Batch(step=7, loss=numpy.float32(0.5)))
    (event,) = lines_of(tmp_path / "events.jsonl")
    assert abs(event.pop("time") - time.time()) < 10
    assert event == {
        "event": "batch",
        "role": "worker",
        "index": 2,
        "host": "node1",
        "step": 7,
        "loss": 0.5,
    }


def test_numbers_of_numpy_are_cast(tmp_path):
    log = events.EventLog(str(tmp_path / "e"))
    log.write("x", a=numpy.float32(0.5), b={1: numpy.bool_(True)}, c=[numpy.arange(3), None, "t"])
    (event,) = lines_of(tmp_path / "e")
    assert (event["a"], event["b"], event["c"]) == (0.5, {"1": True}, [[0, 1, 2], None, "t"])


def test_nan_and_infinity_become_null_and_are_noted_once(tmp_path):
    log = events.EventLog(str(tmp_path / "e"))
    for step in (5, 6):
        log.write("batch", step=step, deep=[float("-inf")])
        log.write(Batch(step=step, loss=numpy.float32("nan")))
    text = (tmp_path / "e").read_text()
    assert "NaN" not in text and "Infinity" not in text, text
    batches = [event for event in lines_of(tmp_path / "e") if event["event"] == "batch"]
    assert [event["deep"] for event in batches[::2]] == [[None]] * 2
    assert [event["loss"] for event in batches[1::2]] == [None] * 2
    notes = [event["text"] for event in lines_of(tmp_path / "e") if event["event"] == "note"]
    assert notes == [
        "deep became -inf (event batch, step 5)",
        "loss became nan (event batch, step 5)",
    ]


def test_an_event_with_another_type_is_refused(tmp_path):
    with pytest.raises(TypeError, match="an event cannot hold .*object"):
        events.EventLog(str(tmp_path / "e")).write("x", thing=object())


def _write_many(path, index):
    log = events.EventLog(path, role="worker", index=index)
    threads = [
        threading.Thread(
            target=lambda: [log.write("batch", step=step, text="x" * 900) for step in range(50)]
        )
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_concurrent_writes_do_not_tear_lines(tmp_path):
    path = tmp_path / "events.jsonl"
    workers = [
        multiprocessing.Process(target=_write_many, args=(str(path), index)) for index in range(4)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(30)
    assert [worker.exitcode for worker in workers] == [0] * 4
    assert len(lines_of(path)) == 4 * 3 * 50


def test_from_env_is_the_log_of_this_process(tmp_path, monkeypatch):
    for name, value in (
        ("JOB_DIR", str(tmp_path)),
        ("ROLE", "server"),
        ("INDEX", "0"),
        ("HOST", "node3"),
    ):
        monkeypatch.setenv("MXCLUSTER_" + name, value)
    events.from_env().write(Note(text="here"))
    (event,) = lines_of(tmp_path / "events.jsonl")
    assert (event["role"], event["index"], event["host"]) == ("server", 0, "node3")


def test_from_env_outside_a_job_writes_nothing(monkeypatch):
    monkeypatch.delenv("MXCLUSTER_JOB_DIR", raising=False)
    log = events.from_env()
    log.write("batch", loss=object())
    log.close()


def test_a_dropped_log_leaves_no_descriptor_open(tmp_path, monkeypatch):
    monkeypatch.setenv("MXCLUSTER_JOB_DIR", str(tmp_path))
    descriptors = {events.from_env()._fd for _ in range(20)}
    assert len(descriptors) == 1, descriptors


def test_read_skips_torn_lines(tmp_path):
    path = tmp_path / "e"
    path.write_bytes(
        b'{"event": "a", "time": 1}\n{"event": "b", "ti{"event": "c", "time": 2}\n[1]\n"text"\n'
        b'{"event": "d", "time": 3}\n{"event": "e", "time": 4, "text": "\xff'
    )
    assert kinds_of(events.read(str(path))) == ["a", "d"]


@pytest.mark.parametrize("moment", ["1e999", "-1e999", "NaN", "1" * 400, '"1"', "[" * 100000])
def test_read_skips_damaged_and_hostile_lines(tmp_path, moment):
    path = tmp_path / "e"
    path.write_text('{"event": "a", "time": %s}\n{"event": "b", "time": 1}\n' % moment)
    assert kinds_of(events.read(str(path))) == ["b"]


def test_merge_sorts_by_time_and_keeps_the_order_of_equal_times(tmp_path):
    for name, moments in (("one", (1, 3, 3)), ("two", (2, 3, 0))):
        (tmp_path / name).write_text(
            "".join(
                '{"event": "%s%d", "time": %d}\n' % (name, place, moment)
                for place, moment in enumerate(moments)
            )
        )
    damaged = []
    tests = {
        str(tmp_path / "one"): lambda event: True,
        str(tmp_path / "two"): lambda event: event.time != 2,
    }
    merged = kinds_of(events.merge(tests, damaged.append))
    assert merged == ["two2", "one0", "one1", "one2", "two1"]
    assert damaged == [str(tmp_path / "two")]
