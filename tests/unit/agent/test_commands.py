"""The agent's commands wait, status, stop and collect."""

import json
import os
import signal
import subprocess
import tarfile
import threading
import time
import types

import pytest

from mxcluster.agent import collecting, commands
from mxcluster.agent.kept_files import mark
from mxcluster.errors import MxclusterError
from mxcluster.model import failures, protocol
from mxcluster.model.status import Part, Process, Status
from mxcluster.node import processes
from mxcluster.node.quota import Quota
from tests.machine import Stopwatch
from tests.unit.agent.jobs import FAILS_LATER, STUBBORN, in_a_process


def kill_agent(job, status):
    """Send SIGKILL to the agent and wait for its end."""
    assert processes.send(job.agent(status), signal.SIGKILL)
    job.until(lambda: not processes.alive(job.agent(status)))


def hold_agent(job, status):
    """Send SIGSTOP to the agent and wait until the kernel has stopped it."""
    assert processes.send(job.agent(status), signal.SIGSTOP)
    job.until(lambda: processes.is_held(job.agent(status)))


@pytest.mark.slow
def test_wait_returns_as_soon_as_the_job_has_ended(job):
    job.start("sleep 0.5")
    with Stopwatch() as watch:
        answer = job.ask("wait", seconds=60)
    assert answer["status"]["state"] == "ended" and watch.within(2)
    assert (answer["progress"], answer["pulses"], answer["checkpoints"]) == ({}, {}, None)


@pytest.mark.slow
def test_wait_returns_after_its_seconds(job):
    job.start("sleep 300")
    with Stopwatch() as watch:
        assert job.ask("wait", seconds=0.5)["status"]["state"] == "running"
    assert 0.5 <= watch.seconds and watch.within(1.5)


@pytest.mark.slow
def test_a_wait_takes_little_of_a_small_quota(job, monkeypatch):
    """A process for each wait of 2 s took a third of a quota of 0.15 CPUs from the training."""
    job.start("sleep 300")
    folder = job.folder.path
    monkeypatch.setattr(commands.quota, "tightest", lambda: Quota(0.15, "", True))
    monkeypatch.setattr(commands.quota, "own_cpu", lambda: 0.0045)  # 1 s of the quota
    begin = time.monotonic()
    commands.wait(protocol.Wait(job_dir=folder, seconds=0.1))
    assert time.monotonic() - begin >= 1.0
    monkeypatch.setattr(commands.quota, "own_cpu", lambda: 1e9)
    monkeypatch.setattr(commands, "MOST_WAIT", 0.2)
    with Stopwatch() as watch:
        commands.wait(protocol.Wait(job_dir=folder, seconds=0.1))
    assert watch.within(2.0)


def test_wait_and_status_return_the_progress(job):
    event = {"event": "batch", "time": 1.5, "role": "worker", "index": 0, "host": "node1"}
    event["step"] = 3
    job.start("cat >> events.jsonl <<'.'\n%s\n.\nsleep 300" % json.dumps(event))
    path = job.folder.file("events.jsonl")
    job.until(lambda: os.path.exists(path) and os.path.getsize(path))
    assert job.ask("status")["progress"] == {"worker-0": {"batch": event}}
    assert job.ask("wait", seconds=0)["progress"] == {"worker-0": {"batch": event}}


@pytest.mark.parametrize("command", ["wait", "status"])
def test_a_folder_without_a_job_is_an_error(job, command):
    code, answer = in_a_process(command, job_dir=job.path)
    words = "%s has no status.json, so no job has started there: use a job id that status.yml shows"
    assert (code, answer) == (1, {"error": words % job.path})
    assert os.listdir(job.path) == [], "the command must not create files"


@pytest.mark.parametrize("command, text", [("wait", ""), ("stop", '{"state": "run')])
def test_an_altered_status_is_an_error(job, command, text):
    job.plan("sleep 300")
    with open(job.folder.file("status.json"), "w") as stream:
        stream.write(text)
    code, answer = in_a_process(command, job_dir=job.path, plan=job.folder.plan().encode())
    os.remove(job.folder.file("status.json"))
    assert code == 1 and answer["error"].startswith(
        "%s is damaged (" % job.folder.file("status.json")
    ), answer


