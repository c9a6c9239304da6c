"""The head of a batch job after faults: a full disk, a frozen node, false answers, wrong clocks.

The nodes are shell scripts, so no test needs a batch system.
"""

import errno
import io
import json
import os
import signal
import subprocess
import time

import pytest

from mxcluster.agent import batch_job
from mxcluster.agent.folder import BEAT, LEASE, JobFolder
from mxcluster.batch import head as heads
from mxcluster.batch import node_part
from mxcluster.batch.node_channel import NodeChannel, exchange
from mxcluster.batch.node_part import NONCE, NodePart
from mxcluster.errors import MxclusterError
from mxcluster.model.node_record import NodeFacts
from tests.plans import part_json, part_of, plan_with, process_of
from tests.waiting import until

WORKER = {"name": "worker-0", "role": "worker", "index": 0, "host": "a"}


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


def full(*_, **__):
    raise OSError(errno.EDQUOT, "Disk quota exceeded")


def test_a_full_disk_does_not_end_the_head(head, folder, monkeypatch):
    os.mkdir(folder.file(BEAT))  # open() raises OSError, as on a full disk
    monkeypatch.setattr(folder, "write_status", full)
    head.turn()
    head.save()
    monkeypatch.undo()
    assert head.save() and folder.status()["job"] == "job-1"


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
    reason = folder.status()["first_failure"]["reason"]
    assert (
        reason == folder.path + ": Disk quota exceeded: the disk is full, so make room on this disk"
    )


