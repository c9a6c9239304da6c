"""The figures of a job with a script, and the words about their sources."""

import pytest

from mxcluster import events as event_files
from mxcluster.job import script_figures
from mxcluster.model.events import LINES, Batch, Done, DroppedMetric, Epoch, Metric, Pushes
from tests.unit.job.test_verdict import PLAN, statuses
from tests.unit.statuses import compute

SCRIPT = PLAN.replaced(options=PLAN.options.replaced(script="mine.py"))


def batch(index, speed=None, loss=None, source=LINES):
    return Batch(role="worker", index=index, samples_per_s=speed, loss=loss, source=source)


def epoch(index, accuracy, source=LINES):
    return Epoch(role="worker", index=index, accuracy=accuracy, source=source)


def test_accuracy_and_speed_of_a_script_come_from_its_events():
    found = [
        epoch(0, 0.5),
        epoch(0, 0.75),
        epoch(1, 0.9),
        batch(0, 100.0),
        batch(0, 300.0),  # the same number of samples in a third of the time
        batch(1, 50.0),
        batch(1, 0.0),
    ] + [Done(role="worker", index=index) for index in (0, 1)]
    verdict = compute(SCRIPT, statuses(), found)
    assert verdict["ok"]
    assert (verdict["accuracy"], verdict["samples_per_s"]) == (0.75, 200.0)
    assert compute(PLAN, statuses(), found)["accuracy"] is None  # a program sends the event `end`


@pytest.mark.parametrize(
    "found, words",
    [
        ([], "none: print lines as mx.callback.Speedometer and Module.fit do, with logging"),
        (
            [Pushes(role="worker", index=0, pushes=1, per_s=1.0, source=LINES)],
            "only pushes per second, by the counter of the kv-store: print lines as",
        ),
        ([epoch(0, 0.5)], "accuracy from worker 0's lines"),
        (
            [epoch(0, 0.5), epoch(1, 0.5), batch(0, 9.0, 2.0), batch(1, 9.0, 2.0)],
            "accuracy from worker 0's lines; loss, samples per second from the lines of 2 workers",
        ),
        (
            [
                epoch(0, 0.5, None),
                Metric(role="worker", index=1, name="bleu", value=1.0, source=LINES),
            ],
            "bleu from worker 1's lines; accuracy from events of the script",
        ),
    ],
)
def test_the_sources_of_the_figures(found, words):
    assert script_figures.sources(SCRIPT, found).startswith(words)
    assert script_figures.sources(PLAN, found) == ""


def test_a_dropped_metric_is_a_warning_with_its_nodes():
    drops = [
        DroppedMetric(name="bleu", why="needs more than 1 s for a line", host=host, source=LINES)
        for host in ("node2", "node1", "node1")
    ]
    [warning] = script_figures.dropped(drops)
    assert warning == (
        "the metric bleu is dropped on node1, node2, because its regular expression needs more "
        "than 1 s for a line: correct the expression in the knob metrics"
    )


def test_a_script_with_thousands_of_names_gets_a_short_sentence():
    found = [
        Metric(role="worker", index=0, name="m%d" % number, value=1.0, source=source)
        for number in range(5000)
        for source in (LINES, None)
    ]
    assert script_figures.sources(SCRIPT, found) == (
        "m0, m1, m2, m3, m4, m5 and 4994 more from worker 0's lines; "
        "m0, m1, m2, m3, m4, m5 and 4994 more from events of the script"
    )
    drops = [DroppedMetric(name="m%d" % number) for number in range(5000)]
    assert len(script_figures.dropped(drops)) == script_figures.MOST


def test_events_of_a_script_come_before_those_of_its_lines():
    own, other = batch(0, loss=2.0, source=None), batch(1, 50.0)
    found = [batch(0, 100.0), own, epoch(0, 0.5), other]
    assert event_files.first_hand(found) == [own, found[2], other]
