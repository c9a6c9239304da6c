"""benchmark.yml and compare.yml on the local inventory with real MXNet."""

import csv
import json
import os
import signal

from tests import json_lines
from tests.playbooks.conftest import refuse_warnings

TINY = {"networks": "mlp", "worker_counts": "1,2", "warm_up": 1, "measured": 3}


def extra(**knobs):
    return "-e", json.dumps(knobs)


def records(project, sweep):
    return json_lines.complete(project.path / "runs" / sweep / "results.jsonl")


def test_a_dry_run_lists_the_jobs(project):
    before = project.files()
    done = project.run("benchmark.yml", *extra(plan_only=True, sweep="listed", **TINY))
    assert done.code == 0, done.output
    assert "benchmark.yml of 2 jobs, in runs/listed" in done.output
    assert "002  to do  network=mlp" in done.output and "1 + 3 batches of 32" in done.output
    log = project.ansible_log()
    assert "PLAY RECAP" in log and "TASK [train_job : Wait" not in log, log
    checked = project.run("compare.yml", "--check", *extra(sweep="listed", seeds=2))
    assert checked.code == 0 and "gsp-lr0.05-m0.9-seed0  to do" in checked.output, checked.output
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


def test_a_comparison_measures_the_limit_chooses_a_setting_and_measures_it(project):
    """Two workers, each a group: both alone, then GSP with a seed that chooses and another one.

    The workers sleep, so that both train at the same time: a worker without a wait may end before
    the other one begins, and such a job has no speed.
    """
    knobs = {"schemes": "gsp", "lr_factors": "1", "lr_growth": 0, "momenta": "0.9", "seeds": 1}
    knobs.update(num_epochs=2, step_ms=50, target=0.2, evaluations=20, without="node2,node4")
    done = project.run("compare.yml", *extra(sweep="schemes", **knobs), timeout=600)
    assert done.code == 0, done.output
    first, second, chose, one = records(project, "schemes")
    assert [first["job"], second["job"]] == ["solo-0", "solo-1"]
    assert chose["job"] == "gsp-lr0.05-m0.9-seed0" and one["job"] == "gsp-lr0.05-m0.9-seed1"
    for solo in (first, second):
        assert solo["environment"]["workers"] == 1 and solo["samples_per_s"] > 0, solo
        assert solo["environment"]["servers"] == 0, "the limit has no server that takes time"
    assert one["environment"]["workers"] == 2 and one["state"] == "ok"
    readings = one["readings"]
    assert len(readings) == 20 and {reading["worker"] for reading in readings} == {0, 1}
    times = [reading["seconds"] for reading in readings]
    assert times == sorted(times) and times[0] > 0
    samples = [reading["samples"] for reading in readings]
    assert samples == sorted(samples) and samples[-1] <= one["samples"]
    assert one["target_s"] in times and 0 < one["resolution"] <= 1 and 0 < one["waited"] < 1
    assert set(one["y"]) == {"first pair", "second pair"}
    output = project.ansible_log().split("PLAY RECAP")[-1]
    limit = first["samples_per_s"] + second["samples_per_s"]
    row = next(line for line in output.splitlines() if line.startswith("GSP "))
    assert "%.2f (" % (one["samples_per_s"] / limit) in row, (row, limit, one["samples_per_s"])
    assert "use seeds=5 or more" in output, output
    folder = project.path / "runs" / "schemes"
    assert (folder / "plots.png").stat().st_size > 10000
    (line,) = csv.DictReader((folder / "schemes.csv").read_text().splitlines())
    assert line["scheme"] == "gsp" and float(line["target_s_median"]) == one["target_s"]
    project.wait_for_nothing_left()
