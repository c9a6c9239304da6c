"""A real MPI program on three nodes under each engine, and the end of the job after each fault."""

import json
import re
import time

import pytest

from mxcluster.node import mpi_daemons
from tests.often import seldom
from tests.waiting import until

PROGRAM = "mpi_sum.py"
LIBRARIES = {"openmpi": "libmpi.so.40", "mpich": "libmpi.so.12"}
# How a shell finds the engines of molecule/shared/mpi.sh. Of Intel MPI the image has the launcher
# alone.
LOADED = {
    "openmpi": ":",
    "mpich": "export PATH=/opt/mpich/bin:$PATH LD_LIBRARY_PATH=/opt/mpich/lib",
    "intelmpi": "export PATH=/opt/intel/mpi/bin:$PATH",
}
JOBS = "/opt/mxcluster/jobs"


@pytest.fixture(scope="module", autouse=True)
def no_keys(cluster, provisioned):
    """Take the nodes' SSH keys for each other away: mpi.yml needs none."""
    for name in cluster.names:
        cluster.shell(name, "mv /home/mxcluster/.ssh /root/ssh-of-mxcluster")
    yield
    for name in cluster.names:
        # A start by agent_unit may have made a new folder, and mv would move the old one into it.
        cluster.shell(
            name, "rm -rf /home/mxcluster/.ssh && mv /root/ssh-of-mxcluster /home/mxcluster/.ssh"
        )


@pytest.fixture
def files(cluster):
    """Return the path of the program on the controller."""
    return str(cluster.project / "tests" / "playbooks" / "scripts" / PROGRAM)


def run(cluster, engine, **options):
    """Run mpi.yml; return its output, the run folder, and the verdict ({} without one)."""
    options.setdefault("job_id", "job-%d" % time.time_ns())
    options.update(mpi_runtime=engine, mpi_pre_execution_command=LOADED[engine])
    result = cluster.play("mpi.yml", **options)
    folder = cluster.runs / options["job_id"]
    path = folder / "verdict.json"
    return result, folder, json.loads(path.read_text()) if path.exists() else {}


def command(engine, *more):
    return " ".join(["python3", PROGRAM, LIBRARIES[engine], *more])


