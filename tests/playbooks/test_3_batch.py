"""A stand-in for Slurm starts jobs on the local inventory; molecule/slurm has a real one.

The submit host is node1. The nodes of Slurm have the names and addresses of the inventory.
"""

import contextlib
import json
import os
import signal
import subprocess

import pytest

from tests import batch_systems
from tests.often import seldom
from tests.playbooks.conftest import fill, small_disk
from tests.waiting import until


@pytest.fixture
def slurm(project, tmp_path, monkeypatch):
    """Put a stand-in of Slurm on the PATH of the project; return its state folder."""
    batch_systems.install("slurm", tmp_path / "bin", tmp_path / "slurm")
    path = "%s:%s:/usr/local/bin:/usr/bin:/bin" % (tmp_path / "bin", project.programs)
    monkeypatch.setitem(project.environment, "PATH", path)
    (tmp_path / "slurm" / "hosts").write_text("node1 node2 node3")
    return tmp_path / "slurm"


# The workers mostly sleep, and slow no other test.
LONG = {"launcher": "slurm", "num_epochs": 9999, "step_ms": 20}


def folder_of(project, job):
    return project.path / ".state" / "local" / "jobs" / "node1" / job


def strike(project, job, num_nodes, action, **options):
    """Run a job without end, and call `action` with the pid of worker-1 once it trains.

    Returns (exit status, output).
    """
    options = dict(options, **LONG, num_nodes=num_nodes, job_id=job)
    process = project.start("train.yml", "-e", json.dumps(options))
    events = folder_of(project, job) / "nodes" / "node2" / job / "events.jsonl"

    def pid():
        if events.exists() and '"batch"' in events.read_text(errors="replace"):
            parts = project.status(job, "node1")["processes"]
            return next((part["pid"] for part in parts if part["name"] == "worker-1"), None)

    action(project.until(process, pid))
    output = project.finish(process)
    return process.returncode, output


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
    assert not left & {"token", "lease", "beat", "order", "secret_env.json"}, left
    assert not [name for name in left if name.startswith(".clock")], left
    project.wait_for_nothing_left()


# molecule/slurm and molecule/sge fill a disk during a training.
@pytest.mark.parametrize("moment", ["start", seldom("training")])
def test_a_full_job_folder_is_named(project, slurm, moment):
    """All nodes share the folder, and the head of the job begins after the controller's look."""
    job = "batch-full-" + moment
    shared = folder_of(project, job).parent
    with small_disk(shared):
        if moment == "training":
            code, output = strike(project, job, 2, lambda _: fill(shared))
        else:
            options = dict(LONG, num_nodes=2, job_id=job)
            process = project.start("train.yml", "-e", json.dumps(options))
            project.until(process, (shared / job / "batch.log").exists)
            fill(shared)
            output, code = project.finish(process), process.returncode
    verdict = json.loads((project.path / "runs" / job / "verdict.json").read_text())
    first = verdict["first_failure"]
    text = "\n".join([first["reason"], *first["log"]])
    assert code == 2 and ("No space left" in text or "has 0 MiB free" in text), output
    if first["role"] == "agent":
        assert str(shared) in first["reason"] and "\n" not in first["reason"], output
    else:  # a worker has written an event before the agent has looked
        assert "a disk is full" in output, output
    assert " on node" in output.split("first     ")[1].splitlines()[0], output
    project.wait_for_nothing_left()


@pytest.mark.soak  # molecule/slurm stops a real first node
def test_a_job_starts_again_after_its_first_node_has_failed(project, slurm, tmp_path):
    """Slurm kills all processes of the job, so neither the head nor an agent tells a reason."""

    def fail(_):
        (slurm / "7.state").write_text("NODE_FAIL")
        for name in ("7.pid", "7.steps"):
            for pid in (slurm / name).read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)

    def cancel_again():
        if (slurm / "8.pid").exists():
            subprocess.check_call([str(tmp_path / "bin" / "scancel"), "8"])
            return True

    def fail_twice(_):
        fail(_)
        until(cancel_again, 120, pause=0.5)

    code, output = strike(
        project, "batch-node", 2, fail_twice, savemodel=True, max_restarts=3, restart_delay=0
    )
    assert code == 2 and "Slurm has ended the job 7: NODE_FAIL" in output, output
    assert "RESTART   job batch-node-r1, 1 of 3" in output, output
    assert "Slurm has ended the job 8: CANCELLED" in output, output
    assert "RESTART   no: the cause would most likely recur" in output, output
    project.wait_for_nothing_left()


@pytest.mark.parametrize(
    "knobs,words",
    [({"num_nodes": 4}, "num_nodes=4: the partition main has only 3 nodes")],
)
def test_bad_input_is_refused_before_the_submission(project, slurm, knobs, words):
    result, _ = project.train(**dict({"launcher": "slurm"}, **knobs))
    assert result.code == 2 and words in result.output, result.output
    assert not (slurm / "last").exists()
