"""The figures that the benchmarks of unequal machines make of a job's events."""

import pytest

from bench import _figures
from bench._figures import Window
from mxcluster.model.events import Batch, Epoch, StepTimes, Usage


def batch(worker, time, samples):
    return Batch(role="worker", index=worker, time=time, samples=samples)


# Worker 0 trains 100 samples/s from 10 s to 50 s, worker 1 trains 50 from 12 s to 60 s.
EVENTS = [batch(0, 10.0 + second, 100 * second) for second in range(41)]
EVENTS += [batch(1, 12.0 + 2 * second, 100 * second) for second in range(25)]
EVENTS += [Epoch(role="worker", index=0, time=90.0, samples=7)]


def test_the_window_is_the_last_time_in_which_all_workers_train():
    found = _figures.window(EVENTS, 2, warm_up=5, seconds=20)
    assert found == Window(30, 50)
    assert _figures.window(EVENTS, 2, warm_up=15, seconds=40) == Window(27, 50), "what there is"
    assert _figures.window(EVENTS, 2, 5, 40, cycle=10) == Window(20, 50), "whole cycles only"


def test_a_training_that_is_too_short_is_refused():
    with pytest.raises(ValueError, match="for 8 s after the warm-up of 30 s, and 20 s are wanted"):
        _figures.window(EVENTS, 2, warm_up=30, seconds=20)
    with pytest.raises(ValueError, match="2 of 3 workers have trained"):
        _figures.window(EVENTS, 3, warm_up=0, seconds=20)


def test_a_speed_counts_all_workers_in_the_same_window():
    assert _figures.samples_per_s(EVENTS, Window(20, 40)) == pytest.approx(150)
    # Between two events of a worker its samples are interpolated.
    assert _figures.samples_per_s(EVENTS, Window(20.5, 33.3)) == pytest.approx(150)


def times(worker, time, steps, **parts):
    values = dict.fromkeys(("data", "compute", "push_pull"), 0.0)
    values.update(parts)
    return StepTimes(
        role="worker", index=worker, time=time, steps=steps, samples=32 * steps, **values
    )


PARTED = [
    times(0, 10.0, 5, compute=99.0),
    times(0, 20.0, 10, data=1.0, compute=100.0, push_pull=1.0, quota=0.5),
    times(0, 40.0, 50, data=3.0, compute=108.0, push_pull=9.0, quota=2.5),
    times(0, 70.0, 51, compute=999.0),
    times(1, 20.0, 10),
    times(1, 41.0, 11),
    Usage(role="server", index=0, time=25.0, cpu=0.1),
    Usage(role="server", index=0, time=35.0, cpu=0.3),
    Usage(role="server", index=1, time=30.0, cpu=0.1),
    Usage(role="server", index=1, time=60.0, cpu=9.0),
    Usage(role="worker", index=0, time=30.0, cpu=5.0),
]


def test_the_parts_of_a_step_add_up_and_the_busiest_server_is_a_part_of_its_own():
    (step,) = _figures.steps(PARTED, Window(15, 40))
    assert (step.worker, step.seconds, step.samples) == (0, pytest.approx(0.5), 32)
    assert {name: pytest.approx(seconds) for name, seconds in step.parts.items()} == {
        "data": 0.05,
        "compute": 0.2,
        "remainder": 0.0,
        "exchange": 0.0,
        "push_pull": 0.1,  # 0.2, without the server
        "servers": 0.1,  # 0.2 cores of 0.5 s
        "quota": 0.05,
    }
    assert step.covered == pytest.approx(1.0)
    header, line = _figures.breakdown("dist_sync", [step])
    assert header.split()[:4] == ["dist_sync", "step", "sum", "data"]
    assert line.split()[:4] == ["worker", "0", "0.5000", "100.0%"]


def test_a_server_computes_at_most_while_a_worker_waits_for_it():
    more = PARTED + [Usage(role="server", index=2, time=30.0, cpu=1.0)]
    (step,) = _figures.steps(more, Window(15, 40))
    assert (step.parts["servers"], step.parts["push_pull"]) == (pytest.approx(0.2), 0)


def test_a_speed_is_a_part_of_the_limit_of_its_own_turn():
    rows = [("dist_sync", [50.0, 40.0, 30.0]), ("dist_gsync", [90.0, 45.0, 80.0])]
    limits = [100.0, 50.0, 100.0]
    head, limit, sync, gsync = _figures.table(rows, limits)
    assert "0.500 (0.400 to 0.650)" in sync
    assert "0.900 (0.850 to 0.900)" in gsync and gsync.endswith("     0.500"), "the baseline's part"
    assert "100 (75 to 100)" in limit and head.split()[0] == "scheme"
