"""Jobs in containers on two nodes, each with systemd, ssh and a docker engine of its own.

The agent of a job is a systemd unit, and the training user has access to docker.
"""

import json
import os
import subprocess
import time

import pytest

from tests.often import seldom
from tests.waiting import until

IMAGE = "localhost/mxcluster-%s-nodes" % os.environ["MXCLUSTER_RUN"]
JOBS = "/opt/mxcluster/jobs"


def containers(cluster):
    """Return {node: ids of the containers of jobs}, also of those that have ended."""
    command = "docker ps --all --quiet --filter label=mxcluster.job_dir"
    return {name: cluster.shell(name, command) for name in cluster.names}


@pytest.fixture(scope="module")
def brought(cluster, image, tmp_path_factory):
    """Bring the image to both nodes, from an archive on the controller; return the result."""
    archive = tmp_path_factory.mktemp("image") / "image.tar"
    subprocess.check_call(["docker", "tag", image, IMAGE])
    try:
        subprocess.check_call(["docker", "save", "--output", str(archive), IMAGE])
    finally:
        subprocess.check_call(["docker", "rmi", IMAGE])
    return cluster.play(
        "provision.yml",
        container_image_engine="docker",
        container_image_name=IMAGE,
        container_image_archive=str(archive),
    )


@pytest.fixture(autouse=True)
def no_container_is_left(cluster):
    yield
    until(lambda: not any(containers(cluster).values()), 60, lambda: containers(cluster), pause=0.5)


def train(cluster, **options):
    return cluster.train(runtime="docker", image=IMAGE, **options)


def test_nodes_without_the_image_are_refused(cluster):
    job = train(cluster, num_epochs=1)
    assert job.result.code and not job.folder.exists(), job.result.output
    text = " ".join(job.result.output.split())
    for name in cluster.names:
        assert name in text
    assert "the image %s is not on this node" % IMAGE in text, text


def test_an_archive_brings_the_image_to_the_nodes(cluster, brought):
    assert brought.code == 0, brought.output
    command = "docker image inspect --format '{{.Id}}' " + IMAGE
    assert len({cluster.shell(name, command) for name in cluster.names}) == 1
    for name in cluster.names:
        assert not cluster.shell(name, "find /opt/mxcluster/cache -name '*image*'")


def test_a_job_trains_in_containers_under_the_unit(cluster, brought):
    job = train(cluster, kv="dist_gsync", job_id="contained", savemodel=True)
    assert job.result.code == 0 and job.verdict["accuracy"] >= 0.95, job.result.output
    assert job.verdict["left"] == {name: [] for name in cluster.names}


def running(cluster, job, number, playing):
    """Wait until `number` containers run on each node, and return the poll of node2's status."""

    def status():
        assert playing.poll() is None, playing.output()
        counts = [len(ids.split()) for ids in containers(cluster).values()]
        text = cluster.node("node2").run("cat %s/%s/status.json" % (JOBS, job)).stdout
        parts = json.loads(text)["processes"] if text else []
        ready = min(counts) >= number and parts and all(part["pid"] for part in parts)
        return json.loads(text) if ready else None

    return until(status, 300, lambda: playing.output() + str(containers(cluster)), pause=0.5)


# test_agent.py kills processes and agents.
@pytest.mark.parametrize("fault", [seldom("worker"), seldom("agent"), "engine"])
def test_a_fault_ends_the_job_on_both_nodes(cluster, brought, fault):
    job = "fault-%s-%d" % (fault, time.time())
    playing = cluster.start(
        "train.yml",
        job_id=job,
        runtime="docker",
        image=IMAGE,
        kv="dist_sync",
        num_epochs=5000,
        step_ms=20,  # the workers mostly sleep
    )
    node = cluster.node("node2")
    try:
        status = running(cluster, job, 1, playing)
        if fault == "worker":
            node.run("kill -9 %s", str(status["processes"][-1]["pid"]))
        elif fault == "agent":
            node.run("systemctl kill --signal=KILL --kill-who=main mxcluster-agent@%s" % job)
        else:
            node.run("systemctl stop docker.socket docker")
        output = playing.end()
    finally:
        playing.kill()
        if fault == "engine":
            node.run("systemctl start docker")
    verdict = json.loads((cluster.runs / job / "verdict.json").read_text())
    assert playing.returncode and not verdict["ok"], output
    assert verdict["first_failure"]["host"] == "node2", output
    assert not any(verdict["left"].values()), output


def test_a_user_without_access_to_docker_is_refused(cluster, brought):
    for name in cluster.names:
        cluster.shell(name, "gpasswd --delete mxcluster docker")
    try:
        job = train(cluster, num_epochs=1)
    finally:
        for name in cluster.names:
            cluster.shell(name, "gpasswd --add mxcluster docker")
    text = " ".join(job.result.output.split())
    assert job.result.code and "docker does not answer the user with id" in text, text
    assert "add the user to the group docker" in text, text
