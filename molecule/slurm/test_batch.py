"""Jobs under a real batch system: Slurm, or Grid Engine (molecule/sge links to this file)."""

import json
import subprocess
import time

import pytest

from mxcluster import schemes

ENGINES = {
    "slurm": {
        "launcher": {"launcher": "slurm"},
        "held": ["--begin=now+1hour"],
        "cancel": "scancel %s",
        "jobs": "squeue --noheader",
        "ended": "Slurm has ended the job",
        "nowhere": ({"queue": "nowhere"}, "queue=nowhere: Slurm has no such partition"),
    },
    "sge": {
        "launcher": {"launcher": "sge", "parallel_environment": "mpi"},
        "held": ["-h"],
        "cancel": "qdel %s",
        "jobs": "qstat -u '*'",
        "ended": "Grid Engine has ended the job",
        "nowhere": (
            {"parallel_environment": "nowhere"},
            "parallel_environment=nowhere: Grid Engine has no such parallel environment",
        ),
    },
}
JOBS = "/shared/mxcluster/jobs"


@pytest.fixture
def engine(cluster):
    return ENGINES[cluster.scenario.name]


def train(cluster, engine, *arguments, **knobs):
    return cluster.train(*arguments, **dict(engine["launcher"], num_nodes=3, **knobs))


def begun(cluster, job, seconds=120):
    """Wait until a worker of the job on another node than the first trains."""
    deadline = time.time() + seconds
    while time.time() < deadline:
        found = cluster.node("node1").run(
            "grep -ls '\"batch\"' %s/%s/nodes/*/*/events.jsonl", JOBS, job
        )
        hosts = [line.split("/")[6] for line in found.stdout.split()]
        if [host for host in hosts if host != "node1"]:
            return json.loads(cluster.shell("node1", "cat %s/%s/status.json" % (JOBS, job)))
        time.sleep(0.3)
    raise AssertionError(cluster.shell("node1", "cat %s/%s/batch.log" % (JOBS, job)))


def struck(cluster, engine, action, **knobs):
    """Start a long job, call action(status) once it trains, and return (output, verdict)."""
    job = "struck-%d" % time.time_ns()
    knobs = dict(engine["launcher"], num_nodes=3, num_epochs=9999, job_id=job, **knobs)
    started = cluster.start("train.yml", **knobs)
    try:
        action(begun(cluster, job))
        output = started.communicate(timeout=120)[0].decode(errors="replace")
    finally:
        started.kill()
    return output, json.loads((cluster.runs / job / "verdict.json").read_text())


def nothing_is_left(cluster, engine, names=("node1", "node2", "node3")):
    for name in names:
        assert cluster.node(name).run("pgrep -u mxcluster -a").stdout == ""
    assert cluster.shell("node1", engine["jobs"]) == ""


@pytest.mark.parametrize("kv", [scheme.name for scheme in schemes.distributed()])
def test_the_schemes_train(cluster, engine, kv):
    job = train(cluster, engine, kv=kv, num_epochs=20)
    assert job.result.code == 0 and job.verdict["ok"], job.result.output
    assert job.verdict["accuracy"] >= 0.95 and len(job.verdict["nodes"]) == 3, job.verdict
    nothing_is_left(cluster, engine)


def test_a_waiting_job_tells_why_and_can_be_stopped(cluster, engine):
    held = dict(engine["launcher"], engine_options=engine["held"], detach=True, job_id="held")
    assert cluster.play("train.yml", **held).code == 0
    shown = cluster.play("status.yml")
    assert "waiting in the queue" in shown.output, shown.output
    stopped = cluster.play("stop.yml", job="held")
    assert stopped.code == 0 and "has been ended" in stopped.output, stopped.output
    assert cluster.shell("node1", engine["jobs"]) == ""


def test_bad_input_is_refused_before_the_submission(cluster, engine):
    for knobs, words in (({"num_nodes": 4}, "num_nodes=4: "), engine["nowhere"]):
        job = cluster.train("--check", **dict(engine["launcher"], **knobs))
        assert job.result.code == 2 and words in job.result.output, job.result.output


def test_a_folder_that_the_nodes_do_not_share_is_named(cluster, engine):
    cluster.shell("node1", "install -d -o mxcluster -m 700 /var/tmp/jobs")
    job = train(cluster, engine, mxcluster_job_dir="/var/tmp/jobs")
    assert job.result.code == 2, job.result.output
    assert "share" in job.verdict["first_failure"]["reason"], job.verdict
    nothing_is_left(cluster, engine)


def test_a_killed_worker_ends_the_job(cluster, engine):
    def kill(status):
        logs = "%s/%s/nodes/*/*/worker-1.log" % (JOBS, status["job"])
        host = cluster.shell("node1", "ls " + logs).split("/")[6]
        worker = next(part for part in status["processes"] if part["name"] == "worker-1")
        cluster.shell(host, "kill -9 %d" % worker["pid"])

    output, verdict = struck(cluster, engine, kill)
    assert "killed by signal 9" in verdict["first_failure"]["reason"], output
    nothing_is_left(cluster, engine)


def test_the_engine_cancels_the_job(cluster, engine):
    output, verdict = struck(
        cluster,
        engine,
        lambda status: cluster.shell(
            "node1", engine["cancel"] % status["batch"]["id"], "mxcluster"
        ),
    )
    assert verdict["first_failure"]["reason"].startswith(engine["ended"]), output
    nothing_is_left(cluster, engine)


def test_z_a_node_is_gone(cluster, engine):
    """The last test, because the node does not return."""

    def stop(_):
        subprocess.run(["docker", "kill", cluster.container("node3")], check=True)

    output, verdict = struck(cluster, engine, stop)
    reason = verdict["first_failure"]["reason"]
    assert reason.startswith("node3 is gone: it has not answered since"), output
    for name in ("node1", "node2"):
        assert cluster.node(name).run("pgrep -u mxcluster -a").stdout == ""
    subprocess.run(["docker", "start", cluster.container("node3")], check=True)
