"""Training jobs under a real batch system: Slurm, or Grid Engine (molecule/sge/test_batch.py)."""

import json
import os
import re
import subprocess
import time

import pytest

from mxcluster import schemes
from mxcluster.model import failures
from tests.machine import LEASE
from tests.often import seldom
from tests.waiting import until

IN_MPI, IN_NONE = {"parallel_environment": "mpi"}, {"parallel_environment": "nowhere"}
ENGINES = {
    "slurm": {
        "launcher": {"launcher": "slurm", "queue": "main", "time_limit": "0:20"},
        "held": ["--begin=now+1hour"],
        "begins on node3": [],  # Slurm sorts the nodes of a job by their names
        "cancel": "scancel %s",
        "close": "scontrol update nodename=%s state=drain reason=test",
        "open": "scontrol update nodename=%s state=resume",
        "jobs": "squeue --noheader",
        "client": "/usr/bin/sbatch",
        "missing": "this host has no sbatch: install the client of Slurm",
        "ended": "Slurm has ended the job",
        "not shared": "node3: .*all nodes must share this folder",
        "nowhere": ({"queue": "nowhere"}, "queue=nowhere: Slurm has no such partition"),
    },
    "sge": {
        "launcher": {"launcher": "sge", "queue": "main.q", "time_limit": "0:20", **IN_MPI},
        "held": ["-h"],
        # Without this option the loads of the nodes decide which node is the first.
        "begins on node3": ["-masterq", "main.q@node3"],
        "cancel": "qdel %s",
        "close": "qmod -d main.q@%s",
        "open": "qmod -e main.q@%s",
        "jobs": "qstat -u '*'",
        "client": "/usr/bin/qsub",
        "missing": "this host has no qsub: install the client of Grid Engine",
        "ended": "Grid Engine has ended the job",
        # On a node without the job's folder neither qrsh nor the job itself starts a program.
        "not shared": "(node3: |Grid Engine could not start the job ).*heck that all nodes share",
        "nowhere": (IN_NONE, "environment=nowhere: Grid Engine has no such parallel environment"),
    },
}
JOBS = "/shared/mxcluster/jobs"
LONG = {"num_epochs": 9999, "step_ms": 20}  # the workers mostly sleep, and slow no other test
SCENARIO = os.environ["MOLECULE_SCENARIO_NAME"]  # molecule/sge has a link to this file
# The head does the same under both batch systems.
shown_under_slurm = pytest.mark.soak if SCENARIO == "sge" else lambda test: test


@pytest.fixture
def engine(cluster):
    return ENGINES[SCENARIO]


def train(cluster, engine, *arguments, **knobs):
    return cluster.train(*arguments, **dict(engine["launcher"], num_nodes=3, **knobs))


def first_node(cluster, job):
    """Return the node of the job's head, which the batch system chooses; "" before the start."""
    log = cluster.node("node1").run("cat %s/%s/batch.log", JOBS, job).stdout
    found = re.search(r" gives the nodes ([^,\s]+)", log)
    return found.group(1) if found else ""


def evidence(cluster, engine, job, started):
    """Return what the playbook, the job and the batch system tell."""
    command = "%s; tail -n 40 %s/%s/batch.log" % (engine["jobs"], JOBS, job)
    return started.output() + cluster.node("node1").run(command).stdout


def begun(cluster, engine, job, started):
    """Wait until a worker of the job on another node than the first trains. Return the status."""

    def trains():
        assert started.poll() is None, "the job has ended\n" + started.output()
        found = cluster.node("node1").run(
            "grep -ls '\"batch\"' %s/%s/nodes/*/*/events.jsonl", JOBS, job
        )
        hosts = [line.split("/")[6] for line in found.stdout.split()]
        return set(hosts) - {first_node(cluster, job)}

    def known():
        """Return the status of the head, which learns the pids a moment after the first batch."""
        status = json.loads(cluster.shell("node1", "cat %s/%s/status.json" % (JOBS, job)))
        return all(part["pid"] for part in status["processes"]) and status

    until(trains, 300, lambda: evidence(cluster, engine, job, started), pause=0.3)
    return until(known, 60, lambda: evidence(cluster, engine, job, started), pause=0.3)