@pytest.mark.parametrize("command", ["wait", "status"])
def test_a_killed_agent_is_the_first_failure(job, command):
    begun = time.time()
    status = job.start("sleep 300 & echo hello; sleep 300")
    job.until(lambda: job.log("worker-0") == "hello\n")
    job.remember(status)
    kill_agent(job, status)
    died = time.time()
    told = job.ask(command)["status"]
    assert (told["state"], told["reason"]) == ("ended", "failed")
    failure = told["first_failure"]
    assert (failure["host"], failure["role"], failure["name"]) == ("node1", "agent", "agent")
    assert failure["reason"] == "the agent itself was killed"
    assert begun <= failure["time"] == told["ended"] <= died, "the last sign of life"
    assert "worker-0 is pid" in failure["log"][-1]
    if command == "wait":
        job.nothing_left()  # the orphaned grandchild, too
        assert job.status() == told, "the next command must read the same status"
    else:
        assert job.status() == status, "status must not write"


def test_a_first_failure_outlives_a_killed_agent(job):
    status = job.start_patient(STUBBORN, FAILS_LATER)  # so the agent is there to be killed
    job.until(lambda: job.folder.status().first_failure)
    kill_agent(job, status)
    told = job.end()
    assert (told["reason"], told["first_failure"]["exit_code"]) == ("failed", 4)


@pytest.mark.slow
def test_stop_ends_a_running_job(job):
    job.start("sleep 300", "sleep 300")
    answer = job.ask("stop")
    assert answer["ran"] is True
    assert (answer["status"]["state"], answer["status"]["reason"]) == ("ended", "stopped")
    job.nothing_left()
    assert job.ask("stop") == {"ran": False, "status": answer["status"], "left": []}, (
        "a second stop has nothing to do"
    )


def test_stop_without_a_job_does_nothing(job, tmp_path):
    assert job.ask("stop") == {"ran": False, "status": None, "left": []}
    answer = in_a_process("stop", job_dir=str(tmp_path / "nowhere"))
    assert answer == (0, {"ran": False, "status": None, "left": []})


def test_stop_without_an_agent_ends_its_leftover_processes(job):
    """A child, a grandchild, and a process in another session whose parents die with the agent."""
    text = "sleep 300 & setsid sh -c 'sleep 300 & echo $!; wait' & sleep 300"
    status = job.start(text, env={"MXCLUSTER_JOB_DIR": job.path})
    job.until(lambda: job.log("worker-0"))
    job.remember(status)
    stray = processes.identity(int(job.log("worker-0")))
    kill_agent(job, status)
    assert processes.alive(stray), "the test needs a leftover process"
    answer = job.ask("stop")
    assert answer["ran"] is True
    assert (answer["status"]["state"], answer["status"]["left"]) == ("ended", [])
    assert answer["status"]["first_failure"]["reason"] == "the agent itself was killed"
    job.nothing_left()


def test_stop_does_not_wait_for_a_stopped_agent(job, monkeypatch):
    monkeypatch.setattr(commands, "STOP_TIMEOUT", 0.5)
    kill = commands._kill

    def patient_kill(agent):  # a killed process of a busy machine ends when it runs again
        monkeypatch.undo()
        kill(agent)

    monkeypatch.setattr(commands, "_kill", patient_kill)
    status = job.start("sleep 300 & sleep 300")
    job.remember(status)
    hold_agent(job, status)
    answer = job.ask("stop")
    status = answer["status"]
    assert answer["ran"] and (status["state"], status["reason"]) == ("ended", "stopped")
    assert status["first_failure"] is None
    job.nothing_left()


@pytest.mark.slow
def test_wait_ends_the_job_of_a_stopped_agent(job):
    """A stopped agent cannot notice the end of its processes."""
    status = job.start("sleep 300 & sleep 300")
    job.remember(status)
    hold_agent(job, status)
    answer = job.ask("wait", seconds=0.3)["status"]
    assert (answer["state"], answer["reason"]) == ("ended", "failed")
    assert answer["first_failure"]["reason"] == failures.KINDS[failures.AGENT_HELD].words
    job.nothing_left()


def test_an_agent_that_is_stopped_for_a_moment_goes_on(job, monkeypatch):
    """The agent goes on during the second pause of the wait, and the clock of the wait stops then.

    A slow machine could otherwise skip that moment.
    """
    status, pauses = job.start("sleep 300"), []
    hold_agent(job, status)

    def until(_change, seconds, _pause):
        pauses.append(seconds)
        if len(pauses) == 2:
            assert processes.send(job.agent(status), signal.SIGCONT)
            job.until(lambda: not processes.is_held(job.agent(status)))

    clock = types.SimpleNamespace(time=time.time, monotonic=lambda: sum(pauses))
    monkeypatch.setattr(commands, "time", clock)
    monkeypatch.setattr(commands, "until", until)
    assert job.ask("wait", seconds=1)["status"]["state"] == "running"
    assert sum(pauses) >= 1.0


