"""The end of a job, without leftover processes; with real processes and real signals."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from mxcluster import exit_codes
from mxcluster.agent import supervisor
from mxcluster.agent.folder import JobFolder
from mxcluster.agent.stuck_processes import Sight
from mxcluster.node import processes
from tests.unit.agent.jobs import PACKAGE, command_line

STUBBORN = "trap '' TERM; echo ready; while :; do sleep 0.1; done"


def ends(status):
    """Return [(exit code, ended by)] of all processes."""
    return [(part["exit_code"], part["ended_by"]) for part in status["processes"]]


def signal_process(status, index, signum):
    part = status["processes"][index]
    assert processes.send(processes.Identity(part["pid"], part["start_time"]), signum)


def test_a_job_ends_when_all_processes_have_succeeded(job):
    begun = time.time()
    job.start("true", "sleep 0.3")
    status = job.end()
    assert (status["reason"], status["first_failure"], status["left"]) == ("done", None, [])
    assert ends(status) == [(0, "self"), (0, "self")]
    first, second = (part["ended_at"] for part in status["processes"])
    assert begun <= status["started"] <= first < second <= status["ended"] <= time.time()
    job.nothing_left()


def test_a_finished_process_does_not_end_the_others(job):
    job.start("true", "sleep 20")
    job.until(lambda: job.folder.status()["processes"][0]["state"] == "ended")
    time.sleep(0.6)  # longer than the supervisor's sleep
    status = job.folder.status()
    assert (status["state"], status["processes"][1]["state"]) == ("running", "running")


def test_a_failed_process_ends_the_others(job):
    status = job.start(
        "sleep 20", "seq 1 30; echo lost: no data >&2; sleep 0.3; exit 3", "sleep 20"
    )
    begun = time.monotonic()
    status = job.end()
    assert time.monotonic() - begun < 2
    assert status["reason"] == "failed"
    assert ends(status) == [(-15, "agent"), (3, "self"), (-15, "agent")]
    failure = status["first_failure"]
    log = [str(number) for number in range(12, 31)] + ["lost: no data"]
    assert dict(failure, time=None) == {
        "host": "node1",
        "role": "worker",
        "index": 1,
        "name": "worker-1",
        "reason": "exited with status 3",
        "exit_code": 3,
        "time": None,
        "log": log,
        "echo": False,
        "kind": None,
    }
    assert abs(failure["time"] - status["processes"][1]["ended_at"]) < 0.1
    job.nothing_left()


def test_a_killed_process_ends_the_others(job):
    status = job.start("sleep 20", "sleep 20")
    signal_process(status, 1, signal.SIGKILL)
    status = job.end()
    assert (status["reason"], ends(status)) == ("failed", [(-15, "agent"), (-9, "self")])
    assert status["first_failure"]["reason"] == "killed by signal 9 (SIGKILL)"
    job.nothing_left()


def test_a_stopped_and_then_killed_process_ends_the_others(job):
    status = job.start("sleep 20", "sleep 20")
    signal_process(status, 1, signal.SIGSTOP)
    time.sleep(1.6)  # until the agent has looked
    signal_process(status, 1, signal.SIGKILL)
    status = job.end()
    assert (status["reason"], ends(status)) == ("failed", [(-15, "agent"), (-9, "self")])
    assert status["first_failure"]["reason"] == "killed by signal 9 (SIGKILL)"
    job.nothing_left()


def test_a_foreign_sigterm_is_a_failure(job):
    signal_process(job.start("sleep 20"), 0, signal.SIGTERM)
    status = job.end()
    assert (status["reason"], status["first_failure"]["exit_code"]) == ("failed", -15)


def test_the_status_has_the_first_failure_while_other_processes_end(job):
    job.start(STUBBORN, "until grep -q ready worker-0.log; do sleep 0.05; done; exit 4")
    status = job.until(lambda: job.folder.status()["first_failure"] and job.folder.status(), 1.5)
    assert (status["state"], status["first_failure"]["exit_code"]) == ("running", 4)
    status = job.end()
    assert ends(status) == [(-9, "agent"), (4, "self")]
    assert 2.0 <= status["ended"] - status["first_failure"]["time"] < 3.5, "two seconds of grace"
    job.nothing_left()


def test_all_descendants_are_ended(job):
    """A child in the group, an orphan, a child in its own session, and an orphan there."""
    text = (
        "sleep 30 & (sleep 30 &) ; setsid sleep 30 & (setsid sh -c 'sleep 30 & sleep 0.2' &); "
        "sleep 0.6; test -e go && exit 0; sleep 30"
    )
    status = job.start(text, "while ! test -e go; do sleep 0.1; done; sleep 0.3; exit 5")
    time.sleep(0.6)
    job.until(lambda: len(processes.family([job.agent(status)])) >= 8)
    job.remember(status)
    open(job.folder.file("go"), "w").close()
    assert job.end()["reason"] == "failed"
    job.nothing_left()


def test_descendants_of_finished_processes_are_ended(job):
    status = job.start("setsid sleep 30 & sleep 30 & until test -e go; do sleep 0.05; done")
    job.until(lambda: len(processes.family([job.agent(status)])) >= 4)
    job.remember(status)
    open(job.folder.file("go"), "w").close()
    assert job.end()["reason"] == "done"
    job.nothing_left()


def test_orphans_do_not_stay_as_zombies(job):
    status = job.start("for i in 1 2 3; do (sleep 0.1 &); done; sleep 20")
    agent = status["agent"]["pid"]
    time.sleep(0.4)
    job.until(
        lambda: [entry.state for entry in processes.table() if entry.parent == agent] == ["S"]
    )


@pytest.mark.parametrize(
    "commands, name, echo",
    [
        (["sleep 20", "exit 91"], "worker-1", True),
        (["exit 91", "exit 3"], "worker-1", False),
        (["exit 3", "exit 91"], "worker-0", False),
    ],
)
def test_status_91_gives_way_to_another_cause(tmp_path, commands, name, echo):
    plan = {
        "job": "j",
        "host": "node1",
        "processes": [
            {"name": "worker-%d" % index, "role": "worker", "index": index} for index in range(2)
        ],
    }
    one = supervisor.Supervisor(JobFolder(str(tmp_path)), plan)
    for part, command in zip(one.status["processes"], commands):
        if command.startswith("exit"):
            one.ended(part, int(command.split()[1]))
    failure = one.status["first_failure"]
    assert (failure["name"], failure["echo"]) == (name, echo)


def test_status_91_is_an_echo(job):
    job.start("sleep 20", "exit %d" % exit_codes.PEER_DIED)
    status = job.end()
    assert (status["reason"], status["first_failure"]["echo"]) == ("failed", True)
    assert (
        status["first_failure"]["reason"]
        == "exited with status 91 (another process of the job was gone)"
    )


def test_the_lease_runs_out(job):
    job.start("sleep 20", lease=0.6)
    begun = time.monotonic()
    status = job.until(lambda: job.folder.status()["state"] == "ended" and job.folder.status())
    assert (status["reason"], status["first_failure"], ends(status)) == (
        "lease",
        None,
        [(-15, "agent")],
    )
    assert time.monotonic() - begun < 2.5
    job.nothing_left()


def test_a_renewed_lease_goes_on(job):
    job.start("sleep 20", lease=0.8)
    for _ in range(3):
        begun = time.monotonic()
        status = job.ask("wait", "--seconds", "5", "--renew")["status"]
        assert status["state"] == "running", job.evidence(status)
        assert time.monotonic() - begun < 0.7, "a wait must not sleep longer than the lease"
    job.ask("wait", "--seconds", "0")
    assert job.end(3)["reason"] == "lease", "a wait without --renew must not renew the lease"


def test_sigterm_to_the_agent_stops_the_job(job):
    status = job.start("sleep 20", "sleep 20")
    os.kill(status["agent"]["pid"], signal.SIGTERM)
    status = job.end()
    assert (status["reason"], status["first_failure"]) == ("stopped", None)
    assert ends(status) == [(-15, "agent"), (-15, "agent")]
    job.nothing_left()


def test_stop_peer_sets_the_reason_peer(job):
    job.start("sleep 20")
    answer = job.ask("stop", "--peer")
    assert (answer["status"]["reason"], answer["status"]["first_failure"]) == ("peer", None)
    assert ends(answer["status"]) == [(-15, "agent")]


def unanswering(monkeypatch, tmp_path, names):
    """Return a Supervisor with one idle process; the kernel reports `names` as unanswering."""
    peers = [
        {
            "name": name,
            "role": name.split("-")[0],
            "host": host,
            "address": "10.0.0.%s" % host[-1],
            "port": 9091 + number,
        }
        for number, (name, host) in enumerate(
            [("scheduler-0", "node2"), ("server-0", "node2"), ("worker-0", "node1")]
        )
    ]
    (tmp_path / "plan.json").write_text("{}")
    one = supervisor.Supervisor(
        JobFolder(str(tmp_path)),
        {"job": "j", "host": "node1", "processes": [], "peers": peers, "heartbeat": {"timeout": 5}},
    )
    monkeypatch.setattr(
        supervisor.addresses,
        "unanswered",
        lambda: {(peer["address"], peer["port"]) for peer in peers if peer["name"] in names},
    )
    return one


def test_an_unanswering_server_is_named_after_twice_the_heartbeat_timeout(tmp_path, monkeypatch):
    """Heartbeats do not show it: they go to the scheduler only."""
    names, now = {"server-0", "scheduler-0", "worker-0"}, [100.0]
    one = unanswering(monkeypatch, tmp_path, names)
    monkeypatch.setattr(supervisor.time, "monotonic", lambda: now[0])
    busy, quiet = (
        [Sight("worker-0", "worker", 60, 0, {"phase": "training"}, still)] for still in (4.9, 5.0)
    )
    assert one.examine_network(busy) is None and one.mute == {}
    assert one.examine_network(quiet) is None
    now[0] += 4
    names.discard("server-0")  # the server has answered
    assert one.examine_network(quiet) is None
    names.add("server-0")
    for seconds, found in ((2, False), (4, False), (1, True)):
        now[0] += seconds
        assert bool(one.examine_network(quiet)) is found
    assert one.status["unanswered"] == ["server-0"], (
        "heartbeats watch the scheduler; worker-0 is on this node"
    )
    assert (
        one.examine_network(quiet).reason
        == "node1 gets no answer from server-0, because the network between the nodes failed: "
        "check switches, cables and firewalls"
    )


@pytest.mark.parametrize(
    "reason, first, named",
    [
        ("failed", (91, True), True),
        ("peer", None, True),
        ("failed", (3, False), False),
        ("stopped", None, False),
        ("lease", None, False),
    ],
)
def test_an_end_without_another_cause_names_the_network(
    tmp_path, monkeypatch, reason, first, named
):
    one = unanswering(monkeypatch, tmp_path, {"server-0", "scheduler-0"})
    if first:
        one.blame(supervisor.AGENT, "ended", *first[:1])
    one.last_sights(reason)
    failure = one.status["first_failure"] or {}
    assert (failure.get("kind") == "network") is named, failure
    if named:
        assert one.status["unanswered"] == ["scheduler-0", "server-0"] and not failure["echo"]


def test_sighup_does_not_end_the_agent(job):
    status = job.start("sleep 20")
    os.kill(status["agent"]["pid"], signal.SIGHUP)
    time.sleep(0.3)
    assert processes.alive(job.agent(status)) and job.folder.status()["state"] == "running"


def test_processes_die_with_a_killed_agent(job):
    status = job.start("sleep 20", STUBBORN)
    os.kill(status["agent"]["pid"], signal.SIGKILL)
    parts = [processes.Identity(part["pid"], part["start_time"]) for part in status["processes"]]
    job.until(lambda: not any(map(processes.alive, parts)), seconds=2)


def test_a_full_disk_does_not_end_the_supervision(tmp_path, monkeypatch, capsys):
    one = supervisor.Supervisor(
        JobFolder(str(tmp_path)), {"job": "j", "host": "node1", "processes": []}
    )

    def full(status):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(one.folder, "write_status", full)
    assert one.save() is False
    assert (
        "the agent cannot write status.json, and tries again: [Errno 28] No space left on device"
        in capsys.readouterr().err
    )
    monkeypatch.undo()
    assert one.save() is True and one.folder.status() == one.status
    before = os.stat(one.folder.file("status.json")).st_mtime_ns
    assert one.save() is True
    assert os.stat(one.folder.file("status.json")).st_mtime_ns == before, (
        "the status did not change and was written again"
    )


INODES = """
import sys
from mxcluster.agent import supervisor
from mxcluster.agent.folder import JobFolder
one = supervisor.Supervisor(JobFolder("."), {"job": "j", "host": "node1", "processes": []})
one.folder.take_reserve()
for number in range(99):
    one.looked = 0.0
    one.examine()
    if one.status["first_failure"]:
        break
    try:
        open(str(number), "w").close()
    except OSError:
        pass