def test_problems_of_several_nodes_are_one_line(head, monkeypatch):
    monkeypatch.setattr(
        head, "gather", lambda kind, hosts: dict.fromkeys("ab", {"problems": ["p"]})
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
    assert folder.status()["state"] == "ended"


def test_an_error_while_the_nodes_end_leaves_a_last_status(head, folder, monkeypatch):
    monkeypatch.setattr(head, "start", lambda: None)
    monkeypatch.setattr(head, "watch", lambda: "failed")
    monkeypatch.setattr(head, "merge", lambda: 1 / 0)
    assert not head.run()
    known = folder.status()
    assert known["state"] == "ended" and "division" in known["first_failure"]["reason"]


def test_a_signalled_head_removes_the_token_and_the_secrets(head, folder):
    part = JobFolder(folder.file("nodes/a/job-1"))
    part.make()
    for place in (folder, part):
        place.write_private("token", "t")
        place.write_private("secret_env.json", "{}")
    head.signalled = signal.SIGTERM
    head.finish("failed", None)
    assert folder.status()["batch"]["signal"] == "SIGTERM"
    assert folder.status()["state"] == "running"  # the submit host asks for the reason of the end
    for place in (folder, part):
        assert not {"token", "secret_env.json"} & set(os.listdir(place.path))


def test_the_clock_of_the_first_node_does_not_end_the_lease(head, folder, monkeypatch):
    """The submit host sets the mtime, and the clock of the first node is an hour ahead."""
    ahead = time.time() + 3600
    monkeypatch.setattr(heads.time, "time", lambda: ahead)
    head.turn()
    folder.begin_lease(ahead - 3599)
    head.turn()


def test_a_frozen_node_does_not_block_the_head(node):
    channel = node("exec sleep 120")
    began = time.monotonic()
    channel.ask(ask="start", plan="x" * (1 << 20))
    exchange([channel], 0.1)
    assert time.monotonic() - began < 30 and channel.unsent


def test_a_long_request_arrives_whole(node):
    channel = node('read line; printf \'{"error": "%d"}\\n\' "${#line}"')
    request = {"ask": "start", "plan": "x" * (1 << 18)}
    channel.ask(**request)
    until(lambda: exchange([channel], 0.1) or channel.error)
    assert channel.error == str(len(json.dumps(request))) and not channel.unsent


def test_a_request_to_a_node_whose_program_has_ended_is_dropped(node):
    channel = node("exit 0")
    channel.process.wait()
    channel.ask(ask="stop", reason="failed")
    assert channel.unsent == b""


def test_a_deeply_nested_answer_does_not_end_the_head(node, capfd):
    channel = node("head -c 200000 /dev/zero | tr '\\0' '['; echo; echo '{\"left\": []}'")
    until(lambda: exchange([channel], 0.1) or channel.left is not None or not channel.is_open)
    assert channel.left == [] and channel.error is None
    assert "a printed b'[[[" in capfd.readouterr().err


def test_a_node_speaks_only_for_its_own_processes(head, node):
    other = process_of(index=1, host="b")
    head.plan = head.plan.replaced(processes=[process_of(host="a"), other])
    head.nodes = {host: node("sleep 9", host) for host in ("a", "b")}
    for channel in head.nodes.values():
        channel._take(json.dumps({"wait": status("worker-0", "worker-1", "odd")}).encode())
    head.merge()
    assert [part["name"] for part in head.status["processes"]] == ["worker-0", "worker-1"]


def test_a_node_reads_script_token_and_secrets_from_the_shared_folder(folder, monkeypatch):
    folder.write_private("script.b64", "c2NyaXB0")
    folder.write_private("token", "t" * 64)
    folder.write_private("secret_env.json", '{"PASSWORD": "x"}')
    given = []
    monkeypatch.setattr("mxcluster.agent.daemon.prepare", lambda *args: given.append(args[2:]))
    monkeypatch.setattr(node_part.subprocess, "Popen", lambda *_, **__: None)

    def start(host):
        nodes = {host: {"job_dir": folder.file("nodes/%s/job-1" % host)}}
        plan = part_json(host=host, nodes=nodes)
        asked = {"ask": "start", "plan": plan, "secret_env": True}
        NodePart(folder.path, io.StringIO()).start(asked)

    start("a")
    start("b")  # the first node has left the secrets for the second
    assert given == [({"PASSWORD": "x"}, "t" * 64, "c2NyaXB0")] * 2
    folder.forget_secret_env()
    with pytest.raises(OSError):  # no job starts without its secrets
        start("c")


def test_a_node_tells_the_gpus_that_the_batch_system_gives(folder, node, tmp_path, monkeypatch):
    """srun and qrsh name them in a variable; the channel lets these numbers through."""
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\nfor n in 0 1; do echo $n, GPU-$n, 00000000:3B, V100, 470.82; done\n")
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    folder.write_private(NONCE, "n")
    told = subprocess.CompletedProcess([], 0, b'{"gpus": 2}\n', b"")
    monkeypatch.setattr(node_part, "probe", lambda: told)
    found = NodePart(folder.path, io.StringIO()).record({"nonce": "n"})
    channel = node("echo '%s'; exec sleep 9" % json.dumps(found))
    until(lambda: exchange([channel], 0.1) or "record" in channel.answers or not channel.is_open)
    assert channel.answers["record"] == NodeFacts(gpus=2, granted=[1])


def test_a_signal_of_the_batch_system_may_reach_another_node_first(head, folder, node, monkeypatch):
    """The batch system ends the job. Otherwise the same statuses mean that a node goes down."""
    told = {"wait": dict(status("worker-0"), reason="shutdown")}
    channel = node("echo '%s'; exec sleep 99" % json.dumps(told))
    head.plan = head.plan.replaced(processes=[process_of(host="a")])
    monkeypatch.setattr(head, "start", lambda: head.nodes.update(a=channel))
    monkeypatch.setattr(heads, "LAST", 0.5)
    wait = head.await_signal

    def signalled():
        head.signalled = signal.SIGTERM
        wait()

    monkeypatch.setattr(head, "await_signal", signalled)
    assert not head.run()
    known = folder.status()
    assert known["state"] == "running" and known["batch"]["signal"] == "SIGTERM", known


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
    head.plan = head.plan.replaced(processes=[process_of(host="a")])
    monkeypatch.setattr(head, "start", lambda: head.nodes.update(a=channel))
    if killed:
        channel.process.kill()
    assert not head.run()
    failure = head.status["first_failure"]
    assert list(head.lost) == ([] if words else ["a"])
    if words:
        assert failure["reason"].startswith(words) and failure["kind"] == "node", failure
    else:
        assert failure is None


def test_the_cause_needs_no_readable_log(folder, monkeypatch):
    monkeypatch.setattr(folder, "log_lines", full)
    assert batch_job.failed(folder, {"host": "login"}, "gone")["log"] == []
