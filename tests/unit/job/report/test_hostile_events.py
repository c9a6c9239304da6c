"""A node's program may write anything into its events; the report leaves damaged ones out."""

import json
import tarfile

import pytest

from mxcluster.job import report
from mxcluster.job.report import curves, sound_events
from mxcluster.model.events import Event, NodeUsage
from tests.unit.job.report import fake_run

TIME = fake_run.BEGIN + 60  # after all other events
WORKER = '"time": %f, "role": "worker", "index": 0' % TIME
HOSTILE = {
    "time NaN": '{"event": "end", "time": NaN, "role": "worker", "index": 0}',
    "time infinite": '{"event": "end", "time": 1e999, "role": "worker", "index": 0}',
    "time before all dates": '{"event": "note", "time": -1e18, "text": "x"}',
    "time with 400 digits": '{"event": "end", "time": %s, "role": "worker"}' % ("9" * 400),
    "kind a list": '{"event": ["end"], %s}' % WORKER,
    "role a list": '{"event": "end", "time": %f, "role": ["worker"], "index": 0}' % TIME,
    "index a list": '{"event": "end", "time": %f, "role": "worker", "index": [0]}' % TIME,
    "group a dict": '{"event": "gsync", "time": %f, "role": "server", "index": 0, "group": {"a": 1}'
    ', "y": {}}' % TIME,
    "group outside the plan": '{"event": "gsync", "time": %f, "role": "server", "index": 0, '
    '"group": 77, "y": {"1": 3}}' % TIME,
    "group without a server": '{"event": "gsync", "time": %f, "group": 0, "y": {"1": 3}}' % TIME,
    "host outside the plan": '{"event": "note", "host": "elsewhere", "text": "x", %s}' % WORKER,
    "loss a list": '{"event": "batch", "loss": [1], %s}' % WORKER,
    "loss too large for a sum": '{"event": "batch", "loss": 1e308, %s}' % WORKER,
    "nested too deep for a parser": '{"event": "note", "text": %s, %s}'
    % ("[" * 100000 + "]" * 100000, WORKER),
    "nested deep": '{"event": "note", "text": %s, %s}' % ("[" * 200 + "]" * 200, WORKER),
    "no object": "[1]",
}


def archives_with(tmp_path, plan, lines):
    """Return {host: archive} of a run in whose events node1 has written `lines`, too."""
    archives = fake_run.make_archives(str(tmp_path / "nodes"), plan, epochs=1, batches=3)
    with open(str(tmp_path / "nodes" / "node1" / "events.jsonl"), "a") as stream:
        stream.write("".join(line + "\n" for line in lines))
    with tarfile.open(archives["node1"], "w") as tar:
        tar.add(str(tmp_path / "nodes" / "node1"), arcname=".")
    return archives


@pytest.mark.slow
def test_damaged_events_of_a_node_are_left_out_and_counted(tmp_path, cache_dir):
    plan = fake_run.make_plan()
    clean = report.assemble(
        str(tmp_path / "clean"), archives_with(tmp_path / "a", plan, []), plan, cache_dir
    )
    archives = archives_with(tmp_path / "b", plan, HOSTILE.values())
    verdict = report.assemble(str(tmp_path / "run"), archives, plan, cache_dir)
    told = "node1: the report leaves out %d damaged events" % len(HOSTILE)
    assert verdict.warnings == [*clean.warnings, told]
    assert verdict.replaced(warnings=[]) == clean.replaced(warnings=[])
    events = [(tmp_path / name / "events.jsonl").read_text() for name in ("clean", "run")]
    assert events[0] == events[1]
    assert told in (tmp_path / "run" / "report.html").read_text()


def test_a_damaged_event_does_not_end_the_drawing(tmp_path, cache_dir, monkeypatch):
    """The file events.jsonl of a run folder may be as damaged as that of a node."""
    monkeypatch.setattr(curves, "draw", lambda *given: b"")
    plan = fake_run.make_plan()
    report.assemble(str(tmp_path / "run"), archives_with(tmp_path, plan, []), plan, cache_dir)
    with open(str(tmp_path / "run" / "events.jsonl"), "a") as stream:
        stream.write("".join(line + "\n" for line in HOSTILE.values()))
    report.write(str(tmp_path / "run"), cache_dir)
    page = (tmp_path / "run" / "report.html").read_text()
    assert "events.jsonl: the report leaves out %d damaged events" % len(HOSTILE) in page


def test_a_node_tells_no_figures_of_another_node():
    plan = fake_run.make_plan()
    for host, is_own in (("node1", True), ("node2", False), (None, False)):
        event = NodeUsage(time=TIME, host=host, received=1e9)
        assert sound_events.own_events(plan, "node1")(event) is is_own
    for host, is_known in (("node2", True), ("elsewhere", False)):
        assert sound_events.own_events(plan)(NodeUsage(time=TIME, host=host)) is is_known


def test_events_of_a_script_are_kept():
    """A script may write kinds and fields of its own."""
    is_own = sound_events.own_events(fake_run.make_plan(), "node1")
    for line in (
        '{"event": "mine", "note": {"deep": [[1, {"x": null}]]}, %s}' % WORKER,
        '{"event": "mine", "time": 5, "role": null, "index": null, "host": "node1"}',
        '{"event": "kv", "waited_s": null, "seconds": 1.5, %s}' % WORKER,
    ):
        assert is_own(Event.decode(json.loads(line))), line
