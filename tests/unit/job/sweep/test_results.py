"""Figures of a job from its recorded events."""

import csv
import io
import json

import pytest

from mxcluster.job.report import files
from mxcluster.job.sweep import comparison, results, specs
from mxcluster.model.events import Event, Updates
from mxcluster.model.sweep import GroupUpdates, Setting
from tests.unit.job.report import fake_run
from tests.unit.job.sweep.cluster import compared, spec_of


def event(kind, index=0, time=100.0, **fields):
    return Event.decode(
        dict({"event": kind, "role": "worker", "index": index, "time": time}, **fields)
    )


def of_measured(index, median=0.02, rate=1000.0, **changed):
    fields = {"batches": 50, "warm_up": 10, "batch_size": 32, "seconds": 1.6, "median_s": median}
    fields.update(p10_s=median / 2, p90_s=2 * median, samples_per_s=rate)
    fields.update(changed)
    return event("measured", index, **fields)


def test_the_figures_of_a_benchmark():
    events = [of_measured(0, 0.02, 1000.0), of_measured(1, 0.04, 500.0), event("end")]
    found = results.benchmark_figures(events, 2)
    times = (found.median_s, found.p10_s, found.p90_s)
    assert found.samples_per_s == 1500.0 and times == (pytest.approx(0.03), 0.01, 0.08)
    assert (found.batches, found.warm_up) == (50, 10)


def test_a_worker_without_valid_figures_spoils_the_job():
    assert results.benchmark_figures([of_measured(0)], 2).batches is None
    assert (
        results.benchmark_figures([of_measured(0), of_measured(1), of_measured(7)], 2).batches
        is None
    )


def test_the_common_rate_is_that_of_the_time_when_all_train():
    """Worker 0 trains 100 samples/s from 0 s to 10 s, worker 1 50 samples/s from 2 s to 20 s."""
    events = [event("batch", 0, second, samples=100 * second) for second in range(11)]
    events += [event("batch", 1, second, samples=50 * (second - 2)) for second in range(2, 21)]
    assert results.common_rate(events) == pytest.approx(150)
    # The reports of worker 0 are not those of the borders of the window.
    few = [event("batch", 0, second, samples=100 * second) for second in (0, 9)]
    assert results.common_rate(few + events[11:]) == pytest.approx(150)


def test_the_common_rate_needs_reports_of_all_workers():
    assert results.common_rate([]) is None
    events = [event("batch", 0, second, samples=second) for second in range(3)]
    assert results.common_rate(events) == pytest.approx(1)
    assert results.common_rate(events + [event("start", 1)]) is None
    late = [event("batch", 1, second, samples=second) for second in (5, 6)]
    assert results.common_rate(events + late) is None, "they never train together"


PLAN = fake_run.make_plan(workers=2, groups=2, kv="dist_gsync", servers=1)


def test_the_figures_of_a_comparison():
    events = [event("start", index, 100.0 + index) for index in (0, 1)]
    events += [
        event("epoch", 0, 104.0, epoch=0, accuracy=0.99),  # no reading of the servers' weights
        event("evaluation", 1, 110.0, number=1, samples=100, accuracy=0.5),
        event("evaluation", 0, 120.0, number=2, samples=300, accuracy=0.91),
        event("evaluation", 1, 125.0, number=3, samples=300, accuracy=0.92),
        event("waits", 0, seconds=10.0, waited_s=1.0),
        event("waits", 1, seconds=30.0, waited_s=9.0),
        event("end", 1, 133.0, samples=400, seconds=33.0, accuracy=0.99),
        event("end", 0, 134.0, samples=600, seconds=30.0, accuracy=0.93),
    ]
    events += [Updates(time=131.0, role="server", index=0, group=1, y={"1": 3, "3": 1})]
    found = results.comparison_figures(events, fake_run.verdict(accuracy=0.9), PLAN, 0.9)
    assert [(one.seconds, one.accuracy) for one in found.readings] == [
        (10.0, 0.5),
        (20.0, 0.91),
        (25.0, 0.92),
    ]
    assert (found.target_s, found.resolution, found.accuracy) == (20.0, 0.5, 0.9)
    assert (found.samples, found.seconds) == (1000, 33.0)
    assert found.waited == pytest.approx(10 / 40)
    assert found.y == {"b": GroupUpdates(mean=1.5, counts={"1": 3, "3": 1})}
    never = results.comparison_figures(events, fake_run.verdict(accuracy=0.9), PLAN, 0.95)
    assert never.target_s is None and never.resolution is None


def test_a_worker_alone_has_the_speed_of_its_measured_batches(tmp_path):
    spec = compared("bsp", solo=True)
    job = comparison.solo_jobs(spec)[2]
    run = ran(tmp_path / "run", OK, [of_measured(0, rate=250.0), event("machine", **MACHINE)])
    found = results.record(spec, job, "mine-solo-2", run, 12.0)
    assert (found.about.scheme, found.about.worker, found.samples_per_s) == ("solo", 2, 250.0)
    lacking = results.record(spec, job, "mine-solo-2", ran(tmp_path / "other", OK, []), 12.0)
    assert lacking.state == "failed" and "measured batches" in lacking.why


