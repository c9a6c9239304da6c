"""The program of a batch job's node, with a real agent and the channel of the head."""

import contextlib
import os
import signal
import sys

import pytest

from mxcluster import exit_codes
from mxcluster.agent import shared_folder
from mxcluster.agent.folder import JobFolder
from mxcluster.batch.node_channel import NodeChannel, exchange
from mxcluster.entry import commands, server
from mxcluster.errors import BadInput
from mxcluster.model import failures
from mxcluster.model.node_record import Driver, NodeFacts
from mxcluster.model.protocol import RecordNode, SharedFolder, Start, Status, Stop, Wait
from mxcluster.node import probe, processes
from tests.plans import part_of
from tests.unit.agent.jobs import STUBBORN
from tests.waiting import until

NONCE = "5" * 32
# `ends` is the time after which a stop kills the agent.
PROGRAM = """
import runpy, sys
from mxcluster.agent import commands
commands.STOP_TIMEOUT, sys.argv[1:] = %r, ["--serve"]
runpy.run_module("mxcluster.entry", run_name="__main__")
"""


@pytest.fixture
def shared(tmp_path):
    """Return the shared folder of a batch job."""
    folder = JobFolder(str(tmp_path / "job-1"))
    folder.make()
    folder.write_private("token", "t" * 64)
    folder.write_private(shared_folder.NONCE, NONCE)
    return folder


def as_request(folder, has_secrets=False):
    return SharedFolder(path=folder.path, nonce=NONCE, has_secrets=has_secrets)


@pytest.fixture
def node(shared):
    """Yield a function that starts a node's program and its agent, and returns the channel."""
    made = []

    def start(command="sleep 300", ends=60.0):
        channel = NodeChannel("a", [sys.executable, "-c", PROGRAM % ends], "job-1", None)
        made.append(channel)
        channel.job_dir = shared.file("nodes/a/job-1")
        part = {"name": "worker-0", "role": "worker", "index": 0, "command": ["sh", "-c", command]}
        plan = part_of(part, host="a")
        plan = plan.replaced(whole=plan)
        channel.ask(Start(job_dir=channel.job_dir, plan=plan, shared=as_request(shared)))
        wait(channel, lambda: channel.status and processes.alive(agent(channel)))
        if command is STUBBORN:
            log = JobFolder(channel.job_dir)
            wait(channel, lambda: log.log_lines("worker-0") == ["ready"])
        return channel

    yield start
    for channel in made:
        who = channel.status and agent(channel)
        channel.close()
        if who:
            processes.send(who, signal.SIGKILL)


def agent(channel):
    return processes.recorded(channel.status.agent)


def evidence(channel):
    return "%s %s" % (channel.status, channel.error)


def wait(channel, condition):
    """Read the lines of the node until `condition()` is true, and return its value."""

    def read():
        if channel.is_open:
            exchange([channel], 0.1)
        value = condition()
        assert value or channel.is_open, evidence(channel)
        return value

    return until(read, evidence=lambda: evidence(channel))


def ended(channel):
    """Return the status of the ended part of the job. The stop lists nothing that is left."""
    wait(channel, lambda: channel.status.has_ended)
    channel.ask(Stop(job_dir=channel.job_dir))
    wait(channel, lambda: channel.left is not None)
    assert channel.left == [] and channel.error is None, evidence(channel)
    return channel.status


def hold(channel):
    assert processes.send(agent(channel), signal.SIGSTOP)
    until(lambda: processes.is_held(agent(channel)))


@pytest.mark.slow
def test_an_agent_that_is_held_ends_the_job(node):
    channel = node()
    hold(channel)
    channel.ask(Wait(job_dir=channel.job_dir, seconds=0.1))
    status = ended(channel)
    assert status.reason == "failed"
    assert status.first_failure.reason == failures.KINDS[failures.AGENT_HELD].words


@pytest.mark.slow
@pytest.mark.parametrize("reason", ["peer", "stopped", "lease"])
def test_an_agent_that_is_held_when_the_job_ends_is_killed(node, reason):
    channel = node()
    hold(channel)
    named = {} if reason == "stopped" else {reason: True}
    channel.ask(Stop(job_dir=channel.job_dir, **named))
    status = ended(channel)
    assert (status.reason, status.first_failure) == (reason, None)