def struck(cluster, engine, action, **knobs):
    """Start a long job, call action(status) once it trains, and return (output, verdict)."""
    job = "struck-%d" % time.time_ns()
    knobs = dict(engine["launcher"], num_nodes=3, job_id=job, **LONG, **knobs)
    started = cluster.start("train.yml", **knobs)
    try:
        action(begun(cluster, engine, job, started))
        output = started.end()
    finally:
        started.kill()
    return output, json.loads((cluster.runs / job / "verdict.json").read_text())


def nothing_is_left(cluster, engine):
    """Wait for the end of all processes and jobs.

    The batch system ends its own script of a job, and forgets the job, after the last status. Grid
    Engine forgets a job of a node that was lost after the reports of the returned node, which come
    every 40 s.
    """

    def left():
        return cluster.processes() + cluster.shell("node1", engine["jobs"])

    until(lambda: not left(), 300, left, pause=0.5)


DISTRIBUTED = [scheme.name for scheme in schemes.SCHEMES if scheme.is_distributed]


@pytest.mark.parametrize("kv", [kv if kv == "dist_gsync" else seldom(kv) for kv in DISTRIBUTED])
def test_the_schemes_train(cluster, engine, kv):
    """The first node of the job need not be the first host of the inventory."""
    first = engine["begins on node3"]
    job = train(cluster, engine, kv=kv, num_epochs=20, engine_options=first)
    assert job.result.code == 0 and job.verdict["ok"], job.result.output
    assert job.verdict["accuracy"] >= 0.95 and len(job.verdict["nodes"]) == 3, job.verdict
    plan = json.loads((job.folder / "plan.json").read_text())
    assert next(iter(plan["nodes"])) == ("node3" if first else "node1"), plan["nodes"]
    hosts = {part["index"]: part["host"] for part in plan["processes"] if part["role"] == "worker"}
    groups = {
        label: {hosts[rank] for rank in ranks}
        for label, ranks in zip(plan["group_labels"], plan["groups"])
    }
    expected = {"one": {"node1", "node2"}, "other": {"node3"}}
    assert kv != "dist_gsync" or groups == expected, plan["groups"]
    nothing_is_left(cluster, engine)


@pytest.mark.soak  # checkpoints come as under the other launchers
def test_a_job_saves_checkpoints_and_another_resumes_it(cluster, engine):
    first = train(cluster, engine, num_epochs=2, savemodel=True, job_id="saved")
    assert first.result.code == 0 and first.verdict["ok"], first.result.output
    assert list((first.folder / "checkpoints").iterdir()), first.result.output
    second = train(cluster, engine, num_epochs=4, resume="saved")
    assert second.result.code == 0 and second.verdict["ok"], second.result.output
    nothing_is_left(cluster, engine)


@shown_under_slurm
def test_the_lease_ends_a_job_without_a_controller(cluster, engine):
    job = "leased-%d" % time.time_ns()
    knobs = dict(engine["launcher"], num_nodes=3, job_id=job, lease=LEASE, **LONG)
    controller = cluster.start("train.yml", **knobs)
    try:
        begun(cluster, engine, job, controller)
    finally:
        controller.kill()

    def ended():
        return not cluster.shell("node1", engine["jobs"])

    until(ended, 300, lambda: evidence(cluster, engine, job, controller), pause=1)
    status = json.loads(cluster.shell("node1", "cat %s/%s/status.json" % (JOBS, job)))
    assert status["reason"] == "lease", status
    nothing_is_left(cluster, engine)


@shown_under_slurm
def test_a_waiting_job_tells_why_and_can_be_stopped(cluster, engine):
    held = dict(engine["launcher"], engine_options=engine["held"], detach=True, job_id="held")
    assert cluster.play("train.yml", **held).code == 0
    shown = cluster.play("status.yml")
    assert "waiting in the queue" in shown.output, shown.output
    stopped = cluster.play("stop.yml", job="held")
    assert stopped.code == 0 and "has been ended" in stopped.output, stopped.output
    nothing_is_left(cluster, engine)


