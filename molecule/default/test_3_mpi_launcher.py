"""launcher=mpi: one mpirun starts the agents of a training job, under each MPI engine.

The agents use no MPI library, so Intel MPI's launcher is enough.
"""

import itertools
import json
import subprocess
import time

import pytest

from mxcluster import schemes
from tests.machine import LEASE, Stopwatch
from tests.often import seldom
from tests.waiting import until

pytestmark = pytest.mark.usefixtures("provisioned")

# {engine: the knobs that choose it}. See molecule/shared/mpi.sh for the folders of the engines.
ENGINES = {
    "openmpi": {"mpi_runtime": "openmpi"},
    "mpich": {
        "mpi_runtime": "mpich",
        "mpi_pre_execution_command": "export PATH=/opt/mpich/bin:$PATH",
    },
    "intelmpi": {
        "mpi_runtime": "intelmpi",
        "mpi_pre_execution_command": "export PATH=/opt/intel/mpi/bin:$PATH",
    },
}
# The cases of every run. Only `make soak` runs all pairs, and kills mpirun, an agent or a node.
TRAINED = (("openmpi", "dist_async"), ("intelmpi", "dist_gsync"))
STRUCK = (("mpich", "worker"),)
LONG = {"num_epochs": 5000, "step_ms": 20}  # the workers mostly sleep
BOUND = 20  # seconds from a fault to the end of all processes on the nodes
FAULTS = {
    # name: (where, what ends there, words of the verdict)
    "worker": (
        "node3",
        "pkill -9 -u mxcluster -f 'mxcluster.training program'",
        ["worker 2 on node3", "SIGKILL"],
    ),
    "agent": (
        "node2",
        "pkill -9 -u mxcluster -f 'mxcluster.agent run'",
        ["agent on node2", "was killed"],
    ),
    "mpirun": (
        "node1",
        "pkill -9 -P $(pgrep -u mxcluster -o -f 'mxcluster.agent watch')",
        ["was killed by signal 9 (SIGKILL)", "all agents ended with this program"],
    ),
    "node": ("node3", "", ["node3 is gone"]),
}


def folders(cluster):
    """Return {(node, path)} of the folders of Open MPI on the nodes."""
    return {
        (name, path)
        for name in cluster.names
        for path in cluster.node(name).run("ls -d /tmp/ompi.*/*").stdout.split()
    }


def wait_for_nothing(cluster, seconds):
    with Stopwatch() as watch:
        until(lambda: not cluster.processes(), 300, cluster.processes, pause=0.5)
    assert watch.within(seconds)


DISTRIBUTED = [scheme.name for scheme in schemes.SCHEMES if scheme.is_distributed]


def pairs(often, others):
    """Return the cases `often` of every run, and all other pairs of an engine and one of `others`.

    Only `make soak` runs the other pairs.
    """
    found = itertools.product(ENGINES, others)
    return [*often, *(seldom(*pair) for pair in found if pair not in often)]


@pytest.mark.parametrize("engine, kv", pairs(TRAINED, DISTRIBUTED))
def test_the_schemes_train(cluster, engine, kv):
    job = cluster.train(launcher="mpi", kv=kv, num_epochs=20, **ENGINES[engine])
    assert job.result.code == 0 and job.verdict["ok"], job.result.output
    assert job.verdict["accuracy"] >= 0.95, job.verdict
    assert "launcher mpi: one mpirun on node1" in job.result.output
    log = (job.folder / "nodes" / "node1" / "mpirun.log").read_text()
    assert log.count('"started"') == 3, log
    # The engine starts the agents, and systemd has no unit of the job.
    agents = cluster.shell("node1", "systemctl list-units --all --no-legend 'mxcluster-agent@*'")
    assert agents == ""
    wait_for_nothing(cluster, 10)


