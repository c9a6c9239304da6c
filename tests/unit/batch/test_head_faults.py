"""The head of a batch job after faults: a full disk, a frozen node, false answers, wrong clocks.

The nodes are shell scripts, so no test needs a batch system.
"""

import errno
import json
import os
import signal
import sys
import time

import pytest

from mxcluster.agent import batch_job
from mxcluster.agent.folder import BEAT, LEASE, JobFolder
from mxcluster.batch import head as heads
from mxcluster.batch.node_channel import NodeChannel, exchange
from mxcluster.errors import MxclusterError
from mxcluster.model.answers import Held, Looked, NodeResult
from mxcluster.model.plan import Node
from mxcluster.model.protocol import Start, Stop, Wait
from tests.plans import part_of, plan_with, process_of
from tests.waiting import until


@pytest.fixture
def folder(tmp_path):
    made = JobFolder(str(tmp_path / "job-1"))
    made.make()
    made.begin_lease()
    return made


@pytest.fixture
def head(folder, monkeypatch):
    monkeypatch.setattr(heads, "PERIOD", 0.01)
    shared = {"python": "/p", "job_dir": "/jobs", "data_dir": "/data", "target": "cpu"}
    batch = {"launcher": "slurm", "nodes": 1, "record": shared}
    plan = part_of(host="login", lease=10, launcher="slurm", batch=batch)
    return heads.Head(folder, plan, {"SLURM_JOB_ID": "7"})


@pytest.fixture
def node():
    """Yield a function that starts a node's program, a shell script, and returns its channel."""
    made = []

    def start(script, host="a"):
        made.append(NodeChannel(host, ["sh", "-c", script], "job-1", None))
        return made[-1]

    yield start
    for channel in made:
        channel.close()


def status(*names):
    """Return the status of a node whose processes have these names."""
    part = {"role": "worker", "index": 0, "pid": 5, "start_time": 1, "state": "ended"}
    ending = {"exit_code": 0, "ended_at": 1.0, "ended_by": "self"}
    return {
        "job": "job-1",
        "agent": {"pid": 4, "start_time": 1},
        "state": "ended",
        "reason": "done",
        "started": 1.0,
        "processes": [dict(part, name=name, **ending) for name in names],
    }


def answer(command, known):
    """Return the line of a node with the status `known`."""
    return json.dumps({"command": command, "answer": {"status": known, "progress": {}}})


# The program of a node, without a look for MXNet.
FACTLESS = """
import sys
from mxcluster.entry import server
from mxcluster.model import answers, node_record
server.record = lambda request: answers.Recorded(record=node_record.NodeFacts())
server.serve(sys.stdout)
"""
HELD = Held(ports={}, gpus={})
LONG = Start(job_dir="/j", plan=part_of(files={"groups": "x" * (1 << 18)}))
NODES = {"a": Node(job_dir="/job-1")}


def full(*_, **__):
    raise OSError(errno.EDQUOT, "Disk quota exceeded")


def test_a_full_disk_does_not_end_the_head(head, folder, monkeypatch):
    os.mkdir(folder.file(BEAT))  # open() raises OSError, as on a full disk
    monkeypatch.setattr(folder, "write_status", full)
    head.turn()
    head.save()
    monkeypatch.undo()
    assert head.save() and folder.status().job == "job-1"


def test_the_head_restores_a_missing_lease_file(head, folder):
    head.turn()
    known = folder.lease_mtime()
    os.remove(folder.file(LEASE))
    head.turn()
    assert folder.lease_mtime() == known


def test_a_disk_that_is_full_at_the_start_is_named(head, folder, monkeypatch):
    monkeypatch.setattr(head.engine, "hosts", lambda environ: ["a"])
    monkeypatch.setattr(folder, "write_private", full)
    assert not head.run()
    reason = folder.status().first_failure.reason
    assert (
        reason == folder.path + ": Disk quota exceeded: the disk is full, so make room on this disk"
    )