def test_bad_input_is_refused_before_the_submission(cluster, engine):
    knobs, words = engine["nowhere"]
    job = cluster.train("--check", **dict(engine["launcher"], **knobs))
    assert job.result.code == 2 and words in job.result.output, job.result.output


def test_a_submit_host_without_the_client_is_refused(cluster, engine):
    """The client is a program or a link to a program."""
    client = engine["client"]
    cluster.shell("node1", "mv %s %s.away" % (client, client))
    try:
        result = cluster.play("train.yml", **engine["launcher"])
    finally:
        cluster.shell("node1", "mv %s.away %s" % (client, client))
    assert result.code == 2 and engine["missing"] in result.output, result.output


@shown_under_slurm
def test_the_launch_line_requests_a_node_for_each_worker(cluster, engine, tmp_path):
    (tmp_path / "train.py").write_text(
        "import os, sys\nimport mxnet as mx\n"
        "kv = mx.kv.create(sys.argv[sys.argv.index('--kv-store') + 1])\n"
        "print('HEARD', sys.argv[3:], os.environ['MODE'], kv.num_workers, flush=True)\n"
        "kv.init(0, mx.nd.ones(2))\n"
        "sys.exit(5 if 'fail' in sys.argv and kv.rank == 0 else 0)\n"
    )
    done = cluster.launch(
        tmp_path,
        *("-n", "2", "-s", "1", "--launcher", cluster.scenario.name, "--env-worker", "MODE:a b"),
        *("python", "train.py", "--kv-store", "dist_sync", "it's", "fail"),
    )
    assert done.returncode == 5, done.stdout.decode()
    logs = [path.read_text() for path in sorted(cluster.runs.glob("*/nodes/*/worker-*.log"))]
    arrived = [log for log in logs if "HEARD [\"it's\", 'fail'] a b 2" in log]
    assert len(arrived) == 2, done.stdout.decode()


def test_a_folder_that_the_nodes_do_not_share_is_named(cluster, engine):
    cluster.shell("node3", "mount -t tmpfs -o mode=755 tmpfs " + JOBS)
    try:
        job = train(cluster, engine)
    finally:
        cluster.shell("node3", "umount " + JOBS)
    assert job.result.code == 2, job.result.output
    reason = job.verdict["first_failure"]["reason"]
    assert re.match(engine["not shared"], reason), reason
    nothing_is_left(cluster, engine)


@pytest.mark.parametrize(
    "fault, words",
    [  # one under each batch system in `make test`
        pytest.param(
            "a killed worker", "killed by signal 9", marks=[pytest.mark.soak] * (SCENARIO == "sge")
        ),
        pytest.param(
            "a held agent",
            failures.KINDS[failures.AGENT_HELD].words,
            marks=[pytest.mark.soak] * (SCENARIO == "slurm"),
        ),
    ],
)
def test_a_fault_of_a_process_ends_the_job(cluster, engine, fault, words):
    def strike(status):
        logs = "%s/%s/nodes/*/*/worker-1.log" % (JOBS, status["job"])
        host = cluster.shell("node1", "ls " + logs).split("/")[6]
        worker = next(part for part in status["processes"] if part["name"] == "worker-1")
        if fault == "a killed worker":
            cluster.shell(host, "kill -9 %d" % worker["pid"])
        else:
            cluster.shell(host, "pkill -STOP -u mxcluster -f 'mxcluster[.]agent run'")

    output, verdict = struck(cluster, engine, strike)
    assert words in verdict["first_failure"]["reason"], output
    nothing_is_left(cluster, engine)