one.status["reason"] = "failed"
assert not one.save()
one.folder.tidy()
assert one.save()
print(number, one.status["first_failure"]["kind"], one.status["first_failure"]["reason"])
"""


def test_a_file_system_without_inodes_is_the_first_failure(tmp_path):
    """The agent deletes spent files to make room for the last status."""
    mounted = "mount -t tmpfs -o size=16m,nr_inodes=20 tmpfs %s && cd %s && exec %s -c '%s'" % (
        tmp_path,
        tmp_path,
        sys.executable,
        INODES,
    )
    ran = subprocess.run(
        ["unshare", "--mount", "sh", "-c", mounted],
        stdout=subprocess.PIPE,
        check=True,
        env=dict(os.environ, PYTHONPATH=PACKAGE),
    )
    number, kind, reason = ran.stdout.decode().split(" ", 2)
    assert (
        int(number) > 9
        and kind == "disk"
        and "no room for more files (No space left on device: no inode" in reason
    )


def test_an_agent_with_an_internal_error_ends_its_processes(job):
    job.plan("sleep 20", [sys.executable, 5])  # an argument of the wrong type
    code, answer = command_line("start", "--job-dir", job.path)
    assert code == 1 and "TypeError" in answer["error"], answer
    status = job.folder.status()
    assert (status["state"], status["reason"]) == ("ended", "failed")
    assert (status["first_failure"]["role"], status["first_failure"]["name"]) == ("agent", "agent")
    assert status["first_failure"]["reason"].startswith("the agent failed: "), status
    assert ends(status) == [(-15, "agent"), (None, "agent")]


def test_an_idle_agent_uses_little_cpu(job):
    status = job.start("sleep 20")
    path = "/proc/%d/stat" % status["agent"]["pid"]

    def cpu_seconds():
        with open(path) as stream:
            fields = stream.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    before = cpu_seconds()
    time.sleep(1)
    assert cpu_seconds() - before <= 0.03


def test_the_lease_counts_from_the_last_poll_when_the_controller_is_gone(job):
    """With an unseen controller the first renewal may take longer."""
    controller = subprocess.Popen(["sleep", "20"])
    job.plan("sleep 20", lease=2)
    with open(job.folder.file("plan.json")) as stream:
        plan = dict(json.load(stream), controller=processes.witness(controller.pid))
    with open(job.folder.file("plan.json"), "w") as stream:
        json.dump(plan, stream)
    job.ask_to_start()
    time.sleep(3)
    assert job.folder.status()["state"] == "running"
    controller.kill()
    controller.wait()
    status = job.until(
        lambda: (lambda now: now["state"] == "ended" and now)(job.folder.status()), seconds=2
    )
    assert (
        status["reason"] == "lease" and status["lease"]["limit"] == 2 and status["lease"]["age"] > 3
    ), status
