"""An interrupted job resumes through the playbook with other numbers of workers and servers."""

import json
import os
import signal

import pytest

from mxcluster import checkpoints
from tests.playbooks.conftest import end

CHECKPOINTS = ".state/local/jobs/node1/%s/checkpoints/mlp-%04d.json"


def test_a_job_that_lost_a_worker_is_resumed_with_others(project):
    """The verdict names the worker; test_4_faults.py covers the other processes."""
    options = {
        "kv": "dist_gsync",
        "num_epochs": 500,
        "step_ms": 20,
        "savemodel": True,
        "job_id": "cut",
        "lr": 0.03,
        "seed": 5,
    }
    process = project.start("train.yml", "-e", json.dumps(options))
    project.until(process, (project.path / (CHECKPOINTS % ("cut", 5))).exists)
    status = project.status("cut", "node3")
    worker = next(part for part in status["processes"] if part["role"] == "worker")
    os.kill(worker["pid"], signal.SIGKILL)
    output = project.finish(process)  # a death that nobody notices ends the job after 300 s
    project.wait_for_nothing_left()
    assert process.returncode != 0 and "SIGKILL" in output, output
    check_verdict(project, worker["name"], output)
    kept = project.path / "runs" / "cut" / "checkpoints"
    epochs = sorted(int(path.name[4:8]) for path in kept.glob("mlp-*.params"))
    whole = sorted(int(path.name[4:8]) for path in kept.glob("mlp-????.json"))
    assert 3 <= len(whole) <= 4 and set(whole) <= set(epochs), (whole, epochs)
    last = kept / ("mlp-%04d.server-1.npz" % whole[-1])
    last.write_bytes(last.read_bytes()[:-10])

    result, run = project.train(
        resume="cut", num_epochs=whole[-2] + 2, num_workers=2, num_servers=1, job_id="resumed"
    )
    assert result.code == 0, result.output
    assert "resumes from" in result.output and "after epoch %d" % whole[-2] in result.output, (
        result.output
    )
    assert (
        "skipped: " in result.output
        and "server-1.npz differs from its digest or size" in result.output
    )
    plan = json.loads((run / "plan.json").read_text())
    assert [plan["options"][name] for name in ("kv", "lr", "seed", "savemodel")] == [
        "dist_gsync",
        0.03,
        5,
        True,
    ]
    assert (plan["workers"], plan["servers"]) == (2, 1)
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    assert {event["epoch"] for event in events if event["event"] == "epoch"} == {
        whole[-2],
        whole[-2] + 1,
    }
    assert (run / "checkpoints" / ("mlp-%04d.json" % (whole[-2] + 2))).exists()

    result, run = project.train(resume="resumed", job_id="no-more")
    assert (
        result.code != 0
        and "has already trained %d epochs" % (whole[-2] + 2) in result.output
        and not run.exists()
    )


def check_verdict(project, worker, output):
    """Check that the verdict of the job cut names the killed worker, with its last words."""
    verdict = json.loads((project.path / "runs" / "cut" / "verdict.json").read_text())
    failure = verdict["first_failure"]
    assert not verdict["ok"] and "SIGKILL" in failure["reason"], failure
    assert (failure["host"], failure["name"]) == ("node3", worker), failure
    assert any("epoch" in line for line in failure["log"]) and failure["log"][-1] in output, failure


def test_a_job_whose_controller_was_killed_is_resumed_at_once(project):
    """SIGKILL leaves no verdict, and the old job runs until its lease ends, on its ports."""
    options = {
        "kv": "dist_gsync",
        "num_epochs": 2000,
        "step_ms": 20,
        "savemodel": True,
        "job_id": "orphan",
        "lease": 20,
        "num_workers": 3,
        "lr": 0.03,
    }
    kept = project.path / "runs" / "orphan" / "checkpoints"
    process = project.start("train.yml", "-e", json.dumps(options))

    def saved():
        return checkpoints.last_complete(str(kept), "mlp")[0]

    project.until(process, lambda: saved() and saved().epoch >= 3)
    end(process)
    epoch = saved().epoch
    result, run = project.train(
        job_id="at-once", resume="orphan", num_epochs=epoch + 1, num_workers=2
    )
    assert result.code == 0, result.output
    assert "after epoch %d" % epoch in result.output and "skipped: " not in result.output
    plan = json.loads((run / "plan.json").read_text())
    assert (plan["options"]["kv"], plan["options"]["lr"]) == ("dist_gsync", 0.03)
    project.wait_for_nothing_left(leased=True)
    assert project.status("orphan", "node2")["reason"] == "lease"
    assert (run / "checkpoints" / ("mlp-%04d.json" % (epoch + 1))).exists()


@pytest.mark.soak
def test_alone_too(project):
    result, _ = project.train(kv="local", num_epochs=2, savemodel=True, job_id="alone")
    assert result.code == 0, result.output
    result, run = project.train(resume="alone", num_epochs=4, job_id="alone-2")
    assert result.code == 0 and "after epoch 2" in result.output, result.output
    assert (run / "checkpoints" / "mlp-0004.server-0.npz").exists()
