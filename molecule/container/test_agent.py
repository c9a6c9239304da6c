"""Agents with containers of this machine, under docker and podman.

The processes of the jobs are small shell commands.
"""

import json
import os
import resource
import signal
import subprocess
import time

import pytest

from mxcluster.node import processes
from tests import needs
from tests.often import seldom
from tests.unit.agent import jobs
from tests.waiting import until

IMAGE = os.environ["MXCLUSTER_NODE_IMAGE"]
SLEEP = "trap 'exit 0' USR1; echo ready; while :; do sleep 0.1; done"


class Contained(jobs.Contained):
    """A job in containers of the image of this scenario."""

    image = IMAGE

    def containers(self):
        """Return the ids of the containers of this job, also of those that have ended."""
        label = "label=mxcluster.job_dir=%s" % self.path
        listed = subprocess.check_output([self.engine, "ps", "-aq", "--filter", label])
        return listed.decode().split()

    def inspect(self, container):
        """Return the engine's description of a container, as text."""
        return subprocess.check_output([self.engine, "inspect", container]).decode()

    def described(self):
        """Return the job's status and the engine's descriptions of its containers."""
        texts = [self.evidence()]
        for container in self.containers():
            command = [self.engine, "inspect", "--format", "{{json .State}}", container]
            texts.append(subprocess.run(command, stdout=subprocess.PIPE).stdout.decode())
        return "\n".join(texts)

    def nothing_left(self):
        until(lambda: not self.containers(), evidence=self.described)


# Both engines run the same commands of ours. Podman has the other tests under `make soak` only.
often_with_both = pytest.mark.parametrize("engine", ["docker", "podman"], indirect=True)


@pytest.fixture(scope="module", params=["docker", seldom("podman")])
def engine(request):
    """Return the name of the engine, which has the image."""
    needs.find_program(request.param)
    has = [request.param, "image", "inspect", IMAGE]
    if subprocess.call(has, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) != 0:
        saved = subprocess.Popen(["docker", "save", IMAGE], stdout=subprocess.PIPE)
        subprocess.check_call([request.param, "load"], stdin=saved.stdout)
        subprocess.check_call([request.param, "tag", "localhost/" + IMAGE, IMAGE])
        assert saved.wait() == 0
    return request.param


@pytest.fixture
def job(tmp_path, engine):
    made = Contained(tmp_path)
    made.engine = engine
    yield made
    made.ask("stop")
    left = made.containers()
    assert not left, "%s\n%s" % (left, made.described())


@often_with_both
def test_processes_end_with_their_own_status(job):
    """The second process waits for the end of the first: a failure ends all processes."""
    job.start("id -u; echo $HOME; pwd; exit 0", "until [ -e go ]; do sleep 0.1; done; exit 91")
    until(lambda: job.folder.status().processes[0].state == "ended", evidence=job.described)
    with open(job.folder.file("go"), "w"):
        pass
    status = job.end(60)
    first, second = status["processes"]
    assert (first["exit_code"], second["exit_code"]) == (0, 91)
    assert job.log("worker-0").split() == [str(os.geteuid()), "/tmp", job.path]
    job.nothing_left()


def test_the_agent_knows_the_process_by_the_pid_of_the_node(job):
    job.start(SLEEP)
    (pid,) = job.running(1)
    assert processes.variable(pid, "MXCLUSTER_JOB_DIR") == job.path
    os.kill(pid, signal.SIGUSR1)
    assert job.end(60)["processes"][0]["exit_code"] == 0


def test_a_killed_process_ends_the_others_and_leaves_no_container(job):
    job.start(SLEEP, SLEEP)
    pids = job.running(2)
    os.kill(pids[1], signal.SIGKILL)
    status = job.end(60)
    assert status["first_failure"]["name"] == "worker-1"
    assert status["first_failure"]["exit_code"] == -signal.SIGKILL
    assert status["left"] == []
    job.nothing_left()


def test_a_paused_container_is_named(job):
    """Its processes get no signal, and their peers miss them a moment later."""
    job.start(SLEEP, SLEEP, heartbeat={"timeout": 2})
    job.running(2)
    paused = [
        one for one in job.containers() if 'mxcluster.process": "worker-1' in job.inspect(one)
    ]
    subprocess.check_call([job.engine, "pause", *paused])
    failure = job.end(60)["first_failure"]
    assert failure["name"] == "worker-1" and "container has been frozen for " in failure["reason"]
    job.nothing_left()


@often_with_both
def test_containers_end_with_a_killed_agent(job):
    status = job.start(SLEEP, SLEEP)
    pids = job.running(2)
    known = [processes.identity(pid) for pid in pids]
    os.kill(status["agent"]["pid"], signal.SIGKILL)
    begun = time.monotonic()
    until(lambda: not any(map(processes.alive, known)), evidence=job.described)
    print("processes gone %.2f s after the agent" % (time.monotonic() - begun))
    job.nothing_left()


def test_a_stop_ends_stubborn_processes(job):
    job.start("trap '' TERM; echo ready; while :; do sleep 0.1; done")
    job.running(1)
    assert job.ask("stop")["left"] == []
    job.nothing_left()


def test_a_killed_client_leaves_no_container(job):
    status = job.start(SLEEP)
    job.running(1)
    (client,) = [
        who.pid
        for who in processes.family([job.agent(status)])
        if processes.command_name(who.pid) == job.engine
    ]
    os.kill(client, signal.SIGKILL)
    assert job.end(60)["reason"] == "failed"
    job.nothing_left()


def test_an_expired_lease_ends_the_containers(job):
    job.start(SLEEP, lease=5)
    # The engine may take longer than the lease to start the container.
    until(
        lambda: job.folder.renew_lease() or job.folder.status().processes[0].pid,
        evidence=job.described,
    )
    assert job.end(60)["reason"] == "lease"
    job.nothing_left()


def test_a_container_that_does_not_start_is_named(job):
    job.image = "localhost/nobody"
    job.start(SLEEP)
    failure = job.end(60)["first_failure"]
    assert "did not start in a container of " + job.engine in failure["reason"], failure


@often_with_both
def test_a_container_has_the_rights_of_its_user_and_no_more(job):
    job.start(SLEEP)
    (pid,) = job.running(1)
    (container,) = job.containers()
    host = json.loads(job.inspect(container))[0]["HostConfig"]
    assert not host["Privileged"] and not host.get("CapAdd") and host["NetworkMode"] == "host"
    with open("/proc/%d/status" % pid) as stream:
        lines = dict(line.rstrip("\n").split(":\t", 1) for line in stream if ":\t" in line)
    assert lines["NoNewPrivs"] == "1" and lines["Uid"].split()[0] == str(os.geteuid())
    with open("/proc/%d/limits" % pid) as stream:
        (files,) = [line.split()[3:5] for line in stream if line.startswith("Max open files")]
    assert files == [str(limit) for limit in resource.getrlimit(resource.RLIMIT_NOFILE)]


@often_with_both
def test_secrets_are_in_no_file_of_the_engine(job):
    job.start(SLEEP, env={"PASSWORD": "hush-7"})
    (pid,) = job.running(1)
    assert processes.variable(pid, "PASSWORD") == "hush-7"
    (container,) = job.containers()
    assert "hush-7" not in job.inspect(container)
