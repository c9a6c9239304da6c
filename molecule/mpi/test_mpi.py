"""One mpirun starts the agents of a job: each engine, each scheme, faults and refusals."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

ENGINES = ("openmpi", "mpich", "intelmpi")
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
        "pkill -9 -u mxcluster -P 1 -f 'mxcluster.agent hold'",
        ["agent on node2", "was killed"],
    ),
    "mpirun": (
        "node1",
        "pkill -9 -P $(pgrep -u mxcluster -o -f 'mxcluster.agent watch')",
        ["was killed by signal 9 (SIGKILL)", "all agents ended with it"],
    ),
    "node": ("node3", "", ["node3 is gone"]),
}


def processes(cluster):
    """Return the processes of the training user on the nodes that are up."""
    found = {}
    for name in cluster.names:
        listed = cluster.node(name).run("pgrep -u mxcluster -a")
        if listed.rc == 0:
            found[name] = listed.stdout
    return found


def wait_for_nothing(cluster, seconds):
    deadline = time.time() + seconds
    while processes(cluster):
        assert time.time() < deadline, processes(cluster)
        time.sleep(0.5)


def wait_for_sshd(cluster, name):
    deadline = time.time() + 60
    while cluster.node(name).run("ss -ltn | grep -q ':22 '").rc != 0:
        assert time.time() < deadline, "%s has no sshd after its start" % name
        time.sleep(0.5)


@pytest.mark.parametrize(
    "engine, kv",
    [
        ("openmpi", "dist_sync"),
        ("mpich", "dist_async"),
        ("intelmpi", "dist_gsync"),
        pytest.param("openmpi", "dist_ssync", marks=pytest.mark.soak),
        pytest.param("mpich", "dist_gsync", marks=pytest.mark.soak),
        pytest.param("intelmpi", "dist_ssync", marks=pytest.mark.soak),
        pytest.param("openmpi", "dist_device_sync", marks=pytest.mark.soak),
    ],
)
def test_the_schemes_train(cluster, engine, kv):
    job = cluster.train(kv=kv, num_epochs=20, mpi_runtime=engine)
    assert job.result.code == 0 and job.verdict["ok"], job.result.output
    assert job.verdict["accuracy"] >= 0.95, job.verdict
    assert "launcher mpi: one mpirun on node1" in job.result.output
    log = (job.folder / "nodes" / "node1" / "mpirun.log").read_text()
    assert log.count('"reason": "done"') == 3, log
    # No unit of systemd, no root: the agents are children of the engine's holders.
    agents = cluster.shell("node1", "systemctl list-units --all --no-legend 'mxcluster-agent@*'")
    assert agents == ""
    wait_for_nothing(cluster, 10)


@pytest.mark.parametrize(
    "engine, fault",
    [
        ("openmpi", "mpirun"),
        ("mpich", "worker"),
        ("openmpi", "node"),
        *(
            pytest.param(engine, fault, marks=pytest.mark.soak)
            for engine in ENGINES
            for fault in FAULTS
            if (engine, fault)
            not in (("openmpi", "mpirun"), ("mpich", "worker"), ("openmpi", "node"))
        ),
    ],
)
def test_a_fault_ends_everything_and_is_named(cluster, engine, fault):
    where, strike, words = FAULTS[fault]
    job = "fault-%d" % time.time_ns()
    train = cluster.start("train.yml", job_id=job, num_epochs=5000, mpi_runtime=engine, lease=20)
    deadline = time.time() + 90
    while (
        "batch"
        not in cluster.node("node3").run("cat /opt/mxcluster/jobs/%s/events.jsonl", job).stdout
    ):
        assert time.time() < deadline and train.poll() is None, train.stdout.read().decode()
        time.sleep(0.5)
    if fault == "node":
        subprocess.run(["docker", "kill", cluster.container(where)], check=True)
    else:
        cluster.shell(where, strike)
    try:
        output = train.communicate(timeout=180)[0].decode()
        wait_for_nothing(cluster, BOUND)
    finally:
        if fault == "node":
            subprocess.run(["docker", "start", cluster.container(where)], check=True)
            wait_for_sshd(cluster, where)
    assert train.returncode != 0
    first = json.loads((cluster.runs / job / "verdict.json").read_text())["first_failure"]
    told = "%(role)s %(index)s on %(host)s: %(reason)s" % first
    assert all(word in told.replace(" None", "") for word in words), output


def test_status_and_stop(cluster):
    """A detached job goes on without a controller; stop.yml ends it and mpirun."""
    job = "detached-%d" % time.time_ns()
    started = cluster.play("train.yml", job_id=job, num_epochs=5000, detach=True)
    assert started.code == 0 and "changed" in started.output, started.output
    shown = cluster.play("status.yml")
    assert job in shown.output and "running" in shown.output, shown.output
    stopped = cluster.play("stop.yml", job=job)
    assert stopped.code == 0, stopped.output
    wait_for_nothing(cluster, 10)


def test_refusals_before_a_start(cluster):
    missing = cluster.train(mpirun="/opt/none/mpirun")
    assert missing.result.code != 0 and "/opt/none/mpirun is missing" in missing.result.output
    assert "apt install openmpi-bin" in missing.result.output
    # One node has another version at the same path.
    for name in cluster.names:
        version = "5.0.3" if name == "node3" else "4.1.4"
        cluster.shell(
            name,
            "printf '#!/bin/sh\\necho \"mpirun (Open MPI) %s\"\\n' > /usr/local/bin/mpirun.other; "
            "chmod 755 /usr/local/bin/mpirun.other" % version,
        )
    differing = cluster.train(mpirun="/usr/local/bin/mpirun.other")
    assert differing.result.code != 0, differing.result.output
    for words in ("different versions of mpirun", "4.1.4: node1, node2", "5.0.3: node3"):
        assert words in differing.result.output, differing.result.output
    # The first of them starts nothing: the job's files are removed from all nodes.
    for name in cluster.names:
        cluster.shell(
            name,
            "printf '#!/bin/sh\\necho \"mpirun (Open MPI) 4.1.4\"; exit 1' "
            "> /usr/local/bin/mpirun.other",
        )
    dead = cluster.train(mpirun="/usr/local/bin/mpirun.other")
    assert dead.result.code != 0
    assert "mpirun has not started the agent on node1, node2, node3" in dead.result.output
    for name in cluster.names:
        assert dead.folder.name not in cluster.shell(name, "ls /opt/mxcluster/jobs")
        cluster.shell(name, "rm /usr/local/bin/mpirun.other")


def test_the_launch_line_over_mpi(cluster, tmp_path):
    """The nodes come from a file of hosts; words and variables arrive, and the true exit status."""
    (tmp_path / "train.py").write_text(
        "import os, sys\nimport mxnet as mx\n"
        "kv = mx.kv.create(sys.argv[sys.argv.index('--kv-store') + 1])\n"
        "print('HEARD', sys.argv[3:], os.environ['MODE'], kv.num_workers, flush=True)\n"
        "kv.init(0, mx.nd.ones(2))\n"
        "sys.exit(5 if 'fail' in sys.argv and kv.rank == 0 else 0)\n"
    )
    (tmp_path / "hosts").write_text("172.29.13.12 slots=1\nnode3\n")
    inventories = [
        word
        for folder in ("shared", "mpi")
        for word in ("--inventory", str(cluster.project / "molecule" / folder / "inventory"))
    ]
    own = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    environment = dict(own, ANSIBLE_SSH_CONTROL_PATH_DIR=str(cluster.shared / "cp"))

    def launch(*words):
        return subprocess.run(
            [sys.executable, "-m", "mxcluster.cli", "launch", "-n", "2", "-s", "1", "-H", "hosts"]
            + ["--launcher", "mpi", "--env-worker", "MODE:a b", *inventories]
            + ["python", "train.py", "--kv-store", "dist_sync", *words],
            cwd=str(tmp_path),
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=300,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    done = launch("it's", "a b")
    assert done.returncode == 0, done.stdout.decode()
    logs = [path.read_text() for path in sorted(cluster.runs.glob("*/nodes/*/worker-*.log"))]
    heard = [log for log in logs if "HEARD [\"it's\", 'a b'] a b 2" in log]
    assert len(heard) == 2, done.stdout.decode()
    failed = launch("fail")
    assert failed.returncode == 5, failed.stdout.decode()
