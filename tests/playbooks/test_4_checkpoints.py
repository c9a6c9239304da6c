"""Checkpoints reach the controller during the job, and jobs resume elsewhere or automatically."""

import json
import os
import signal

from mxcluster import checkpoints
from tests.playbooks.conftest import NET

LONG = {
    "kv": "dist_gsync",
    "num_epochs": 2000,
    "step_ms": 20,
    "savemodel": True,
    "seed": 5,
    "lease": 20,
    "num_workers": 3,
}


def start(project, *arguments, **options):
    """Start a job, and wait for a complete checkpoint on the controller.

    Returns the process, the run folder and the epoch.
    """
    run = project.path / "runs" / options["job_id"]
    process = project.start("train.yml", *arguments, "-e", json.dumps(dict(LONG, **options)))
    return process, run, whole_checkpoint(project, process, run)


def whole_checkpoint(project, process, run, after=0):
    """Return the epoch of the first complete checkpoint past `after` that the controller gets."""

    def epoch():
        found, _ = checkpoints.last_complete(str(run / "checkpoints"), "mlp")
        return found.epoch if found and found.epoch > after else None

    return project.until(process, epoch)


def kill(project, job, host, role):
    """Kill a process of a role, or the agent."""
    status = project.status(job, host)
    pid = (
        status["agent"]["pid"]
        if role == "agent"
        else next(part["pid"] for part in status["processes"] if part["role"] == role)
    )
    os.kill(pid, signal.SIGKILL)


def verdict(run):
    return json.loads((run / "verdict.json").read_text())


def test_a_job_goes_on_by_itself_when_a_worker_is_lost_and_then_a_node(project):
    """A job restarts after the loss of a worker, and without a lost node.

    Ansible reports a node as unreachable if it cannot create a folder there. The lost node ran a
    server.
    """
    known = set((project.path / ".state" / "ansible" / "tmp").glob("*"))
    tmp = project.tmp / "of-node2"
    fragile = project.inventory(
        "fragile",
        **{
            NET + ".12": NET
            + ".12\n          ansible_pipelining: false\n          ansible_remote_tmp: %s" % tmp
        },
    )
    process, run, first = start(
        project,
        "-i",
        fragile,
        job_id="again",
        num_epochs=16,
        step_ms=60,  # an epoch lasts a second
        max_restarts=2,
        restart_delay=1,
    )
    kill(project, "again", "node2", "worker")
    second = whole_checkpoint(project, process, run.with_name("again-r1"))
    tmp.rename(tmp.with_name("gone"))
    tmp.write_text("")
    kill(project, "again-r1", "node2", "agent")
    output = project.finish(process)
    assert process.returncode == 0 and "OK        job again-r2" in output, output
    assert "RESTART   job again-r1, 1 of 2, from epoch " in output and "SIGKILL" in output, output
    assert "RESTART   job again-r2, 2 of 2, without node2, from epoch " in output, output
    assert set((project.path / ".state" / "ansible" / "tmp").glob("*")) <= known, (
        "leftover temporary folders of the replaced processes"
    )

    assert not verdict(run)["ok"] and verdict(run.with_name("again-r2"))["ok"]
    assert verdict(run.with_name("again-r1"))["first_failure"]["host"] == "node2"
    assert (run.with_name("again-r1") / "nodes" / "node3" / "worker-2.log").exists()
    for job, resumed, epoch, has_node2 in (
        ("again-r1", "again", first, True),
        ("again-r2", "again-r1", second, False),
    ):
        plan = json.loads((run.with_name(job) / "plan.json").read_text())
        assert (
            plan["options"]["resume"] == resumed and plan["options"]["model_load_epoch"] >= epoch
        ), plan["options"]
        assert ("node2" in plan["nodes"]) == has_node2


def test_an_elastic_job_goes_on_without_a_node_and_takes_it_back(project, tmp_path):
    gate, inventory = project.gated_inventory(tmp_path)
    process, run, first = start(
        project,
        "-i",
        inventory,
        job_id="elastic",
        num_epochs=40,
        step_ms=60,
        max_restarts=3,
        restart_delay=1,
        elastic=True,
    )
    gate.unlink()
    kill(project, "elastic", "node2", "agent")
    second = whole_checkpoint(project, process, run.with_name("elastic-r1"), first)
    gate.touch()
    kill(project, "elastic-r1", "node3", "worker")
    output = project.finish(process)
    assert process.returncode == 0 and "OK        job elastic-r2" in output, output
    again = "RESTART   job elastic-r%d, %d of 3, with the nodes that answer, from epoch "
    assert again % (1, 1) in output and again % (2, 2) in output, output
    assert "without node2: no answer" in output, output
    for job, resumed, has_node2 in (("elastic-r1", first, False), ("elastic-r2", second, True)):
        plan = json.loads((run.with_name(job) / "plan.json").read_text())
        assert ("node2" in plan["nodes"]) == has_node2, job
        assert plan["options"]["model_load_epoch"] >= resumed, plan["options"]
        assert plan["options"]["without"] == []