def test_problems_of_several_nodes_are_one_line(head, monkeypatch):
    monkeypatch.setattr(
        head, "gather", lambda *_: dict.fromkeys("ab", Looked(problems=["p"], held=HELD, fits=True))
    )
    with pytest.raises(MxclusterError, match="^a: p; b: p$"):
        head.look(plan_with(), {})


def test_the_last_status_waits_for_space_on_the_disk(head, folder, monkeypatch):
    monkeypatch.setattr(head, "start", lambda: None)
    monkeypatch.setattr(head, "watch", lambda: "done")
    monkeypatch.setattr(folder, "write_private", full)
    write, refused = folder.write_status, iter(range(5))

    def refuse_some(told):
        if next(refused, None) is not None:
            full()
        write(told)

    monkeypatch.setattr(folder, "write_status", refuse_some)
    assert head.run()
    assert folder.status().state == "ended"


def test_an_error_while_the_nodes_end_leaves_a_last_status(head, folder, monkeypatch):
    monkeypatch.setattr(head, "start", lambda: None)
    monkeypatch.setattr(head, "watch", lambda: "failed")
    monkeypatch.setattr(head, "merge", lambda: 1 / 0)
    assert not head.run()
    known = folder.status()
    assert known.has_ended and "division" in known.first_failure.reason


def test_a_signalled_head_removes_the_token_and_the_secrets(head, folder):
    part = JobFolder(folder.file("nodes/a/job-1"))
    part.make()
    for place in (folder, part):
        place.write_private("token", "t")
        place.write_private("secret_env.json", "{}")
    head.signalled = signal.SIGTERM
    head.finish("failed", None)
    assert folder.status().batch.signal == "SIGTERM"
    assert folder.status().state == "running"  # the submit host asks for the reason of the end
    for place in (folder, part):
        assert not {"token", "secret_env.json"} & set(os.listdir(place.path))


def test_the_clock_of_the_first_node_does_not_end_the_lease(head, folder, monkeypatch):
    """The submit host sets the mtime, and the clock of the first node is an hour ahead."""
    ahead = time.time() + 3600
    monkeypatch.setattr(heads.time, "time", lambda: ahead)
    head.turn()
    folder.begin_lease(ahead - 3599)
    head.turn()


@pytest.mark.slow
def test_a_frozen_node_does_not_block_the_head(node):
    channel = node("exec sleep 120")
    began = time.monotonic()
    for _ in range(100):
        channel.ask(LONG)
    exchange([channel], 0.1)
    assert time.monotonic() - began < 30 and channel.unsent


def test_a_long_request_arrives_whole(node):
    answer = '{"command": "start", "error": "%d"}\\n'
    channel = node("read line; printf '%s' \"${#line}\"" % answer)
    channel.ask(LONG)
    until(lambda: exchange([channel], 0.1) or channel.error)
    assert channel.error == str(len(json.dumps(LONG.encode()))) and not channel.unsent


def test_a_request_to_a_node_whose_program_has_ended_is_dropped(node):
    channel = node("exit 0")
    channel.process.wait()
    channel.ask(Stop(job_dir="/j"))
    assert channel.unsent == b""


def test_a_deeply_nested_answer_does_not_end_the_head(node, capfd):
    line = "head -c 200000 /dev/zero | tr '\\0' '['; echo; echo '%s'"
    answer = {"ran": True, "status": None, "left": []}
    channel = node(line % json.dumps({"command": "stop", "answer": answer}))
    channel.ask(Stop(job_dir="/j"))
    until(lambda: exchange([channel], 0.1) or channel.left is not None or not channel.is_open)
    assert channel.left == [] and channel.error is None
    assert "a printed b'[[[" in capfd.readouterr().err


def test_a_node_speaks_only_for_its_own_processes(head, node):
    other = process_of(index=1, host="b")
    head.plan = head.plan.replaced(processes=[process_of(host="a"), other])
    head.nodes = {host: node("sleep 9", host) for host in ("a", "b")}
    for channel in head.nodes.values():
        channel.ask(Wait(job_dir="/job-1"))
        channel._take(answer("wait", status("worker-0", "worker-1", "odd")).encode())
    head.merge()
    assert [part.name for part in head.status.processes] == ["worker-0", "worker-1"]