@pytest.mark.slow
def test_an_agent_that_does_not_end_is_killed(node):
    """The agent waits two seconds for a process that ignores SIGTERM."""
    channel = node(STUBBORN, ends=0.2)
    channel.ask(Stop(job_dir=channel.job_dir, peer=True))
    status = ended(channel)
    assert (status.reason, status.first_failure) == ("peer", None)
    assert status.processes[0].exit_code is None, "no agent has reaped the process"


@pytest.mark.slow
def test_a_signal_of_the_batch_system_ends_the_part_in_order(node):
    """A node that goes down, or a batch system that ends the job, sends SIGTERM."""
    channel = node()
    channel.ask(Wait(job_dir=channel.job_dir, seconds=600))
    channel.process.send_signal(signal.SIGTERM)
    assert ended(channel).reason == exit_codes.SHUTDOWN


@pytest.mark.slow
def test_a_request_ends_a_wait_and_a_failed_request_is_answered(node):
    """Without an answer the head could say only that the program has ended."""
    channel = node()
    channel.ask(Wait(job_dir=channel.job_dir, seconds=600))
    channel.ask(Status(job_dir="/no/such/job"))
    wait(channel, lambda: channel.error)
    assert not channel.answers["wait"].status.has_ended and not channel.pending
    assert channel.error.startswith("/no/such/job has no status.json")
    assert channel.is_open


@pytest.mark.slow
@pytest.mark.parametrize("killed", [False, True])
def test_without_a_head_the_agent_ends(node, killed):
    channel = node()
    if killed:
        channel.process.kill()
    else:
        channel.hang_up()
    folder = JobFolder(channel.job_dir)
    until(lambda: not processes.alive(agent(channel)), evidence=folder.status)
    assert folder.status().reason == (exit_codes.SHUTDOWN if killed else "peer")


def test_a_node_reads_script_token_and_secrets_from_the_shared_folder(shared):
    shared.write_private("script.b64", "c2NyaXB0")
    shared.write_private("secret_env.json", '{"PASSWORD": "x"}')

    def complete(host):
        start = Start(job_dir=shared.file("nodes/%s/job-1" % host), plan=part_of())
        return shared_folder.complete(start, as_request(shared, has_secrets=True))

    for _ in range(2):  # the first node has left the secrets for the second
        found = complete("a")
        assert (found.secret_env, found.token) == ({"PASSWORD": "x"}, "t" * 64)
        assert found.script == "c2NyaXB0"
    assert os.path.samefile(shared.file("checkpoints"), shared.file("nodes/a/job-1/checkpoints"))
    shared.forget_secret_env()
    with pytest.raises(OSError):  # no job starts without its secrets
        complete("c")


def test_a_node_that_does_not_share_the_folder_is_refused(shared, tmp_path):
    wrong = as_request(shared).replaced(nonce="6" * 32)
    for request in (wrong, wrong.replaced(path=str(tmp_path / "none"))):
        with pytest.raises(BadInput, match="all nodes must share this folder: set mxcluster_home"):
            commands.carry_out(RecordNode(shared=request))


def test_a_node_names_the_gpus_that_the_batch_system_gives(shared, tmp_path, monkeypatch):
    """srun and qrsh name the GPUs in a variable."""
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\nfor n in 0 1; do echo $n, GPU-$n, 00000000:3B, V100, 470.82; done\n")
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    monkeypatch.setattr(probe, "facts", lambda known: NodeFacts(gpus=2))
    found = commands.carry_out(RecordNode(shared=as_request(shared)))
    assert found.record.replaced(cards=None) == NodeFacts(gpus=2, granted=[1])


def test_a_driver_that_waits_for_a_restart_hides_the_gpus(shared, monkeypatch):
    """nvidia-smi shows no GPU, and the head names the cause with the host."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    driver = Driver(installed="470.82.01", loaded="470.57.02", nouveau=False)
    monkeypatch.setattr(probe, "facts", lambda known: NodeFacts(driver=driver))
    monkeypatch.setattr("mxcluster.node.gpus.cards", lambda: 2)
    found = commands.carry_out(RecordNode(shared=as_request(shared)))
    assert found.record == NodeFacts(driver=driver, cards=2)


def test_the_facts_of_a_node_come_from_a_process_of_its_own(shared, monkeypatch):
    wrong = as_request(shared).replaced(nonce="6" * 32)
    with pytest.raises(server.MxclusterError, match="all nodes must share this folder"):
        server.record(RecordNode(shared=wrong))
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with contextlib.suppress(BrokenPipeError), pytest.raises(
        server.MxclusterError, match="ended with status 1"
    ):
        server.record(RecordNode(shared=wrong))
