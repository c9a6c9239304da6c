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
# A script that saves its tenth round once. All workers see the sum of the pushes, and so end in the
# same round.
SAVES = """
import os, sys, time
import mxnet as mx

path = os.path.join(os.environ["MXCLUSTER_CHECKPOINTS"], "round.txt")
begun = number = int(open(path).read()) if os.path.exists(path) else 0
print("BEGAN after round", begun)
kv = mx.kv.create("dist_sync")
kv.init("w", mx.nd.zeros((1,)))
ends = mx.nd.zeros((1,))
while not (ends.asscalar() and begun == 20):
    number += 1
    kv.push("w", mx.nd.ones((1,)) * os.path.exists(sys.argv[1]))
    kv.pull("w", out=ends)
    time.sleep(0.05)
    if kv.rank == 0 and number == begun + 10:
        with open(path, "w") as stream:
            stream.write(str(number))
"""


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


def saved(run):
    """Return the names of the script's complete checkpoints in a run folder."""
    folder = str(run / "checkpoints")
    found = [checkpoints.last_complete(folder, one)[0] for one in checkpoints.workers(folder)]
    return [one.name for one in found if one]


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


def gated(project, name, folder):
    """Return (inventory, gate); node2's shell does not answer while the file `gate` is missing.

    Commands that run go on. So Ansible reports the node as unreachable from one moment on.
    """
    gate, shell = folder / "gate", folder / "shell"
    shell.write_text('#!/bin/sh\n[ -e %s ] && exec /bin/sh "$@"\nexit 255\n' % gate)
    shell.chmod(0o755)
    gate.touch()
    address = NET + ".12"
    text = address + "\n          ansible_shell_executable: %s" % shell
    return project.inventory(name, **{address: text}), gate


def test_a_job_goes_on_by_itself_when_a_worker_is_lost_and_then_a_node(project, tmp_path):
    """A job restarts after the loss of a worker, and without a lost node, which ran a server."""
    known = set((project.path / ".state" / "ansible" / "tmp").glob("*"))
    inventory, gate = gated(project, "fragile", tmp_path)
    process, run, first = start(
        project,
        "-i",
        inventory,
        job_id="again",
        num_epochs=16,
        step_ms=60,  # an epoch lasts a second
        max_restarts=2,
        restart_delay=1,
    )
    kill(project, "again", "node2", "worker")
    second = whole_checkpoint(project, process, run.with_name("again-r1"))
    gate.unlink()
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


def test_an_elastic_script_goes_on_without_a_node_and_takes_it_back(project, tmp_path):
    script = tmp_path / "saves.py"
    script.write_text(SAVES)
    inventory, gate = gated(project, "gated", tmp_path)
    options = {
        "kv": "dist_sync",
        "script": str(script),
        "script_args": [str(tmp_path / "finish")],
        "job_id": "elastic",
        "max_restarts": 2,
        "restart_delay": 1,
        "elastic": True,
        "lease": 20,
        "num_servers": 1,
    }
    process = project.start("train.yml", "-i", inventory, "-e", json.dumps(options))
    jobs = [project.path / "runs" / name for name in ("elastic", "elastic-r1", "elastic-r2")]
    project.until(process, lambda: saved(jobs[0]))
    gate.unlink()
    kill(project, "elastic", "node2", "agent")
    project.until(process, lambda: saved(jobs[1]))
    gate.touch()
    (tmp_path / "finish").touch()  # the last attempt ends when it has begun
    kill(project, "elastic-r1", "node3", "agent")
    output = project.finish(process)
    assert process.returncode == 0 and "OK        job elastic-r2" in output, output
    again = "RESTART   job elastic-r%d, %d of 2, with the nodes that answer, from checkpoint "
    assert again % (1, 1) in output and again % (2, 2) in output, output
    assert output.count("without node2: no answer") == 1, output
    plans = [json.loads((run / "plan.json").read_text()) for run in jobs]
    assert ["node2" in plan["nodes"] for plan in plans] == [True, False, True]
    assert [plan["options"]["resume"] for plan in plans] == ["", "elastic", "elastic-r1"]
    assert all(plan["options"]["without"] == [] for plan in plans)
    logs = [path.read_text() for path in (jobs[2] / "nodes").glob("*/worker-*.log")]
    assert len(logs) == 4 and all("BEGAN after round 20" in log for log in logs), logs
