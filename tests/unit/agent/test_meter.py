"""The meter: a process that measures real processes of a job, and its arithmetic."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from mxcluster import events
from mxcluster.agent import helper, meter
from mxcluster.agent.folder import JobFolder
from mxcluster.agent.meter import Reading, between, pause
from mxcluster.model.events import NodeUsage, Usage
from mxcluster.model.status import Part, Status
from mxcluster.model.usage_request import UsageRequest
from mxcluster.node import processes
from mxcluster.node.quota import Quota
from mxcluster.node.usage import Used
from tests import waiting
from tests.unit.agent.jobs import PACKAGE
from tests.unit.node.test_nvml import GIB, built

pytestmark = pytest.mark.slow

BURN = "while :; do :; done"
COMMANDS = {"worker-0": BURN, "worker-1": "(%s) & wait" % BURN, "server-0": "exec sleep 1000"}


@pytest.fixture
def job(tmp_path):
    """Yield a job folder whose status has the processes of COMMANDS. They end with the test."""
    children = {
        name: subprocess.Popen(["sh", "-c", command], start_new_session=True)
        for name, command in COMMANDS.items()
    }
    parts = []
    for name, child in children.items():
        role, index = name.split("-")
        own = processes.identity(child.pid)
        parts.append(
            Part(name=name, role=role, index=int(index), pid=own.pid, start_time=own.start_time)
        )
    agent = processes.identity(os.getpid()).record
    folder = JobFolder(str(tmp_path))
    folder.write_status(Status(job="job-1", agent=agent, started=time.time(), processes=parts))
    yield folder
    for child in children.values():
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


@pytest.fixture
def begin(job):
    """Yield a function that starts a meter of the job. The meter ends with the test."""
    made = []

    def start(gpus=(), **environment):
        request = UsageRequest(host="node1", interface="lo", gpus=list(gpus))
        made.append(
            subprocess.Popen(
                [sys.executable, "-m", "mxcluster.agent.meter"],
                stdin=subprocess.PIPE,
                cwd=job.path,
                env=dict(environment, PYTHONPATH=PACKAGE),
            )
        )
        made[-1].stdin.write(json.dumps(request.encode()).encode() + b"\n")
        made[-1].stdin.flush()
        return made[-1]

    yield start
    for one in made:
        one.kill()
        one.wait()
        one.stdin.close()


def of(job, kind, name=None):
    """Return the events of a class so far, or those of the process `name` only."""
    path = job.file(events.FILE)
    found = [line.event for line in events.read(path)] if os.path.exists(path) else []
    return [
        one
        for one in found
        if isinstance(one, kind) and name in (None, "%s-%s" % (one.role, one.index))
    ]


def until(ready, process):
    """Wait until `ready()` is true while the meter `process` runs."""

    def is_ready():
        assert process.poll() is None, "the meter has ended"
        return ready()

    waiting.until(is_ready, 120)


def test_the_meter_measures_each_process_and_its_children(job, begin):
    process = begin()

    def is_burning(one):
        # A busy machine gives a process a small part of a core, and the process waits for the rest.
        return one.cpu > 0 and (one.busy is None or one.busy > 0.8)

    for name in ("worker-0", "worker-1"):
        until(lambda name=name: any(map(is_burning, of(job, Usage, name))), process)
    until(lambda: len(of(job, Usage, "server-0")) > 1, process)
    quiet = of(job, Usage, "server-0")[-1]
    assert quiet.cpu < 0.01 and not (quiet.busy or 0) > 0.1
    for one in of(job, Usage):
        assert one.memory > 1 << 16 and one.gpu_memory is None
    node = of(job, NodeUsage)[-1]
    assert node.host == "node1" and node.own is not None and node.gpus == {}
    assert node.received is None and node.sent is None, "all nodes share the loopback interface"


def test_gpus_are_measured_through_the_drivers_library(job, begin, tmp_path):
    built(tmp_path)
    pid = job.status().parts()["worker-0"].pid
    process = begin([0, 1], LD_LIBRARY_PATH=str(tmp_path), FAKE_PID=str(pid))
    until(lambda: len(of(job, NodeUsage)) > 1 and of(job, Usage, "worker-0"), process)
    assert of(job, NodeUsage)[-1].gpus == {"0": 0.75}, "GPU 1 tells no use"
    assert of(job, Usage, "worker-0")[-1].gpu_memory == 2 * GIB, "of both GPUs"
    assert of(job, Usage, "worker-1")[-1].gpu_memory is None


@pytest.mark.parametrize("how", ["absent", "no driver"])
def test_without_a_working_driver_the_gpus_are_not_measured(job, begin, tmp_path, how):
    if how == "no driver":
        built(tmp_path)
    process = begin([0], LD_LIBRARY_PATH=str(tmp_path), FAKE_INIT="9")
    until(lambda: of(job, NodeUsage) and of(job, Usage, "worker-0"), process)
    assert of(job, NodeUsage)[-1].gpus == {}
    assert of(job, Usage, "worker-0")[-1].gpu_memory is None


def test_the_meter_ends_with_its_stdin(begin, job):
    process = begin()
    until(lambda: of(job, NodeUsage), process)
    process.stdin.close()
    assert process.wait(timeout=120) == 0


def test_a_helper_that_hangs_is_killed(job):
    request = UsageRequest(host="node1", interface="lo", gpus=[])
    for patience, reason in ((0, "failed"), (1, "done"), (3600, "stopped")):
        one = helper.Helper("meter", request, job, lambda: None, patience)
        processes.send(one.identity, signal.SIGSTOP)
        one.finish(reason)
        assert not processes.alive(one.identity)


def test_a_changed_status_does_not_end_the_meter(job, monkeypatch):
    monkeypatch.chdir(job.path)
    own = meter.Meter(UsageRequest(host="node1", interface="lo", gpus=[]), job.path)
    own.look()
    with open(job.file("status.json"), "w") as stream:
        stream.write("[")
    own.look()
    assert of(job, Usage, "worker-0")


def used(cpu, memory=None, **threads):
    return Used(cpu, memory, {int(name[1:]): seconds for name, seconds in threads.items()})


def test_the_figures_of_two_readings():
    first = Reading(10.0, {1: used(5.0, 100, t1=3.0, t2=1.0), 2: used(1.0)})
    last = Reading(14.0, {1: used(9.0, 300, t1=4.0, t2=4.0, t3=9.0), 3: used(1.0, 50)})
    found = between(first, last)  # the process 2 has ended, and its time is in that of its parent 1
    assert (found.cpu, found.busy, found.memory) == (1.0, 0.75, 350)
    quiet = between(Reading(0.0, {1: used(5.0)}), Reading(1.0, {1: used(4.0)}))
    assert (quiet.cpu, quiet.busy, quiet.memory) == (0.0, None, None), "not measured"


def test_the_meter_waits_longer_in_long_jobs_and_after_expensive_looks():
    assert pause(0.0, 0.0) == pause(100.0, 0.001) == meter.PERIOD
    assert pause(2000.0, 0.0) == 20.0 and pause(1e6, 0.0) == meter.LONGEST
    for spent in (0.01, 0.5, 10.0):
        assert spent / pause(0.0, spent) <= meter.SHARE
        quarter = Quota(0.25, "", True)
        assert spent / pause(0.0, spent, quarter) <= meter.SHARE * 0.25, "of the quota"