@pytest.mark.parametrize(
    "steps,late_steps,late",
    [(50, 1, False), (50, 2, True), (1000, 10, False), (1000, 11, True)],
)
def test_a_job_is_late_with_more_than_one_late_step_in_a_hundred(tmp_path, steps, late_steps, late):
    events = [event("end", 0, steps=1000, late_steps=0)]
    events += [event("end", 1, steps=steps, late_steps=late_steps), of_measured(0)]
    assert results.lateness(events) == (late_steps, late)
    spec = spec_of(worker_counts="1")
    (job,) = specs.benchmark_jobs(spec)
    found = results.record(spec, job, "mine-001", ran(tmp_path / "run", OK, events), 0)
    assert found.late is late
    assert results.as_csv([found]).splitlines()[0].count("late_steps") == 1


@pytest.mark.parametrize(
    "kind,state",
    [(None, "ok"), ("learning", "diverged"), ("nan", "diverged"), ("killed", "failed")],
)
def test_a_wrong_rate_is_a_result_and_a_fault_is_none(kind, state):
    verdict = fake_run.verdict(kind and fake_run.failure(kind=kind))
    assert results.state_of(verdict) == state


MACHINE = {"mxnet": "1.9.1", "numpy": "1.23.5", "python": "3.11.7", "cpu": "A CPU"}
MACHINE.update(cores=8, gpus=[])


def test_the_environment_names_what_differs():
    events = [
        event("machine", 0, **MACHINE),
        event("machine", 1, **dict(MACHINE, cpu="B", gpus=["V"])),
    ]
    plan = fake_run.make_plan(workers=4, groups=1, kv="dist_sync", servers=2)
    processes = [
        one.replaced(host="node%d" % (one.index + 1)) if one.role == "worker" else one
        for one in plan.processes
    ]
    plan = plan.replaced(processes=processes)
    found = results.environment(plan, events)
    assert found.cpus == ["A CPU, 8 cores", "B, 8 cores"] and found.gpus == ["V"]
    assert found.mxnet == ["1.9.1"] and found.workers == 4 and found.servers == 2


def ran(folder, verdict, events, plan=None):
    """Write the run folder of an ended job."""
    folder.mkdir(parents=True)
    plan = plan or fake_run.make_plan(workers=1, groups=1, kv="dist_sync", servers=1)
    files.write_json(str(folder / "plan.json"), plan.encode())
    (folder / "verdict.json").write_text(json.dumps(verdict.encode()))
    (folder / "events.jsonl").write_text("".join(json.dumps(one.encode()) + "\n" for one in events))
    return str(folder)


OK = fake_run.verdict()


def test_a_record_has_figures_and_environment(tmp_path):
    spec = spec_of(worker_counts="1")
    (job,) = specs.benchmark_jobs(spec)
    run = ran(tmp_path / "run", OK, [of_measured(0), event("machine", **MACHINE)])
    found = results.record(spec, job, "mine-001", run, 12.0)
    assert (found.state, found.id, found.wall_s) == ("ok", "mine-001", 12.0)
    assert found.samples_per_s == 1000.0 and found.environment.cpus == ["A CPU, 8 cores"]
    assert found.about.workers == 1


def test_a_job_without_a_measurement_has_failed(tmp_path):
    spec = spec_of(worker_counts="1")
    (job,) = specs.benchmark_jobs(spec)
    found = results.record(spec, job, "mine-001", ran(tmp_path / "run", OK, []), 0)
    assert found.state == "failed" and "measured batches" in found.why
    assert results.record(spec, job, "mine-001", str(tmp_path / "other"), 0) is None


def test_a_failed_job_has_its_reason(tmp_path):
    spec = compared("bsp")
    job = comparison.job(spec, "bsp", Setting(0.05, 0.9), 0)
    verdict = fake_run.verdict(fake_run.failure(exit_code=-9))
    found = results.record(spec, job, "mine-1", ran(tmp_path / "run", verdict, []), 0)
    assert (found.state, found.why, found.target_s) == ("failed", "gone", None)


def test_records_are_kept_as_lines_and_as_csv(tmp_path):
    spec = spec_of(worker_counts="1")
    (job,) = specs.benchmark_jobs(spec)
    run = ran(tmp_path / "run", OK, [of_measured(0), event("machine", **MACHINE)])
    found = results.record(spec, job, "mine-001", run, 12.0)
    results.write(str(tmp_path), [found])
    assert results.read(str(tmp_path), spec) == {"001": found}
    with open(str(tmp_path / "results.jsonl"), "a") as stream:
        stream.write('{"job": "002", "sta')  # a full disk
    assert set(results.read(str(tmp_path), spec)) == {"001"}
    (row,) = csv.DictReader(io.StringIO((tmp_path / "results.csv").read_text()))
    assert row["job"] == "001" and row["network"] == "resnet20" and row["cpus"] == "A CPU, 8 cores"
    assert float(row["samples_per_s"]) == 1000.0
    assert results.read(str(tmp_path / "nowhere"), spec) == {}