def test_the_pause_of_a_wait_ends_with_a_change_of_the_status(tmp_path):
    path = tmp_path / "status.json"
    path.write_text("running")
    writer = threading.Timer(0.05, path.write_text, ["ended"])
    seen = mark(str(path))
    writer.start()
    commands._until_changed(str(path), seen, 3600)
    writer.join()
    assert path.read_text() == "ended"


def test_a_foreign_process_with_a_reused_pid_is_left_alone(job):
    with subprocess.Popen(["sleep", "300"], start_new_session=True) as stranger:
        try:
            who = processes.identity(stranger.pid)
            old = Process(pid=who.pid, start_time=who.start_time - 100)
            part = Part(name="worker-0", role="worker", index=0, **vars(old))
            job.folder.write_status(
                Status(job="job-1", host="node1", agent=old, started=1.0, processes=[part])
            )
            answer = job.ask("stop")
            assert answer["status"]["state"] == "ended" and answer["status"]["left"] == []
            assert stranger.poll() is None, "a foreign process was ended"
        finally:
            stranger.kill()


def test_collect_packs_logs_events_and_checkpoints(job, tmp_path):
    job.start(
        "mkdir -p checkpoints/deep; echo weights > checkpoints/deep/b.params; echo sym > "
        "checkpoints/a.json;"
        "echo '{}' > events.jsonl; echo said; touch other.txt"
    )
    job.end()
    job.nothing_left()
    target = str(tmp_path / "out.tar")
    answer = job.ask("collect", output=target)
    names = ["agent.log", "checkpoints/a.json", "checkpoints/deep/b.params", "events.jsonl"]
    names += ["machine.json", "plan.json", "status.json", "worker-0.env", "worker-0.log"]
    assert (answer["files"], answer["bytes"]) == (len(names), os.path.getsize(target))
    assert answer["left"] == answer["behind"] == answer["outside"] == []
    assert answer["problem"] is None and answer["spooled"] is False
    with tarfile.open(target) as archive:
        assert archive.getnames() == names
        assert archive.extractfile("worker-0.log").read() == b"said\n"
        assert archive.getmember("worker-0.env").mode == 0o600
        assert {member.uid for member in archive.getmembers()} == {0}


def test_the_archive_gets_the_end_of_a_long_log(job, tmp_path, monkeypatch):
    """A log of 100 MB needs no byte on the disk of the node, but was 100 MB in each archive."""
    monkeypatch.setattr(collecting, "LOG_MOST", 1 << 20)
    monkeypatch.setattr(collecting, "LOGS_MOST", 3 << 19)
    job.start("echo end >end.txt; truncate -s 100M other.log worker-0.log; echo the end")
    job.end()
    answer = job.ask("collect", output=str(tmp_path / "out.tar"))
    assert answer["problem"] is None and answer["bytes"] < 2 << 20, answer
    assert len(answer["behind"]) == 2, answer
    size = os.path.getsize(job.folder.file("worker-0.log"))
    assert answer["behind"][1].startswith("the beginning of worker-0.log stays on the node (the f")
    assert "the file has %d bytes" % size in answer["behind"][1]
    with tarfile.open(str(tmp_path / "out.tar")) as archive:
        assert len(archive.extractfile("other.log").read()) == 1 << 20
        assert archive.extractfile("worker-0.log").read().endswith(b"\0the end\n")


@pytest.mark.slow
def test_saved_files_without_a_checkpoint_are_named(job, tmp_path):
    """Otherwise the controller counts the node as complete, and a later job removes the files."""
    job.start("mkdir -p saved/worker-0; echo half >saved/worker-0/net.params")
    job.end()
    (told,) = job.ask("collect", output=str(tmp_path / "out.tar"))["behind"]
    where = job.folder.file("saved/worker-0")
    assert told.startswith("worker-0: 1 saved file stays in %s, because no checkpoint" % where)
    assert told.endswith(": net.params")


def test_a_sparse_checkpoint_stays_on_the_node(job, tmp_path, monkeypatch):
    """It needs no byte on the disk of the node, but was 100 MB in each archive."""
    monkeypatch.setattr(collecting, "LOG_MOST", 1 << 20)
    job.start(
        "mkdir checkpoints; head -c 2M /dev/zero >checkpoints/a.params; "
        "truncate -s 100M checkpoints/b.params; truncate -s 1000 checkpoints/small"
    )
    job.end()
    answer = job.ask("collect", output=str(tmp_path / "out.tar"))
    assert answer["problem"] is None and answer["bytes"] < 3 << 20, answer
    (told,) = answer["behind"]
    assert told.startswith("checkpoints/b.params stays on the node (the file has 104857600 bytes")
    with tarfile.open(str(tmp_path / "out.tar")) as archive:
        names = archive.getnames()
    assert "checkpoints/a.params" in names and "checkpoints/small" in names
    assert "checkpoints/b.params" not in names