# The playbooks on the local inventory run a program under MPICH, too.
@pytest.mark.parametrize("engine", ["openmpi", seldom("mpich")])
def test_program_runs_on_all_nodes_and_its_files_come_back(cluster, files, engine):
    result, folder, verdict = run(
        cluster,
        engine,
        mpi_command=command(engine),
        mpi_processes_per_node=2,
        mpi_resource_files=files,
        mpi_coordination_command="id -un > who",
    )
    assert result.code == 0 and verdict["ok"], result.output
    assert verdict["left"] == {name: [] for name in cluster.names}
    for rank in range(6):
        host, process = "node%d" % (rank // 2 + 1), ("mpirun", "node-1", "node-2")[rank // 2]
        found = folder / "nodes" / host / "files" / process
        text = (found / ("rank-%d.txt" % rank)).read_text()
        assert text == "rank %d of 6 on %s: sum 21\n" % (rank, host)
        assert (found / "who").read_text() == "mxcluster\n"


def test_intel_mpi_runs_its_processes_on_all_nodes(cluster):
    result, folder, verdict = run(
        cluster,
        "intelmpi",
        mpi_command='echo "$PMI_RANK $MXCLUSTER_HOST" > out',
    )
    assert result.code == 0 and verdict["ok"], result.output
    for rank, process in enumerate(("mpirun", "node-1", "node-2")):
        host = "node%d" % (rank + 1)
        written = folder / "nodes" / host / "files" / process / "out"
        assert written.read_text() == "%d %s\n" % (rank, host)


@pytest.mark.parametrize(
    "engine, fault",
    [
        ("openmpi", "process"),
        seldom("mpich", "daemon"),  # tests/unit/node/test_mpi_job.py kills one
        seldom("openmpi", "agent"),
        seldom("openmpi", "node"),
    ],
)
def test_fault_ends_the_job_everywhere_and_is_named(cluster, files, engine, fault):
    job = "fault-%s-%d" % (fault, time.time())
    playing = cluster.start(
        "mpi.yml",
        job_id=job,
        mpi_command=command(engine, "600"),
        mpi_runtime=engine,
        mpi_pre_execution_command=LOADED[engine],
        mpi_resource_files=files,
    )
    node = cluster.node("node2")
    begun = "find %s/%s -name begun-1 -size +0c" % (JOBS, job)

    def runs():
        assert playing.poll() is None, playing.output()
        return node.run(begun).stdout

    try:
        until(runs, 300, playing.output, pause=0.5)
        if fault == "process":
            node.run("kill -9 $(cat $(%s))" % begun)
        elif fault == "daemon":
            cluster.shell("node2", "pkill -9 -u mxcluster -x " + mpi_daemons.NAME)
        elif fault == "agent":
            node.run("systemctl kill --signal=KILL --kill-who=main mxcluster-agent@%s" % job)
        else:
            cluster.command("docker", "pause", cluster.container("node2"))
        output = playing.end()
    finally:
        playing.kill()
        if fault == "node":
            cluster.command("docker", "unpause", cluster.container("node2"))
    verdict = json.loads((cluster.runs / job / "verdict.json").read_text())
    assert playing.returncode and not verdict["ok"], output
    failure = verdict["first_failure"]
    if fault == "process":
        assert failure["name"] == "mpirun", output
        assert re.search("signal 9|137", "\n".join(failure["log"])), output
    else:
        assert failure["host"] == "node2", output
    if fault == "daemon":
        text = "\n".join([failure["reason"], *failure["log"]])
        assert mpi_daemons.NAME + ", a daemon of mpirun (pid " in text, output
    assert not any(verdict["left"].values()), output

    def left():
        listed = "pgrep -u mxcluster -a -f 'mpi_job|mpi_sum|orted|hydra'"
        return "".join(cluster.node(name).run(listed).stdout for name in cluster.names)

    # A lost node ends its part when the lease runs out, or before. The program takes 600 s.
    until(lambda: not left(), 200, left, pause=1)


@pytest.mark.soak  # test_3_mpi_launcher.py stops a detached job
def test_stop_ends_a_detached_job(cluster, files):
    result, _, _ = run(
        cluster,
        "mpich",
        job_id="detached",
        detach=True,
        mpi_command=command("mpich", "600"),
        mpi_resource_files=files,
    )
    assert result.code == 0, result.output
    assert "running" in cluster.play("status.yml").output
    stopped = cluster.play("stop.yml", job="detached")
    assert stopped.code == 0 and "nothing: no process" in stopped.output, stopped.output


@pytest.mark.parametrize(
    "playbook, knobs",
    [
        pytest.param("mpi.yml", {"mpi_command": "true"}, id="program"),
        seldom("train.yml", {"launcher": "mpi"}, id="launcher"),
    ],
)
def test_missing_and_different_engines_are_refused_by_node(cluster, playbook, knobs):
    node = cluster.node("node2")
    loads = LOADED["mpich"]
    node.run("mv /opt/mpich /opt/away")
    try:
        result = cluster.play(
            playbook, mpi_runtime="mpich", mpi_pre_execution_command=loads, **knobs
        )
    finally:
        node.run("mv /opt/away /opt/mpich")
    assert result.code and "MPICH is not installed on this node" in result.output, result.output
    assert "node2" in result.output
    fake = "#!/bin/sh\necho 'mpirun (Open MPI) 9.9.9'\n"
    node.run("printf %s > /usr/local/bin/mpirun; chmod 755 /usr/local/bin/mpirun", fake)
    try:
        result = cluster.play(playbook, mpi_runtime="openmpi", **knobs)
    finally:
        node.run("rm /usr/local/bin/mpirun")
    assert result.code, result.output
    assert "the nodes have different MPI engines" in result.output
    assert "openmpi 9.9.9: node2" in result.output, result.output
