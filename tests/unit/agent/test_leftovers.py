"""What is left of a job is looked for: real processes, real ports."""
import json
import os
import signal
import socket
import subprocess
import sys

import pytest

from mxcluster import processes
from mxcluster.agent import left

LISTEN = "import socket, sys, time; s = socket.create_server(('127.0.0.11', %d)); print('listens', flush=True); time.sleep(30)"


@pytest.fixture
def start():
    """Starts a process with variables of its own; ends it."""
    started = []

    def run(argv, **environment):
        started.append(subprocess.Popen(argv, env=dict(os.environ, **environment), stdout=subprocess.PIPE))
        return started[-1]
    yield run
    for child in started:
        child.kill()
        child.communicate()


@pytest.fixture
def port():
    with socket.create_server(("127.0.0.11", 0)) as probe:
        return probe.getsockname()[1]


def ended(job, port):
    """A job that has ended, and whose worker was to listen."""
    job.start("true")
    job.end()
    job.nothing_left()
    plan = job.folder.plan()
    plan["processes"][0].update(address="127.0.0.11", port=port)
    job.plan("true")
    with open(job.folder.file("plan.json"), "w") as stream:
        json.dump(plan, stream)


def test_nothing(job, port):
    ended(job, port)
    assert left.look(job.folder) == []


def test_no_job(job):
    assert left.look(job.folder) == []


def test_a_process_and_its_port(job, port, start):
    ended(job, port)
    child = start([sys.executable, "-c", LISTEN % port], MXCLUSTER_JOB_DIR=job.path)
    child.stdout.readline()
    name = processes.command_name(child.pid)
    assert left.look(job.folder, 0) == ["pid %d (%s) still runs" % (child.pid, name),
                                        "port %d is still listened on by pid %d (%s)" % (port, child.pid, name)]


def test_who_has_thrown_away_the_environment_is_seen_by_the_port(job, port, start):
    ended(job, port)
    child = start([sys.executable, "-c", LISTEN % port])
    child.stdout.readline()
    assert left.look(job.folder, 0) == ["port %d is still listened on by pid %d (%s)"
                                        % (port, child.pid, processes.command_name(child.pid))]


def test_the_next_job_on_the_port_is_not_of_this_one(job, port, start):
    ended(job, port)
    start([sys.executable, "-c", LISTEN % port], MXCLUSTER_JOB_DIR="/another").stdout.readline()
    assert left.look(job.folder, 0) == []


def test_who_listened_before_the_job_is_not_of_it(job, port, start):
    start([sys.executable, "-c", LISTEN % port]).stdout.readline()
    ended(job, port)
    assert left.look(job.folder, 0) == []


def test_an_agent_that_has_written_its_last_word_is_given_time_to_end(job):
    status = job.start("sleep 20")
    agent = job.agent(status)
    assert left.look(job.folder, 0)[0] == "the agent still runs, pid %d, and holds the job's ports and GPUs" % agent.pid
    os.kill(agent.pid, signal.SIGTERM)
    assert left.look(job.folder, 5) == []
