"""The rendezvous under a real agent: it runs before the processes and ends like a process."""

import json
import os
import signal
import subprocess

import pytest

from mxcluster.node import processes
from tests.machine import Stopwatch
from tests.networks import own_network
from tests.unit.agent.jobs import Job

pytestmark = pytest.mark.slow

HERE = {
    "name": "worker-0",
    "role": "worker",
    "host": "node1",
    "address": own_network() + ".1",
    "port": 19091,
}
THERE = {
    "name": "server-0",
    "role": "server",
    "host": "node2",
    "address": own_network() + ".2",
    "port": 19091,
}


# No test waits for this timeout: what waits for the rendezvous fails the test much earlier.
def spec(own, timeout=600.0):
    return {"own": [own], "timeout": timeout, "clock": 1.0}


def wait_for_rendezvous(job, **options):
    """Start a job whose rendezvous waits for a missing node; return the job's status."""
    job.start("echo started", rendezvous=spec(HERE), peers=[HERE, THERE], **options)
    job.until(lambda: listening(HERE))
    status = job.status()
    job.remember(status)
    return status


def listening(peer):
    wanted = "%08X:%04X" % (
        int.from_bytes(bytes(map(int, peer["address"].split("."))), "little"),
        peer["port"],
    )
    return any(
        fields[1] == wanted and fields[3] == "0A"
        for fields in map(str.split, open("/proc/net/tcp").read().splitlines()[1:])
    )


def not_started(job, status):
    assert not os.path.exists(job.folder.file("worker-0.log"))
    assert status["processes"][0]["pid"] is None
    assert status["processes"][0]["state"] == "ended" and status["rendezvous"]["state"] == "ended"
    assert job.nothing_left() and not listening(HERE)


def test_processes_start_after_the_rendezvous(tmp_path):
    jobs = []
    for host, own in (("node1", HERE), ("node2", THERE)):
        (tmp_path / host / "job-1").mkdir(parents=True)
        jobs.append(Job(tmp_path / host / "job-1"))
        jobs[-1].plan("echo started", rendezvous=spec(own), peers=[HERE, THERE], host=host)
    try:
        with Stopwatch() as watch:
            for job in jobs:
                job.ask_to_start()
            ends = [job.end() for job in jobs]
        for job, status in zip(jobs, ends):
            assert status["reason"] == "done" and job.log("worker-0") == "started\n", job.evidence()
            (met,) = json.load(open(job.folder.file("rendezvous.json")))["met"]
            assert met["rtt"] < 0.5 * watch.slowness, met
            # Both nodes have one clock, which the other node read between the call and its answer.
            assert abs(met["offset"]) <= met["rtt"] / 2 + 0.001, met
    finally:
        for job in jobs:
            job.ask("stop")


def test_a_missing_node_is_named_and_no_process_starts(job):
    job.start("echo started", rendezvous=spec(HERE, timeout=1.5), peers=[HERE, THERE])
    status = job.end()
    assert status["reason"] == "failed"
    failure = status["first_failure"]
    assert (failure["name"], failure["exit_code"], failure["kind"]) == ("rendezvous", 95, "program")
    assert failure["log"] == [
        "node1 cannot reach node2 (server-0 at %s:19091): Connection refused. Check that "
        "the agent of node2 runs and that no firewall blocks these ports." % THERE["address"]
    ]
    not_started(job, status)


@pytest.mark.parametrize("how", ["stop", "lease"])
def test_stop_and_lease_end_the_rendezvous(job, how):
    with subprocess.Popen(["sleep", "300"]) as controller:
        try:
            lease = {"lease": 0.4, "controller": processes.witness(controller.pid).encode()}
            wait_for_rendezvous(job, **(lease if how == "lease" else {}))
            if how == "stop":
                job.ask("stop")
        finally:
            controller.kill()  # the lease counts from now on
    status = job.end()
    assert status["reason"] == {"stop": "stopped", "lease": "lease"}[how]
    not_started(job, status)


@pytest.mark.parametrize(
    "signum, reason",
    [
        (signal.SIGKILL, "killed by signal 9 (SIGKILL)"),
        (signal.SIGSTOP, "has been stopped by a signal (SIGSTOP) for "),
    ],
)
def test_a_signal_to_the_rendezvous_is_the_first_failure(job, signum, reason):
    """The failure names the rendezvous, not the agent or a firewall, long before its timeout."""
    status = wait_for_rendezvous(
        job,
        root={"address": HERE["address"], "port": HERE["port"]},
        heartbeat={"timeout": 2},
        timeouts={"start": 1},
    )
    # The agent looks when start_timeout is over, which counts for the later processes only.
    assert job.looks(2.5)["first_failure"] is None
    assert processes.send(
        processes.Identity(status["rendezvous"]["pid"], status["rendezvous"]["start_time"]), signum
    )
    status = job.end()
    failure = status["first_failure"]
    assert (failure["role"], failure["name"], failure["log"]) == ("rendezvous", "rendezvous", [])
    assert failure["reason"].startswith(reason)
    not_started(job, status)


def test_the_rendezvous_dies_with_a_killed_agent(job):
    status = wait_for_rendezvous(job)
    assert processes.send(job.agent(status), signal.SIGKILL)
    job.until(lambda: not listening(HERE))
    status = job.ask("wait", seconds=1)["status"]
    assert status["first_failure"]["reason"] == "the agent itself was killed"
    not_started(job, status)
