"""A stand-in for Slurm starts jobs on the local inventory; molecule/slurm has a real one.

The submit host is node1. The nodes of Slurm have the names and addresses of the inventory.
"""

import json
import os
import signal
import threading
import time

import pytest

from tests import batch_systems


@pytest.fixture
def slurm(project, tmp_path, monkeypatch):
    """Put a stand-in of Slurm on the PATH of the project; return its state folder."""
    batch_systems.install("slurm", tmp_path / "bin", tmp_path / "slurm")
    path = "%s:%s:/usr/local/bin:/usr/bin:/bin" % (tmp_path / "bin", project.programs)
    monkeypatch.setitem(project.environment, "PATH", path)
    (tmp_path / "slurm" / "hosts").write_text("node1 node2 node3")
    return tmp_path / "slurm"


def folder_of(project, job):
    return project.path / ".state" / "local" / "jobs" / "node1" / job


def strike(project, job, action):
    """Call `action` in a thread once worker-1 of the job trains."""

    def wait():
        status = folder_of(project, job) / "status.json"
        events = folder_of(project, job) / "nodes" / "node2" / job / "events.jsonl"
        deadline = time.time() + 200
        while time.time() < deadline:
            if events.exists() and '"batch"' in events.read_text():
                return action(json.loads(status.read_text()))
            time.sleep(0.1)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def test_a_job_trains_on_the_nodes_that_slurm_gives(project, slurm):
    result, run = project.train(
        launcher="slurm", num_nodes=3, kv="dist_gsync", num_epochs=20, job_id="batch-ok"
    )
    assert result.code == 0, result.output
    verdict = json.loads((run / "verdict.json").read_text())
    assert verdict["ok"] and verdict["accuracy"] >= 0.95, verdict
    assert verdict["nodes"] == dict.fromkeys(("node1", "node2", "node3"), "done")
    assert verdict["left"] == {"node1": [], "node2": [], "node3": []}
    plan = json.loads((run / "plan.json").read_text())
    assert plan["group_labels"] == ["first pair", "second pair"], "host variables count by name"
    assert (run / "nodes" / "node3" / "worker-2.log").exists() and (run / "report.html").exists()
    left = set(os.listdir(str(folder_of(project, "batch-ok"))))
    assert not left & {"token", "lease", "beat", "order", "secret_env.json", ".clock"}, left
    project.wait_for_nothing_left(5)


def test_a_killed_worker_ends_the_job(project, slurm):
    def kill(status):
        [worker] = [part for part in status["processes"] if part["name"] == "worker-1"]
        os.kill(worker["pid"], signal.SIGKILL)

    thread = strike(project, "batch-killed", kill)
    result, run = project.train(
        launcher="slurm", num_nodes=3, num_epochs=9999, job_id="batch-killed"
    )
    thread.join()
    assert result.code == 2 and "worker 1 on node2: killed by signal 9" in result.output, (
        result.output
    )
    states = json.loads((run / "verdict.json").read_text())["nodes"]
    assert states["node2"] == "failed" and "done" not in states.values(), states
    project.wait_for_nothing_left(5)


def test_a_cancelled_job_names_slurm(project, slurm, tmp_path):
    thread = strike(
        project, "batch-cancelled", lambda _: os.system("%s 7" % (tmp_path / "bin" / "scancel"))
    )
    result, _ = project.train(
        launcher="slurm", num_nodes=2, num_epochs=9999, job_id="batch-cancelled"
    )
    thread.join()
    assert result.code == 2 and "Slurm has ended the job 7: CANCELLED" in result.output, (
        result.output
    )
    project.wait_for_nothing_left(5)


def test_a_detached_job_waits_in_the_queue_until_it_is_stopped(project, slurm):
    (slurm / "queue").write_text("Resources")
    result, _ = project.train(launcher="slurm", num_nodes=2, detach=True, job_id="batch-queued")
    assert result.code == 0, result.output
    shown = project.run("status.yml")
    assert "waiting in the queue of slurm" in shown.output, shown.output
    stopped = project.run("stop.yml", "-e", "job=batch-queued")
    assert stopped.code == 0 and "has been ended on node1" in stopped.output, stopped.output
    assert (slurm / "7.state").read_text() == "CANCELLED"


@pytest.mark.parametrize(
    "knobs,words",
    [
        ({"queue": "nowhere"}, "queue=nowhere: Slurm has no such partition"),
        ({"num_nodes": 4}, "num_nodes=4: the partition main has only 3 nodes"),
        ({"submit_host": "node9"}, "submit_host=node9 is not in the inventory"),
    ],
)
def test_bad_input_is_refused_before_the_submission(project, slurm, knobs, words):
    result, _ = project.train(**dict({"launcher": "slurm"}, **knobs))
    assert result.code == 2 and words in result.output, result.output
    assert not (slurm / "last").exists()
