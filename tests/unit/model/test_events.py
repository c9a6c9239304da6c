"""The events of this and of an earlier version are read; other content is refused or left out."""

import json
import pathlib
import re
import time

import pytest

from mxcluster import events
from mxcluster.model.events import Batch, Event, Latest, Note, OwnEvent
from mxcluster.model.shapes import Wrong
from tests.unit.wrong_values import NOT_WHOLE, deep

SAMPLES = pathlib.Path(__file__).parent / "samples"
FILES = ("events.jsonl", "events_2026-11-23.jsonl")


def lines(name):
    return [json.loads(line) for line in (SAMPLES / name).read_text().splitlines()]


@pytest.mark.parametrize("name", FILES)
def test_each_event_of_a_version_is_read_with_all_its_fields(name):
    for content in lines(name):
        event = Event.decode(content)
        for field, value in content.items():
            attribute = "kind" if isinstance(event, OwnEvent) else "KIND"
            if field == "event":
                assert getattr(event, attribute) == value
            elif not isinstance(event, OwnEvent):
                assert event.encode().get(field) == value, (content["event"], field)


def test_the_sample_has_each_kind():
    assert {content["event"] for content in lines("events.jsonl")} == (
        set(Event.KINDS) - {""} | {"grad_norm"}
    )


def test_no_event_of_a_version_is_damaged(tmp_path):
    damaged = []
    for name in FILES:
        found = events.read(str(SAMPLES / name), damaged.append)
        assert [dict(line.content) for line in found] == lines(name) and not damaged


def test_fields_of_a_script_are_left_out_of_a_known_kind():
    content = {"event": "batch", "time": 1.5, "loss": 2, "mine": {"x": [1]}}
    assert Event.decode(content) == Batch(time=1.5, loss=2)


WRONG = {
    "batch": {
        "event": [["batch"], None, 3],
        "time": ["1", True, None, [], -1, 1e18, float("nan"), 10**400],
        "role": [1, True, [], {}, "a\nb"],
        "index": [*NOT_WHOLE, {"0": 1}],
        "host": [1, True, [], {}, "a\x1b[1m"],
        "epoch": NOT_WHOLE,
        "loss": ["1", True, [], {}, float("nan"), float("inf"), 1e308],
    },
    "usage": {
        "cpu": ["1", True, -0.1, 1e7, float("nan")],
        "busy": [1.1, -0.1, "1"],
        "memory": [*NOT_WHOLE, 2**61],
        "gpu_memory": [*NOT_WHOLE, 2**61],
    },
    "start": {"samples_in_share": NOT_WHOLE, "repeated": NOT_WHOLE},
    "kv": {"waited_s": ["1", True, [], float("nan")]},
    "gsync": {
        "group": NOT_WHOLE,
        "dropped": [7, {"12": -1}, {"x": 3}],
        "y": [None, {"1": "many"}, {"-1": 1}],
    },
    "balance": {"sizes": ["48", [48, 0]], "speeds": [["fast"]], "epoch": [None]},
    "measured": {"batches": [0], "median_s": ["fast", None]},
    "profile": {"servers": [None, [{"push_s": 1.0}]], "alone": [{}, 3.0]},
}


@pytest.mark.parametrize("kind, field", [(kind, field) for kind in WRONG for field in WRONG[kind]])
def test_a_wrong_field_is_named(kind, field):
    (event,) = [one for one in lines("events.jsonl") if one["event"] == kind and one["index"] == 0]
    for value in WRONG[kind][field]:
        with pytest.raises(Wrong, match="^%s" % re.escape(field)):
            Event.decode(dict(event, **{field: value}))


@pytest.mark.parametrize(
    "field, value",
    [
        ("own", -1.0),
        ("received", "1"),
        ("sent", 1e16),
        ("link", True),
        ("gpus", {"0": 1.5}),
        ("gpus", {"../0": 0.5}),
        ("gpus", [0.5]),
    ],
)
def test_a_wrong_figure_of_a_node_is_named(field, value):
    with pytest.raises(Wrong, match="^%s" % field):
        Event.decode({"event": "node_usage", "time": 1, "host": "node1", field: value})


@pytest.mark.parametrize("content", [[1], "text", 3, None, {}, {"event": "end"}, {"time": 1}])
def test_an_event_needs_its_kind_and_time(content):
    with pytest.raises(Wrong):
        Event.decode(content)


@pytest.mark.parametrize("value", [deep(50), {"x": float("nan")}, 10**400])
def test_a_field_of_a_script_has_a_depth_and_finite_numbers(value):
    texts = [json.dumps({"event": "mine", "time": 1, "own": own}) for own in (value, deep(10))]
    damaged = []
    assert [line.content["own"] for line in events.lines_of(texts, damaged.append)] == [deep(10)]
    assert damaged == texts[:1]


def test_a_note_is_one_line_of_text():
    for text, shown in (("a\x1b[1mb\nc", "ab c"), (0.5, "0.5"), ("x" * 3000, "x" * 2000)):
        assert Note.decode({"time": 1, "text": text}).text == shown


def test_the_latest_events_leave_out_an_event_that_is_not_valid():
    latest = Latest.decode(
        {
            "start": {"time": 1, "epochs": 3, "own": 1},
            "batch": {"time": "x"},
            "metrics": [{"time": "x"}],
        }
    )
    start = {"event": "start", "time": 1, "epochs": 3}
    assert latest.encode() == {"start": start, "metrics": []}
    with pytest.raises(Wrong):
        Latest.decode([])


@pytest.mark.slow
def test_reading_an_event_takes_little_more_than_reading_its_json():
    """A job of a day has millions of events. The factor is about 4.5 on a quiet machine."""
    texts = [json.dumps(lines("events.jsonl")[3])] * 20000
    factors = []
    for _ in range(3):
        began = time.thread_time()
        assert len([json.loads(text) for text in texts]) == 20000
        parsed = time.thread_time()
        assert len(list(events.lines_of(texts))) == 20000
        factors.append((time.thread_time() - parsed) / (parsed - began))
    assert min(factors) < 8, factors
