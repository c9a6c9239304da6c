"""Finding leftover processes and open ports of a job, with real processes and ports."""

import json
import os
import signal
import socket
import subprocess
import sys

import pytest

from mxcluster.agent import leftovers
from mxcluster.node import processes
from tests.networks import own_network

ADDRESS = own_network() + ".11"
LISTEN = (
    "import socket, sys, time; s = socket.create_server(('" + ADDRESS + "', %d)); "
    "print('listens', flush=True); time.sleep(300)"
)


@pytest.fixture
def start():
    """Return a function that starts a process with extra variables; end the processes later."""
    started = []

    def run(argv, **environment):
        started.append(
            subprocess.Popen(argv, env=dict(os.environ, **environment), stdout=subprocess.PIPE)
        )
        return started[-1]

    yield run
    for child in started:
        child.kill()
        child.communicate()


@pytest.fixture
def port():
    with socket.create_server((ADDRESS, 0)) as probe:
        return probe.getsockname()[1]


def ended(job, port):
    """Run a job to its end; its worker should have listened on `port`."""
    job.start("true")
    job.end()
    job.nothing_left()
    plan = job.folder.plan()
    processes = [plan.processes[0].replaced(address=ADDRESS, port=port)]
    job.plan("true")
    with open(job.folder.file("plan.json"), "w") as stream:
        json.dump(plan.replaced(processes=processes).encode(), stream)


def test_a_folder_without_a_job_has_no_leftovers(job):
    assert leftovers.look(job.folder) == []


def test_a_leftover_process_and_its_port_are_found(job, port, start):
    ended(job, port)
    child = start([sys.executable, "-c", LISTEN % port], MXCLUSTER_JOB_DIR=job.path)
    child.stdout.readline()
    name = processes.command_name(child.pid)
    assert leftovers.look(job.folder, 0) == [
        "pid %d (%s), a process of the ended job, still runs: kill this process"
        % (child.pid, name),
        "port %d is still held by the leftover process pid %d (%s): kill this process"
        % (port, child.pid, name),
    ]


def test_a_leftover_process_without_the_jobs_environment_is_found_by_its_port(job, port, start):
    ended(job, port)
    child = start([sys.executable, "-c", LISTEN % port])
    child.stdout.readline()
    assert leftovers.look(job.folder, 0) == [
        "port %d is still held by the leftover process pid %d (%s): kill this process"
        % (port, child.pid, processes.command_name(child.pid))
    ]


def test_a_process_of_the_next_job_on_the_port_does_not_count(job, port, start):
    ended(job, port)
    start([sys.executable, "-c", LISTEN % port], MXCLUSTER_JOB_DIR="/another").stdout.readline()
    assert leftovers.look(job.folder, 0) == []


@pytest.mark.slow
def test_a_process_that_listened_before_the_job_does_not_count(job, port, start):
    start([sys.executable, "-c", LISTEN % port]).stdout.readline()
    ended(job, port)
    assert leftovers.look(job.folder, 0) == []


def test_an_agent_gets_time_to_exit_after_its_last_status(job):
    status = job.start("sleep 300")
    agent = job.agent(status)
    assert (
        leftovers.look(job.folder, 0)[0]
        == "the agent (pid %d) still runs, and holds the job's ports and GPUs: run stop.yml"
        % agent.pid
    )
    assert processes.send(agent, signal.SIGTERM)
    assert leftovers.look(job.folder, 60) == []