def test_no_archive_is_begun_on_a_disk_that_is_too_small(job, tmp_path, monkeypatch):
    job.start("mkdir checkpoints; head -c 2M /dev/zero >checkpoints/a.params")
    job.end()
    monkeypatch.setattr(collecting.script_files, "room", lambda output: 1 << 20)
    packed = []
    monkeypatch.setattr(collecting, "_pack", lambda *given: packed.append(given))
    answer = job.ask("collect", output=str(tmp_path / "out.tar"))
    assert "(No space left on device): free disk space" in answer["problem"] and not packed
    assert list(tmp_path.glob("out.tar*")) == []


def test_collect_packs_no_owner_no_link_and_no_permission(job, tmp_path):
    """Files that share an inode are packed as regular files; tarfile alone would pack a link."""
    job.start("true")
    job.end()
    log = job.folder.file("worker-0.log")
    os.chmod(log, 0o6755)
    os.link(log, job.folder.file("other.log"))
    answer = job.ask("collect", output=str(tmp_path / "out.tar"))
    with tarfile.open(str(tmp_path / "out.tar")) as tar:
        found = {
            member.name: (member.type, oct(member.mode), member.uid, member.uname)
            for member in tar.getmembers()
        }
    assert answer["problem"] is None and found["worker-0.log"] == found["other.log"] == (
        tarfile.REGTYPE,
        "0o644",
        0,
        "",
    )
    assert found["worker-0.env"][1] == "0o600"


def test_a_file_that_shrinks_while_it_is_packed_leaves_a_valid_archive(job, tmp_path, monkeypatch):
    job.start("true")
    job.end()
    log, size = job.folder.file("worker-0.log"), 300000
    opened = collecting.open_regular

    def shrink(path):
        if path != log:
            return opened(path)
        with open(path, "wb") as stream:
            stream.write(b"x" * size)
        descriptor, fstat = opened(path), os.fstat
        os.truncate(path, 100000)

        def before(number):
            found = fstat(number)
            if number != descriptor:
                return found
            return os.stat_result(found[:6] + (size,) + found[7:])

        monkeypatch.setattr(collecting.os, "fstat", before)
        return descriptor

    monkeypatch.setattr(collecting, "open_regular", shrink)
    answer = job.ask("collect", output=str(tmp_path / "out.tar"))
    monkeypatch.undo()
    assert answer["problem"] is None and answer["bytes"] == os.path.getsize(
        str(tmp_path / "out.tar")
    )
    with tarfile.open(str(tmp_path / "out.tar")) as archive:
        content = archive.extractfile("worker-0.log").read()
    assert content == b"x" * 100000 + b"\0" * (size - 100000)


def test_collect_refuses_a_symlink(job):
    job.start("mkdir checkpoints; ln -s /etc/passwd checkpoints/latest")
    job.end()
    with pytest.raises(MxclusterError, match="checkpoints/latest is not a regular file"):
        job.ask("collect", output=job.folder.file("out.tar"))


@pytest.mark.slow
def test_collect_while_the_job_runs(job, tmp_path):
    job.start("while :; do echo $(seq 1000); done")
    job.until(lambda: os.path.exists(job.folder.file("machine.json")))
    answer = job.ask("collect", output=str(tmp_path / "out.tar"))
    with tarfile.open(str(tmp_path / "out.tar")) as archive:
        names = set(archive.getnames()) - {"events.jsonl"}  # which the meter begins in a while
        assert len(archive.getnames()) == answer["files"] and len(names) == 6, names


def test_a_packing_error_is_reported_with_the_status(job, tmp_path, monkeypatch):
    job.start("true")
    job.end()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(collecting, "_pack", full)
    answer = job.ask("collect", output=str(tmp_path / "out.tar"))
    assert answer["problem"].startswith(
        "cannot pack the job's files in %s (No space left on device): free disk space" % job.path
    )
    assert (answer["files"], answer["left"]) == (0, []) and list(tmp_path.glob("out.tar*")) == []


def test_a_full_disk_does_not_hide_an_agents_death(job, monkeypatch):
    kill_agent(job, job.start("sleep 300"))

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(job.folder), "write_status", full)
    for _ in range(2):  # a second command gets the same answer
        assert job.ask("wait")["status"]["first_failure"]["reason"] == "the agent itself was killed"
    job.nothing_left()