@pytest.mark.parametrize("engine, fault", pairs(STRUCK, FAULTS))
def test_a_fault_ends_everything_and_is_named(cluster, engine, fault):
    where, strike, words = FAULTS[fault]
    job, before = "fault-%d" % time.time_ns(), folders(cluster)
    train = cluster.start(
        "train.yml", job_id=job, launcher="mpi", lease=LEASE, **LONG, **ENGINES[engine]
    )
    try:
        cluster.until_it_trains(job, train)
        if fault == "node":
            subprocess.run(["docker", "kill", cluster.container(where)], check=True)
        else:
            cluster.shell(where, strike)
        output = train.end()
        wait_for_nothing(cluster, BOUND)
    finally:
        train.kill()
        if fault == "node":
            cluster.power_on(where)
    assert train.returncode != 0
    left = {(name, path) for name, path in folders(cluster) - before}
    assert {name for name, _ in left} <= ({where} if fault == "node" else set()), left
    first = json.loads((cluster.runs / job / "verdict.json").read_text())["first_failure"]
    text = "%(role)s %(index)s on %(host)s: %(reason)s" % first
    assert all(word in text.replace(" None", "") for word in words), output


def test_status_and_stop(cluster):
    """A detached job goes on without a controller; stop.yml ends it and mpirun."""
    job = "detached-%d" % time.time_ns()
    started = cluster.play("train.yml", job_id=job, launcher="mpi", detach=True, **LONG)
    assert started.code == 0 and "STARTED   job " + job in started.output, started.output
    shown = cluster.play("status.yml")
    assert job in shown.output and "running" in shown.output, shown.output
    stopped = cluster.play("stop.yml", job=job)
    assert stopped.code == 0, stopped.output
    wait_for_nothing(cluster, 10)


@pytest.mark.soak
def test_the_lease_ends_a_job_without_a_controller(cluster):
    job = "leased-%d" % time.time_ns()
    train = cluster.start("train.yml", job_id=job, launcher="mpi", lease=LEASE, **LONG)
    try:
        cluster.until_it_trains(job, train)
    finally:
        train.kill()
    wait_for_nothing(cluster, 3 * LEASE)
    status = json.loads(cluster.shell("node2", "cat /opt/mxcluster/jobs/%s/status.json" % job))
    assert status["reason"] in ("lease", "engine"), status


def test_a_failed_start_leaves_nothing(cluster):
    """mpirun ends before it has started an agent."""
    for name in cluster.names:
        cluster.shell(
            name,
            "mkdir -p /opt/broken; printf '#!/bin/sh\\necho \"mpirun (Open MPI) 4.1.4\"; exit 1' "
            "> /opt/broken/mpirun; chmod 755 /opt/broken/mpirun",
        )
    dead = cluster.train(launcher="mpi", mpi_pre_execution_command="export PATH=/opt/broken:$PATH")
    assert dead.result.code != 0, dead.result.output
    assert "mpirun has not started the agent on node1, node2, node3" in dead.result.output
    for name in cluster.names:
        assert dead.folder.name not in cluster.shell(name, "ls /opt/mxcluster/jobs")
        cluster.shell(name, "rm -r /opt/broken")
    wait_for_nothing(cluster, 10)


def test_the_launch_line_over_mpi_and_ssh(cluster, tmp_path):
    """The nodes come from a file of hosts; words and variables arrive, and the true exit status."""
    (tmp_path / "train.py").write_text(
        "import os, sys\nimport mxnet as mx\n"
        "kv = mx.kv.create(sys.argv[sys.argv.index('--kv-store') + 1])\n"
        "print('HEARD', sys.argv[3:], os.environ['MODE'], kv.num_workers, flush=True)\n"
        "kv.init(0, mx.nd.ones(2))\n"
        "sys.exit(5 if 'fail' in sys.argv and kv.rank == 0 else 0)\n"
    )
    (tmp_path / "hosts").write_text(cluster.here("172.29.10.12 slots=1\nnode3\n"))

    def launch(launcher, *words):
        return cluster.launch(
            tmp_path,
            *("-n", "2", "-s", "1", "-H", "hosts", "--launcher", *launcher),
            *("--env-worker", "MODE:a b", "python", "train.py", "--kv-store", "dist_sync", *words),
        )

    done = launch(["mpi"], "it's", "a b")
    assert done.returncode == 0, done.stdout.decode()
    logs = [path.read_text() for path in sorted(cluster.runs.glob("*/nodes/*/worker-*.log"))]
    arrived = [log for log in logs if "HEARD [\"it's\", 'a b'] a b 2" in log]
    assert len(arrived) == 2, done.stdout.decode()
    failed = launch(["ssh", "-i", "eth0", "--sync-dst-dir", "/tmp/away"], "fail")
    assert failed.returncode == 5, failed.stdout.decode()