@pytest.mark.slow
def test_a_signal_of_the_batch_system_may_reach_another_node_first(head, folder, node, monkeypatch):
    """The batch system ends the job. Otherwise the same statuses mean that a node goes down."""
    last = answer("wait", dict(status("worker-0"), reason="shutdown"))
    channel = node("echo '%s'; exec sleep 99" % last)
    head.plan = head.plan.replaced(processes=[process_of(host="a")], nodes=NODES)
    monkeypatch.setattr(head, "start", lambda: head.nodes.update(a=channel))
    monkeypatch.setattr(heads, "LAST", 0.5)
    wait = head.await_signal

    def signalled():
        head.signalled = signal.SIGTERM
        wait()

    monkeypatch.setattr(head, "await_signal", signalled)
    assert not head.run()
    known = folder.status()
    assert known.state == "running" and known.batch.signal == "SIGTERM", known


@pytest.mark.slow
@pytest.mark.parametrize(
    "script,killed,words",
    [
        ("exec sleep 99", True, "a: sh, which connects the first node with this node, was killed "),
        ("exit 137", False, "a: the program of mxcluster on this node was killed by signal 9"),
        ("exit 1", False, None),  # srun has lost the node
    ],
)
def test_a_killed_srun_is_no_lost_node(head, node, monkeypatch, script, killed, words):
    channel = node(script)
    head.plan = head.plan.replaced(processes=[process_of(host="a")], nodes=NODES)
    monkeypatch.setattr(head, "start", lambda: head.nodes.update(a=channel))
    if killed:
        channel.process.kill()
    assert not head.run()
    failure = head.status.first_failure
    assert list(head.lost) == ([] if words else ["a"])
    if words:
        assert failure.reason.startswith(words) and failure.kind == "node", failure
    else:
        assert failure is None


@pytest.mark.slow
@pytest.mark.parametrize("last, reasons", [("true", ["done"] * 2), ("exit 3", ["peer", "failed"])])
def test_real_nodes_and_agents_run_to_their_end(head, folder, monkeypatch, last, reasons):
    """The nodes look at their machine for nothing: the test gives the facts and the plan."""
    folder.write_private("token", "t" * 64)
    commands = {"a": "true" if last == "true" else "sleep 300", "b": last}
    workers = [
        process_of(index=index, host=host, command=["sh", "-c", text])
        for index, (host, text) in enumerate(sorted(commands.items()))
    ]
    nodes = {host: {"job_dir": folder.file("nodes/%s/job-1" % host)} for host in commands}
    made = plan_with(*workers, nodes=nodes)

    def part(plan, host):
        return part_of(host=host, nodes=nodes).replaced(processes=plan.of_host(host))

    fitting = Looked(problems=[], held=HELD, fits=True)
    monkeypatch.setattr(heads, "for_node", part)
    monkeypatch.setattr(heads.submission, "complete", lambda *given: made)
    monkeypatch.setattr(heads.Head, "look", lambda *given: {"a": fitting})
    monkeypatch.setattr(head.engine, "hosts", lambda environ: ["a", "b"])
    program = [sys.executable, "-c", FACTLESS]
    monkeypatch.setattr(head.engine, "on_node", lambda host, argv: program)
    assert head.run() == (last == "true"), head.status
    known = folder.status()
    assert known.reason == ("done" if last == "true" else "failed")
    assert [part.status().reason for part in folder.parts()] == reasons
    failure = known.first_failure
    found = failure and (failure.host, failure.exit_code)
    assert found == (None if last == "true" else ("b", 3))
    with open(folder.file(batch_job.PARTS)) as stream:
        assert json.load(stream) == {host: NodeResult(left=[]).encode() for host in "ab"}
    assert not {"token", "lease", "beat"} & set(os.listdir(folder.path))


def test_the_cause_needs_no_readable_log(head, folder, monkeypatch):
    monkeypatch.setattr(folder, "log_lines", full)
    assert batch_job.failed(folder, head.status, "gone").log == []
