"""The first process of a container, here as a plain process with a real lock."""

import fcntl
import json
import os
import signal
import subprocess
import sys

import pytest

from mxcluster.agent import runtimes
from mxcluster.node import contained, processes
from tests.plans import part_of, process_of
from tests.unit.agent.jobs import PACKAGE

CONTAINER = {"engine": "docker", "image": "i", "python": "python3"}


@pytest.fixture
def lock(tmp_path):
    """Yield a descriptor that holds the lock, as an agent does."""
    descriptor = os.open(str(tmp_path / "agent.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    yield descriptor
    os.close(descriptor)


def start(tmp_path, command, seconds=None, **env):
    """Start `contained` with a command for sh, as an engine does; return the process."""
    asked = {
        "command": ["sh", "-c", command],
        "env": env,
        "lock": str(tmp_path / "agent.lock"),
        "seconds": seconds,
    }
    started = subprocess.Popen(
        [sys.executable, "-m", "mxcluster.node.contained"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=dict(os.environ, PYTHONPATH=PACKAGE, OF_IMAGE="1"),
    )
    started.stdin.write(json.dumps(asked).encode())
    started.stdin.close()
    return started


def children(started):
    known = processes.identity(started.pid)
    return [who for who in processes.family([known]) if who != known]


@pytest.mark.parametrize(
    "command,status,told", [("exit 91", 91, 91), ("kill -9 $$", 137, -9), ("kill -15 $$", 143, -15)]
)
def test_the_exit_status_tells_how_the_process_ended(tmp_path, lock, command, status, told):
    assert start(tmp_path, command).wait(60) == status
    assert runtimes.Containers.exit_code(status) == told


def test_the_process_has_the_variables_of_the_image_and_of_the_job(tmp_path, lock):
    started = start(tmp_path, "echo $OF_IMAGE $OF_JOB", OF_JOB="a b")
    assert started.stdout.read() == b"1 a b\n" and started.wait(60) == 0


def test_a_program_that_does_not_exist_is_named(tmp_path, lock):
    started = start(tmp_path, "exec /nowhere/python")
    assert b"/nowhere/python" in started.stdout.read()
    assert started.wait(60) == 127


@pytest.mark.slow
def test_it_ends_after_the_given_time(tmp_path, lock):
    started = start(tmp_path, "echo ready; exec sleep 300", seconds=1)
    assert started.stdout.readline() == b"ready\n"
    child = children(started)
    assert started.wait(60) == contained.TOO_LONG
    assert started.stdout.readline() == b"mxcluster: the program did not end within 1 s\n"
    for who in child:  # in a container the kernel does this
        processes.send(who, signal.SIGKILL)


def test_the_libraries_of_the_image_stay_behind_those_of_the_job():
    image, job = {"LD_LIBRARY_PATH": "/image", "A": "1"}, {"LD_LIBRARY_PATH": "/job"}
    assert contained.joined(image, job) == {"LD_LIBRARY_PATH": "/job:/image", "A": "1"}
    assert contained.joined(image, {})["LD_LIBRARY_PATH"] == "/image"
    assert contained.joined({}, job) == job


def test_it_ends_with_the_agent(tmp_path, lock):
    started = start(tmp_path, "echo ready; exec sleep 300")
    assert started.stdout.readline() == b"ready\n"
    child = children(started)
    fcntl.flock(lock, fcntl.LOCK_UN)
    assert started.wait(60) == 1
    for who in child:  # in a container the kernel does this
        processes.send(who, signal.SIGKILL)


def test_the_client_gets_no_variable_of_the_job(tmp_path, monkeypatch):
    mounts = [str(tmp_path), "/does/not/exist"]
    plan = part_of(host="one", container=CONTAINER, nodes={"one": {"mounts": mounts}})
    monkeypatch.setattr(runtimes.gpus, "count", lambda: 0)
    made = runtimes.of_plan("/jobs/j", plan, processes.Identity(1, 1))
    monkeypatch.setenv("SECRET", "x")
    seen = {}

    def popen(argv, env, stdin, **_):
        seen.update(argv=argv, env=env, told=json.load(stdin))

    monkeypatch.setattr(runtimes.subprocess, "Popen", popen)
    made.popen(process_of(command=["python3", "x"]), {"PASSWORD": "secret"}, "/jobs/j", 1, None)
    assert seen["told"] == {
        "command": ["python3", "x"],
        "env": {"PASSWORD": "secret", "MXCLUSTER_PROCESS": "worker-0"},
        "lock": "/jobs/j/agent.lock",
    }
    assert "secret" not in " ".join(seen["argv"]) and "SECRET" not in seen["env"]
    assert "mxcluster.job_dir=/jobs/j" in seen["argv"]
    assert "/does/not/exist" not in str(seen["argv"])
    assert seen["argv"][-4:] == ["i", "-u", "-m", "mxcluster.node.contained"]


def test_only_an_engine_that_failed_has_not_started_a_process(tmp_path):
    plan = part_of(host="one", container=CONTAINER, nodes={"one": {"mounts": []}})
    made = runtimes.of_plan(str(tmp_path), plan, processes.Identity(1, 1))
    assert made.why_not_started(0, []) is None and not made.cut_off
    assert made.why_not_started(-15, []) is None and made.cut_off
    assert "container of docker: no such image" in made.why_not_started(125, ["no such image"])
    gone = 'level=error msg="error waiting for container: unexpected EOF"'
    assert "docker on this node has lost the container" in made.why_lost(125, ["step 3", gone])
    assert made.why_lost(125, ["step 3"]) is None, "the program itself may end with 125"
    assert made.why_lost(1, [gone]) is None
    assert isinstance(runtimes.of_plan(str(tmp_path), part_of(), None), runtimes.Host)
