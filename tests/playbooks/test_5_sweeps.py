"""benchmark.yml and compare.yml on the local inventory with real MXNet."""

import csv
import json
import os
import signal

import pytest

from tests.playbooks.conftest import refuse_warnings

TINY = {"networks": "mlp", "worker_counts": "1,2", "warm_up": 1, "measured": 3}


def extra(**knobs):
    return "-e", json.dumps(knobs)


def records(project, sweep):
    path = project.path / "runs" / sweep / "results.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_a_dry_run_lists_the_jobs(project):
    before = project.files()
    done = project.run("benchmark.yml", *extra(plan_only=True, sweep="listed", **TINY))
    assert done.code == 0, done.output
    assert "benchmark.yml of 2 jobs, in runs/listed" in done.output
    assert "002  to do  network=mlp" in done.output and "1 + 3 batches of 32" in done.output
    log = project.ansible_log()
    assert "PLAY RECAP" in log and "TASK [train_job : Wait" not in log, log
    checked = project.run("compare.yml", "--check", *extra(sweep="listed", seeds=2))
    assert checked.code == 0 and "gsp-lr0.05-seed0  to do" in checked.output, checked.output
    assert project.files() == before


def test_an_impossible_sweep_is_refused(project):
    done = project.run("benchmark.yml", *extra(networks="mlp", worker_counts="1,9", sweep="no"))
    assert done.code == 2 and "the cluster has only 4 workers" in done.output, done.output
    done = project.run("compare.yml", *extra(networks="mlp"))
    assert done.code == 2 and "compare.yml does not read it" in done.output, done.output
    assert not (project.path / "runs" / "no").exists()


def test_an_interrupted_benchmark_goes_on(project):
    """Ctrl-C when the second job has come to the nodes; the next command runs that job only."""
    process = project.start("benchmark.yml", *extra(sweep="bench", **TINY))
    second = project.path / ".state" / "local" / "jobs" / "node1" / "bench-002"
    project.until(process, lambda: records(project, "bench") and second.exists())
    os.killpg(process.pid, signal.SIGINT)
    output = project.finish(process)
    assert process.returncode != 0, output
    refuse_warnings(output)
    assert "LEFT      job bench-002, which still runs on its nodes" in output, output
    assert [one["job"] for one in records(project, "bench")] == ["001"], output
    assert output.count("SWEEP     job 1 of 2, 001") == 1

    done = project.run("benchmark.yml", *extra(sweep="bench"), timeout=300)
    assert done.code == 0, done.output
    assert "SWEEP     job 2 of 2, 002" in done.output and "job 1 of 2" not in done.output
    assert "fatal" not in done.output, "the interrupted job may have come to no node"
    first = "OK        sweep bench: 2 jobs"
    verdict = first + project.ansible_log().split("PLAY RECAP")[-1].split(first)[1]
    assert done.output.endswith(verdict), (verdict, done.output)
    folder = project.path / "runs" / "bench"
    assert {path.name for path in folder.iterdir()} >= {"report.html", "plots.png", "sweep.json"}
    with open(str(folder / "results.csv")) as stream:
        rows = list(csv.DictReader(stream))
    assert [row["workers"] for row in rows] == ["1", "2"]
    for row in rows:
        assert row["state"] == "ok" and float(row["samples_per_s"]) > 0 and row["batches"] == "3"
        assert 0 < float(row["p10_s"]) <= float(row["median_s"]) <= float(row["p90_s"])
        assert row["mxnet"] == "1.9.1" and "cores" in row["cpus"]
    verdict = json.loads((project.path / "runs" / rows[1]["id"] / "verdict.json").read_text())
    assert verdict["ok"] and verdict["accuracy"] is None and verdict["warnings"] == []
    project.wait_for_nothing_left()

    again = project.run("benchmark.yml", *extra(sweep="bench"))
    assert again.code == 0 and "SWEEP" not in again.output, "there is nothing left to do"
    other = project.run("benchmark.yml", *extra(sweep="bench", networks="lenet"))
    assert other.code == 2 and "was begun with networks=['mlp']" in other.output, other.output


def test_a_comparison_of_two_schemes(project):
    knobs = {"schemes": "gsp,fastest", "lr_factors": "1", "seeds": 1, "num_epochs": 2}
    done = project.run("compare.yml", *extra(sweep="schemes", target=0.2, **knobs), timeout=600)
    assert done.code == 0, done.output
    gsp, fastest = records(project, "schemes")
    assert (gsp["job"], fastest["job"]) == ("gsp-lr0.05-seed0", "fastest-lr0.05-seed0")
    for one, workers in ((gsp, 4), (fastest, 2)):
        assert one["environment"]["workers"] == workers and one["state"] == "ok"
        assert len(one["curve"]) == 3, "two epochs, and the accuracy at the end of the job"
        assert one["target_s"] > 0 and 0 < one["waited"] < 1
    assert gsp["samples"] == pytest.approx(fastest["samples"], rel=0.1)
    assert set(gsp["y"]) == {"first pair", "second pair"} and not fastest["y"]
    assert "fastest group alone" in project.ansible_log().split("PLAY RECAP")[-1], done.output
    assert (project.path / "runs" / "schemes" / "plots.png").stat().st_size > 10000
    project.wait_for_nothing_left()
