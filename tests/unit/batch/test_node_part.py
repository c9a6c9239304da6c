"""A node's program of a batch job, with a real agent: what cannot end by itself is killed."""

import os
import signal
import sys

import pytest

from mxcluster import exit_codes
from mxcluster.agent.folder import JobFolder
from mxcluster.batch.node_channel import NodeChannel, exchange
from mxcluster.node import processes
from tests.plans import part_json
from tests.unit.agent.jobs import STUBBORN
from tests.waiting import until

pytestmark = pytest.mark.slow

# The test sets the constants of the program, so that it need not wait for them.
PROGRAM = """
import sys
from mxcluster.agent import commands
from mxcluster.batch import node_part
node_part.HELD, commands.STOP_TIMEOUT, node_part.PERIOD = %r, %r, 0.1
node_part.main(sys.argv[1:])
"""


@pytest.fixture
def node(tmp_path):
    """Yield a function that starts a node's program and its agent, and returns the channel."""
    made = []

    def start(command="sleep 300", held=0.3, ends=60.0):
        folder = JobFolder(str(tmp_path / "job-1"))
        folder.make()
        folder.write_private("token", "t" * 64)
        argv = [sys.executable, "-c", PROGRAM % (held, ends), folder.path]
        channel = NodeChannel("a", argv, "job-1", None)
        made.append(channel)
        worker = {"name": "worker-0", "role": "worker", "index": 0}
        worker["command"] = ["sh", "-c", command]
        plan = part_json(worker, host="a", nodes={"a": {"job_dir": folder.file("nodes/a/job-1")}})
        channel.ask(ask="start", plan=dict(plan, whole=plan), secret_env=False)
        running = JobFolder(plan["nodes"]["a"]["job_dir"])
        log = running.file("worker-0.log")
        wait(channel, lambda: channel.status and processes.alive(agent(channel)))
        if command is STUBBORN:
            wait(channel, lambda: os.path.exists(log) and "ready" in open(log).read())
        return channel

    yield start
    for channel in made:
        who = channel.status and agent(channel)
        channel.close()
        if who:
            processes.send(who, signal.SIGKILL)


def agent(channel):
    return processes.Identity(**channel.status["agent"])


def wait(channel, condition):
    """Read the lines of the node until `condition()` is true, and return its value."""

    def read():
        if channel.is_open:
            exchange([channel], 0.1)
        value = condition()
        assert value or channel.is_open, "%s %s" % (channel.status, channel.error)
        return value

    return until(read, evidence=lambda: "%s %s" % (channel.status, channel.error))


def ended(channel):
    """Return the last status of the node, after the last line of its program."""
    wait(channel, lambda: not channel.is_open)
    assert channel.left == [], channel.left
    return channel.status


def hold(channel):
    assert processes.send(agent(channel), signal.SIGSTOP)
    until(lambda: processes.is_held(agent(channel)))


def test_an_agent_that_is_held_ends_the_job(node):
    channel = node()
    hold(channel)
    status = ended(channel)
    assert status["reason"] == "failed"
    assert status["first_failure"]["reason"] == exit_codes.AGENT_HELD


@pytest.mark.parametrize(
    "told,reason", [("failed", "peer"), ("stopped", "stopped"), ("lease", "lease")]
)
def test_an_agent_that_is_held_when_the_job_ends_is_killed(node, told, reason):
    channel = node(held=60.0)
    hold(channel)
    channel.ask(ask="stop", reason=told)
    status = ended(channel)
    assert (status["reason"], status["first_failure"]) == (reason, None)


def test_an_agent_that_does_not_end_is_killed(node):
    """The agent waits two seconds for a process that ignores SIGTERM."""
    channel = node(STUBBORN, ends=0.2)
    channel.ask(ask="stop", reason="failed")
    status = ended(channel)
    assert (status["reason"], status["first_failure"]) == ("peer", None)
    assert status["processes"][0]["exit_code"] is None, "no agent has reaped the process"


def test_a_signal_of_the_batch_system_is_no_request(node):
    """A node that goes down, or a batch system that ends the job, sends SIGTERM."""
    channel = node()
    channel.process.send_signal(signal.SIGTERM)
    assert ended(channel)["reason"] == exit_codes.SHUTDOWN


def test_the_end_of_the_lease_is_no_request(node):
    channel = node()
    channel.ask(ask="stop", reason="lease")
    assert ended(channel)["reason"] == "lease"


def test_a_request_that_fails_is_answered(node):
    """Without an answer the head could say only that the program has ended."""
    channel = node()
    channel.ask(ask="look")
    wait(channel, lambda: channel.error)
    assert channel.error == (
        "the program of mxcluster on this node failed: KeyError: 'request' (see batch.log)"
    )
    assert channel.is_open and channel.status["state"] == "running"
