"""The helpers of a real agent: they measure its job, and end with it or without it."""

import os
import signal

import pytest

from mxcluster import events
from mxcluster.model.events import NodeUsage, Usage
from mxcluster.node import processes

pytestmark = pytest.mark.slow

BURN = "while :; do :; done"


def meters(job):
    """Return the meters of the job's agent."""
    agent = job.folder.status().agent.pid
    return [
        one.identity
        for one in processes.table()
        if one.parent == agent and b"mxcluster.agent.meter" in processes.read(one.pid, "cmdline")
    ]


def figures(job, kind):
    path = job.folder.file(events.FILE)
    found = [line.event for line in events.read(path)] if os.path.exists(path) else []
    return [event for event in found if isinstance(event, kind)]


def test_the_agent_measures_its_job_and_leaves_no_meter(job):
    job.start(BURN)
    job.until(lambda: figures(job, Usage) and figures(job, NodeUsage), 120)
    assert {(one.role, one.index) for one in figures(job, Usage)} == {("worker", 0)}
    assert {one.host for one in figures(job, NodeUsage)} == {"node1"}
    [meter] = meters(job)
    assert os.getpriority(os.PRIO_PROCESS, meter.pid) >= 10, "the job goes first"
    job.ask("stop")
    job.nothing_left()
    assert not processes.alive(meter)


def test_a_job_goes_on_without_its_meter(job):
    job.start("sleep 300")
    job.until(lambda: meters(job), 120)
    [meter] = meters(job)
    processes.send(meter, signal.SIGKILL)
    job.until(lambda: not processes.alive(meter))
    status = job.looks(2.0)
    assert status["state"] == "running" and status["first_failure"] is None