@pytest.mark.soak
def test_a_full_job_folder_is_named(cluster, engine):
    for name in cluster.names:
        cluster.shell(name, "mount --bind /small %s && chown mxcluster: %s" % (JOBS, JOBS))
    try:
        fill = "! dd if=/dev/zero of=%s/fill bs=64k" % JOBS
        output, verdict = struck(cluster, engine, lambda status: cluster.shell("node1", fill))
        nothing_is_left(cluster, engine)
    finally:
        for name in cluster.names:
            cluster.shell(name, "umount -l " + JOBS)
    first = verdict["first_failure"]
    text = "\n".join([first["reason"], *first["log"]])
    assert "No space left" in text or "has 0 MiB free" in text, output
    assert JOBS in first["reason"] or "a disk is full" in output, output


def test_the_engine_cancels_the_job(cluster, engine):
    def cancel(status):
        cluster.shell("node1", engine["cancel"] % status["batch"]["id"], "mxcluster")

    output, verdict = struck(cluster, engine, cancel)
    assert verdict["first_failure"]["reason"].startswith(engine["ended"]), output
    nothing_is_left(cluster, engine)


@shown_under_slurm
def test_a_job_starts_again_without_its_first_node(cluster, engine):
    """The first attempt runs on node2 and node3, and the second on node1 and one of them."""
    job, lost = "restarted-%d" % time.time_ns(), []
    cluster.shell("node1", engine["close"] % "node1")
    started = cluster.start(
        "train.yml",
        # Slurm knows after 30 s that a node is lost, and then gives it to no other job.
        **dict(engine["launcher"], num_nodes=2, job_id=job, savemodel=True, **LONG),
        **{"max_restarts": 1, "restart_delay": 30},
    )
    try:
        begun(cluster, engine, job, started)
        lost.append(first_node(cluster, job))
        subprocess.run(["docker", "kill", cluster.container(lost[0])], check=True)
        cluster.shell("node1", engine["open"] % "node1")
        if SCENARIO == "sge":  # Grid Engine needs five minutes to know it
            cluster.shell("node1", engine["close"] % lost[0])
        until(lambda: "RESTART   job %s-r1, 1 of 1" % job in started.output(), 300, started.output)
        begun(cluster, engine, job + "-r1", started)
        assert cluster.play("stop.yml", job=job + "-r1").code == 0
        output = started.end()
    finally:
        started.kill()
        cluster.node("node1").run(engine["open"] % "node1")  # fails if the node is open already
        for name in lost:
            begin_again(cluster, engine, name)
    first = json.loads((cluster.runs / job / "verdict.json").read_text())
    assert first["first_failure"]["kind"] == "node", output
    plan = json.loads((cluster.runs / (job + "-r1") / "plan.json").read_text())
    assert set(plan["nodes"]) == set(cluster.names) - set(lost), output
    nothing_is_left(cluster, engine)


def begin_again(cluster, engine, name):
    """Start the stopped container of a node, and the daemons of the batch system in it."""
    cluster.power_on(name)
    nodes = ("%s %s" % (cluster.variables[node]["ansible_host"], node) for node in cluster.names)
    with (cluster.scenario / "setup.sh").open() as script:
        subprocess.run(
            ["docker", "exec", "-i", cluster.container(name), "sh", "-e", "-s", ",".join(nodes)],
            stdin=script,
            check=True,
        )
    if SCENARIO == "sge":
        cluster.node("node1").run(engine["open"] % name)


def test_z_a_node_is_gone(cluster, engine):
    """The last test, because the node does not return."""

    gone = []

    def stop(status):
        # node1 has the shared folder, and the head reports the loss of another node.
        gone.append("node2" if first_node(cluster, status["job"]) == "node3" else "node3")
        subprocess.run(["docker", "kill", cluster.container(gone[0])], check=True)

    output, verdict = struck(cluster, engine, stop)
    reason = verdict["first_failure"]["reason"]
    assert reason.startswith(gone[0] + " is gone: it has not answered since"), output
    others = set(cluster.names) - set(gone)
    until(lambda: not cluster.processes(others), evidence=lambda: cluster.processes(others))
    subprocess.run(["docker", "start", cluster.container(gone[0])], check=True)
