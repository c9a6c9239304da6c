import pytest

from mxcluster.job.report import series
from mxcluster.model.events import (
    MOST_METRICS,
    Batch,
    End,
    Epoch,
    Evaluation,
    Event,
    Metric,
    Pushes,
    Start,
    Updates,
)
from tests.unit.job.report import fake_run


def batch(index, time, **fields):
    return Batch(role="worker", index=index, time=time, **fields)


def test_each_curve_is_a_number_in_its_events():
    for curve in series.CURVES:
        for kind in curve.kinds:
            event = kind.decode({"time": 1.0, curve.field: 0.5})
            assert isinstance(event, Event) and getattr(event, curve.field) == 0.5


def test_evaluations_are_points_of_the_accuracy():
    """The events come after the training, with the time at which the weights were pulled."""
    worker = {"role": "worker", "index": 0}
    events = [
        Start(time=100.0, **worker),
        batch(0, 103.0, samples=90),
        Evaluation(time=102.0, number=1, samples=64, accuracy=0.25, **worker),
    ]
    found = series.collect(fake_run.make_plan(), sorted(events, key=lambda one: one.time))
    assert found.workers[0].points["accuracy"] == [(2.0, 0.25)]
    assert found.workers[0].readings["accuracy"][0].samples == 64


def test_series_begin_with_the_first_event_and_separate_the_workers():
    data = series.collect(
        fake_run.make_plan(),
        [
            Start(role="worker", index=1, time=100.0, epochs=2),
            batch(0, 101.0, loss=2.0, samples_per_s=50.0),
            batch(1, 102.0, loss=4.0, samples_per_s=None),
            batch(7, 102.0, loss=1.0),  # outside the plan
            Epoch(role="worker", index=0, time=103.0, accuracy=0.5),
            End(role="worker", index=0, time=104.0, accuracy=0.75),
        ],
    )
    assert data.begin == 100.0
    points = data.workers[0].points
    assert (points["loss"], points["speed"]) == ([(1.0, 2.0)], [(1.0, 50.0)])
    assert points["accuracy"] == [(3.0, 0.5), (4.0, 0.75)]
    assert {name: found for name, found in data.workers[1].points.items() if found} == {
        "loss": [(2.0, 4.0)]
    }
    assert data.workers[1].start.epochs == 2


def test_a_metric_has_a_curve_of_its_own():
    metrics = [
        Metric(role="worker", index=index, time=time, name=name, value=value)
        for index, time, name, value in (
            (0, 100.0, "bleu", 3.0),
            (1, 101.0, "bleu", 4.0),
            (0, 102.0, "lr", 0.5),
            (0, 103.0, "empty", None),
        )
    ]
    data = series.collect(fake_run.make_plan(), metrics)
    assert [curve.title for curve in series.drawn(data)] == ["bleu", "lr"]
    assert data.workers[1].points["metric/bleu"] == [(1.0, 4.0)]
    many = [
        Metric(role="worker", index=0, time=1.0, name="m%d" % number, value=1.0)
        for number in range(100)
    ]
    drawn = series.drawn(series.collect(fake_run.make_plan(), many))
    assert len(drawn) == MOST_METRICS


def test_pushes_have_a_curve_if_nothing_else_is_known():
    pushes = Pushes(role="worker", index=0, time=100.0, pushes=10, per_s=2.5)
    data = series.collect(fake_run.make_plan(), [pushes])
    assert [curve.name for curve in series.drawn(data)] == ["pushes"]
    data = series.collect(fake_run.make_plan(), [pushes, batch(1, 101.0, loss=2.0)])
    assert [curve.name for curve in series.drawn(data)] == ["loss"]


def test_smooth_keeps_a_few_points_unchanged():
    points = [(float(x), float(x * x)) for x in range(9)]
    assert series.smooth(points) == points
    assert series.smooth([]) == []
    points = [(float(x), float(x % 3)) for x in range(15)]
    assert series.smooth(points)[:3] == [(0.0, 0.0), (1.0, 0.5), (2.0, 1.0)]


def test_smooth_averages_backwards_and_keeps_both_ends():
    points = [(float(x), float(x % 2)) for x in range(5000)]
    smoothed = series.smooth(points)
    assert len(smoothed) <= series.MOST_POINTS + 1
    assert smoothed[0] == (0.0, 0.0) and smoothed[-1][0] == 4999.0
    assert all(value == pytest.approx(0.5, abs=0.01) for _, value in smoothed[100:])


def updates(server, group, y, dropped=None, time=1.0):
    return Updates(role="server", index=server, time=time, group=group, y=y, dropped=dropped or {})


def test_y_sums_the_last_event_of_every_server():
    found = series.y_histograms(
        [
            updates(0, 0, {"1": 5}),
            updates(1, 0, {"1": 1, "10": 1}),
            updates(0, 0, {"1": 6, "2": 2}, time=2.0),
            updates(0, 1, {"2": 4}, time=2.0),
            updates(1, 1, {}),
            updates(0, 2, {}, {"9": 2}, time=2.0),
            updates(1, 2, {}, {"6": 1, "7": 3}),
        ]
    )
    assert {group: (one.counts, one.mean, one.dropped) for group, one in found.items()} == {
        0: ({1: 7, 2: 2, 10: 1}, 2.1, 0),
        1: ({2: 4}, 2.0, 0),
        2: ({}, None, 6),
    }


def test_a_group_with_mostly_dropped_updates_gets_a_warning():
    plan = fake_run.make_plan()
    plan = plan.replaced(options=plan.options.replaced(gsync_max_y=4))
    events = [updates(0, 0, {"1": 3}, {"5": 3}), updates(0, 1, {}, {"9": 2, "6": 1})]
    assert series.dropped_groups(plan, events) == [
        "group b: the servers dropped 3 of 3 updates, because Y was above gsync_max_y=4. The job "
        "learned nothing from this group: give a larger gsync_max_y"
    ]
    (line,) = series.dropped_groups(plan, [updates(0, 0, {"1": 3}, {"5": 4})])
    assert "group a: the servers dropped 4 of 7 updates" in line and "learned little from" in line


def test_labels_name_the_group_if_there_are_several():
    assert series.label(fake_run.make_plan(), 2) == "worker-2, node2, group b"
    assert series.label(fake_run.make_plan(groups=1), 2) == "worker-2, node2"
    assert series.group_label(fake_run.make_plan().replaced(group_labels=[]), 1) == "1"
