"""The end of a job, without leftover processes; with real processes and real signals."""

import os
import signal
import subprocess
import sys
import time
import types

import pytest

from mxcluster import events
from mxcluster.agent import commands, observation, supervisor, waiting
from mxcluster.agent.folder import JobFolder
from mxcluster.agent.stuck_processes import Sight
from mxcluster.model import failures
from mxcluster.model.status import Pulse
from mxcluster.node import processes
from mxcluster.node.quota import Quota
from tests import machine
from tests.machine import Stopwatch
from tests.plans import part_of
from tests.unit.agent.jobs import FAILS_LATER, PACKAGE, STUBBORN, in_a_process

PULSE = Pulse(phase="training", pushes=7, time=1.0)


def ends(status):
    """Return [(exit code, ended by)] of all processes."""
    return [(part["exit_code"], part["ended_by"]) for part in status["processes"]]


def signal_process(status, index, signum):
    part = status["processes"][index]
    assert processes.send(processes.Identity(part["pid"], part["start_time"]), signum)


@pytest.mark.slow
def test_a_finished_process_does_not_end_the_others(job):
    job.start("true", "sleep 300")
    job.until(lambda: job.folder.status().processes[0].state == "ended")
    status = job.looks()
    assert (status["state"], status["processes"][1]["state"]) == ("running", "running")


def test_a_failed_process_ends_the_others(job):
    # The others end at SIGTERM, so the agent does not use its time.
    last = "seq 1 30; echo lost: no data >&2; sleep 0.3; exit 3"
    job.start_patient("sleep 300", last, "sleep 300")
    status = job.end()
    assert status["reason"] == "failed"
    assert ends(status) == [(-15, "agent"), (3, "self"), (-15, "agent")]
    failure = status["first_failure"]
    log = [str(number) for number in range(12, 31)] + ["lost: no data"]
    assert (failure["host"], failure["name"], failure["kind"]) == ("node1", "worker-1", "program")
    assert (failure["reason"], failure["log"]) == ("exited with status 3", log)
    first, failed, last = (part["ended_at"] for part in status["processes"])
    assert failed <= failure["time"] <= min(first, last)
    job.nothing_left()


@pytest.mark.slow
def test_the_agent_ends_the_job_after_its_max_time(job):
    began = job.start("sleep 300", "sleep 300", options={"max_time": 1})["started"]
    status = job.end()
    assert (status["reason"], status["first_failure"]["kind"]) == ("failed", "time")
    assert ends(status) == [(-15, "agent"), (-15, "agent")]
    assert status["first_failure"]["time"] - began >= 0.9  # the clocks differ in their ticks
    job.nothing_left()


@pytest.mark.slow
def test_a_foreign_sigterm_is_a_failure(job):
    signal_process(job.start("sleep 300"), 0, signal.SIGTERM)
    status = job.end()
    assert (status["reason"], status["first_failure"]["exit_code"]) == ("failed", -15)


def test_the_status_has_the_first_failure_while_other_processes_end(job):
    job.start_patient(STUBBORN, FAILS_LATER)
    status = job.until(lambda: job.folder.status().first_failure and job.status())
    assert (status["state"], status["first_failure"]["exit_code"]) == ("running", 4)
    signal_process(status, 0, signal.SIGKILL)
    assert ends(job.end()) == [(-9, "agent"), (4, "self")]
    job.nothing_left()


@pytest.mark.slow
def test_a_process_that_ignores_sigterm_is_killed_after_two_seconds(job):
    with Stopwatch() as watch:
        job.start(STUBBORN, FAILS_LATER)
        status = job.end()
    assert ends(status) == [(-9, "agent"), (4, "self")]
    seconds = status["ended"] - status["first_failure"]["time"]
    assert 2.0 <= seconds < 2.0 + 1.5 * watch.slowness, machine.described()
    job.nothing_left()


@pytest.mark.slow
def test_all_descendants_are_ended(job):
    """A child in the group, an orphan, a child in its own session, and an orphan there."""
    text = (
        "sleep 300 & echo $!; (sleep 300 & echo $!); setsid sleep 300 & echo $!; "
        "setsid sh -c 'sleep 300 & echo $!' & sleep 300"
    )
    status = job.start(text, "while ! test -e go; do sleep 0.1; done; exit 5")
    agent, shell = status["agent"]["pid"], status["processes"][0]["pid"]

    def descendants():
        found = [processes.entry(int(pid)) for pid in job.log("worker-0").split()]
        return (
            len(found) == 4
            and sorted((line.parent in (agent, shell), line.session == shell) for line in found)
            == [(True, False)] * 2 + [(True, True)] * 2
        )

    job.until(descendants)
    job.remember(status)
    assert set(map(int, job.log("worker-0").split())) < {who.pid for who in job.seen}
    open(job.folder.file("go"), "w").close()
    assert job.end()["reason"] == "failed"
    job.nothing_left()


@pytest.mark.slow
def test_descendants_of_finished_processes_are_ended(job):
    status = job.start("setsid sleep 300 & sleep 300 & until test -e go; do sleep 0.05; done")
    job.until(lambda: len(processes.family([job.agent(status)])) >= 4)
    job.remember(status)
    open(job.folder.file("go"), "w").close()
    assert job.end()["reason"] == "done"
    job.nothing_left()


def test_orphans_do_not_stay_as_zombies(job):
    job.start("for i in 1 2 3; do (sleep 0.1 & echo $!); done; sleep 300")
    job.until(lambda: job.log("worker-0").count("\n") == 3)
    job.until(lambda: not any(processes.entry(int(pid)) for pid in job.log("worker-0").split()))


@pytest.mark.parametrize(
    "commands, name, echo",
    [
        (["sleep 300", "exit 91"], "worker-1", True),
        (["exit 91", "exit 3"], "worker-1", False),
        (["exit 3", "exit 91"], "worker-0", False),
    ],
)
def test_status_91_gives_way_to_another_cause(tmp_path, commands, name, echo):
    workers = [
        {"name": "worker-%d" % index, "role": "worker", "index": index} for index in range(2)
    ]
    one = supervisor.Supervisor(JobFolder(str(tmp_path)), part_of(*workers, job="j"))
    for index, command in enumerate(commands):
        if command.startswith("exit"):
            one.ended("worker-%d" % index, int(command.split()[1]), failures.AGENT)
    failure = one.status.first_failure
    assert (failure.name, failure.row.is_echo) == (name, echo)


@pytest.mark.slow
def test_a_wait_renews_the_lease_for_half_of_its_time(job, monkeypatch):
    job.start("sleep 300", lease=60)
    ticks = [0.0]
    clock = types.SimpleNamespace(
        time=time.time,
        monotonic=lambda: ticks[0],
        sleep=lambda seconds: ticks.append(ticks.pop() + seconds),
    )
    monkeypatch.setattr(commands, "time", clock)
    monkeypatch.setattr(waiting, "time", clock)
    for _ in range(3):
        job.folder.renew_lease(1.0)
        begun = ticks[0]
        status = job.ask("wait", seconds=500)["status"]
        assert status["state"] == "running", job.evidence()
        assert 29.9 < ticks[0] - begun < 30.1, "a wait must not sleep longer than the lease"
        assert job.folder.lease_mtime() > 1.0


@pytest.mark.slow
def test_a_job_without_renewals_ends_with_its_lease(job):
    job.start("sleep 300", lease=0.8)
    status = job.end()
    assert (status["reason"], status["first_failure"]) == ("lease", None)
    assert ends(status) == [(-15, "agent")]
    job.nothing_left()


@pytest.mark.parametrize(
    "signum,reason", [(signal.SIGTERM, "shutdown"), (signal.SIGINT, "stopped")]
)
def test_only_a_request_to_the_agent_stops_the_job(job, signum, reason):
    """systemd sends SIGTERM to all processes of a node that goes down; stop.yml sends SIGINT."""
    status = job.start("sleep 300", "sleep 300")
    assert processes.send(job.agent(status), signum)
    status = job.end()
    assert (status["reason"], status["first_failure"]) == (reason, None)
    assert ends(status) == [(-15, "agent"), (-15, "agent")]
    job.nothing_left()


def test_a_process_that_a_shutdown_ends_first_is_no_failure(job):
    """The agent gets SIGTERM and the end of its process in one turn of its loop."""
    status = job.start("sleep 300")
    agent = job.agent(status)
    assert processes.send(agent, signal.SIGSTOP)
    job.until(lambda: processes.is_held(agent))
    for who in (
        agent,
        processes.Identity(*(status["processes"][0][k] for k in ("pid", "start_time"))),
    ):
        assert processes.send(who, signal.SIGTERM)
    job.until(lambda: not processes.alive(who))
    assert processes.send(agent, signal.SIGCONT)
    status = job.end()
    assert (status["reason"], status["first_failure"]) == ("shutdown", None)
    job.nothing_left()


# Between two steps of the agent's loop, systemd ends the agent and its process, in this order.
SHUT_DOWN = """
import os, signal, time
from mxcluster.agent.supervisor import Supervisor
reap = Supervisor.reap

def shut_down_and_reap(self):
    Supervisor.reap = reap
    (child,) = self.children
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(child, signal.SIGTERM)
    while open("/proc/%d/stat" % child).read().rsplit(")", 1)[1].split()[0] != "Z":
        time.sleep(0.01)
    reap(self)

Supervisor.reap = shut_down_and_reap
"""


def test_a_process_that_ends_while_the_agent_looks_is_no_failure_of_a_shutdown(job):
    job.start_changed(SHUT_DOWN, "sleep 300")
    status = job.end()
    assert (status["reason"], status["first_failure"]) == ("shutdown", None)
    assert ends(status) == [(-15, "agent")]


@pytest.mark.slow
def test_stop_peer_sets_the_reason_peer(job):
    job.start("sleep 300")
    answer = job.ask("stop", peer=True)
    assert (answer["status"]["reason"], answer["status"]["first_failure"]) == ("peer", None)
    assert ends(answer["status"]) == [(-15, "agent")]


def unanswering(monkeypatch, tmp_path, names):
    """Return a Supervisor with one idle process; the kernel reports `names` as unanswering."""
    hosts = {"scheduler-0": "node2", "server-0": "node2", "worker-0": "node1"}
    peers = [
        dict(name=name, role=name[:-2], host=host, address="10.0.0." + host[-1], port=9091 + number)
        for number, (name, host) in enumerate(hosts.items())
    ]
    (tmp_path / "plan.json").write_text("{}")
    part = part_of(job="j", peers=peers, heartbeat={"timeout": 5})
    before = {"a connection of another job"}
    monkeypatch.setattr(observation.addresses, "connections", lambda: before)
    one = supervisor.Supervisor(JobFolder(str(tmp_path)), part)

    def unanswered(earlier):
        assert earlier == {"a connection of another job"}
        return {(peer["address"], peer["port"]) for peer in peers if peer["name"] in names}

    monkeypatch.setattr(observation.addresses, "unanswered", unanswered)
    return one


def test_an_unanswering_server_is_named_after_twice_the_heartbeat_timeout(tmp_path, monkeypatch):
    """Heartbeats do not show it: they go to the scheduler only."""
    names, now = {"server-0", "scheduler-0", "worker-0"}, [100.0]
    one = unanswering(monkeypatch, tmp_path, names)
    monkeypatch.setattr(supervisor.time, "monotonic", lambda: now[0])
    busy, quiet = ([Sight("worker-0", "worker", 60, 0, PULSE, still)] for still in (4.9, 5.0))
    assert one.examine_network(busy) is None and one.mute == {}
    assert one.examine_network(quiet) is None
    now[0] += 4
    names.discard("server-0")  # the server has answered
    assert one.examine_network(quiet) is None
    names.add("server-0")
    for seconds, found in ((2, False), (4, False), (1, True)):
        now[0] += seconds
        assert bool(one.examine_network(quiet)) is found
    assert one.status.unanswered == ["server-0"], (
        "heartbeats watch the scheduler; worker-0 is on this node"
    )
    assert "node1 gets no answer from server-0, " in one.examine_network(quiet).reason


@pytest.mark.parametrize(
    "reason, first, named",
    [
        ("failed", "peer", True),
        ("peer", None, True),
        ("failed", "program", False),
        ("stopped", None, False),
        ("lease", None, False),
    ],
)
def test_an_end_without_another_cause_names_the_network(
    tmp_path, monkeypatch, reason, first, named
):
    one = unanswering(monkeypatch, tmp_path, {"server-0", "scheduler-0"})
    if first:
        one.blame(first, "ended")
    one.last_sights(reason)
    failure = one.status.first_failure
    assert bool(failure and failure.kind == "network") is named, failure
    if named:
        assert one.status.unanswered == ["scheduler-0", "server-0"]


@pytest.mark.slow
def test_sighup_does_not_end_the_agent(job):
    status = job.start("sleep 300")
    assert processes.send(job.agent(status), signal.SIGHUP)
    assert job.looks()["state"] == "running" and processes.alive(job.agent(status))


def test_processes_die_with_a_killed_agent(job):
    status = job.start("sleep 300", STUBBORN)
    assert processes.send(job.agent(status), signal.SIGKILL)
    parts = [processes.Identity(part["pid"], part["start_time"]) for part in status["processes"]]
    job.until(lambda: not any(map(processes.alive, parts)))


SPEED = "echo 'Epoch[1] Batch [20]	Speed: 100.0 samples/sec'"


def script_events(job):
    """Return [(kind, index)] of the events that the job's reader of lines has written."""
    found = events.read(job.folder.file(events.FILE))
    return [(line.event.KIND, line.event.index) for line in found if line.event.source == "lines"]


def test_the_last_lines_of_a_script_are_read_before_the_end_of_the_job(job):
    job.start(SPEED, "printf '[Epoch 1] validation: accuracy=0.5'", options={"script": "mine.py"})
    assert job.end()["reason"] == "done"
    assert sorted(script_events(job)) == [("batch", 0), ("epoch", 1)]
    assert not processes.with_variable("MXCLUSTER_JOB_DIR", job.path) and job.nothing_left()


def test_a_reader_of_lines_that_was_killed_does_not_end_the_job(job):
    job.start("until [ -e go ]; do sleep 0.1; done", options={"script": "mine.py"})

    def readers():
        found = processes.with_variable("MXCLUSTER_JOB_DIR", job.path)
        return [one for one in found if b"line_reader" in processes.read(one.pid, "cmdline")]

    assert processes.send(job.until(readers)[0], signal.SIGKILL)
    open(job.folder.file("go"), "w").close()
    assert job.end()["reason"] == "done"


@pytest.mark.slow
def test_the_reader_of_lines_dies_with_a_killed_agent(job):
    status = job.start(SPEED + "; sleep 300", options={"script": "mine.py"})
    job.until(lambda: processes.with_variable("MXCLUSTER_JOB_DIR", job.path))
    job.until(lambda: os.path.exists(job.folder.file(events.FILE)) and script_events(job))
    processes.send(job.agent(status), signal.SIGKILL)
    job.until(lambda: not processes.with_variable("MXCLUSTER_JOB_DIR", job.path))


def test_a_full_disk_does_not_end_the_supervision(tmp_path, monkeypatch, capsys):
    one = supervisor.Supervisor(JobFolder(str(tmp_path)), part_of(job="j"))

    def full(status):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(one.folder, "write_status", full)
    assert one.save() is False
    said = capsys.readouterr().err
    assert "the agent cannot write status.json, and tries again: [Errno 28] No space" in said
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
from mxcluster.model.job_knobs import of_plan
from mxcluster.model.plan import NodePlan
knobs = of_plan({})
plan = NodePlan(job="j", host="node1", kv="dist_sync", options=knobs, nodes={}, processes=[])
one = supervisor.Supervisor(JobFolder("."), plan)
one.folder.take_reserve()
for number in range(99):
    one.looked = 0.0
    one.examine()
    if one.status.first_failure:
        break
    try:
        open(str(number), "w").close()
    except OSError:
        pass
one.status = one.status.replaced(reason="failed")
assert not one.save()
one.folder.tidy()
assert one.save()
print(number, one.status.first_failure.kind, one.status.first_failure.reason)
"""


def test_a_file_system_without_inodes_is_the_first_failure(tmp_path):
    """The agent deletes spent files to make room for the last status."""
    mount = "mount -t tmpfs -o size=16m,nr_inodes=20 tmpfs %s && cd %s" % (tmp_path, tmp_path)
    command = "%s && exec %s -c '%s'" % (mount, sys.executable, INODES)
    argv = ["unshare", "--mount", "sh", "-c", command]
    said = subprocess.check_output(argv, text=True, env=dict(os.environ, PYTHONPATH=PACKAGE))
    number, kind, reason = said.split(" ", 2)
    assert int(number) > 9 and kind == "disk"
    assert "no room for more files (No space left on device: no inode" in reason


@pytest.mark.slow
def test_an_agent_with_an_internal_error_ends_its_processes(job):
    job.plan("sleep 300", "sleep 300")
    os.mkdir(job.folder.file("worker-1.log"))
    code, answer = in_a_process("start", job_dir=job.path)
    assert code == 1 and "IsADirectoryError" in answer["error"], answer
    status = job.status()
    assert (status["state"], status["reason"]) == ("ended", "failed")
    assert (status["first_failure"]["role"], status["first_failure"]["name"]) == ("agent", "agent")
    assert status["first_failure"]["reason"].startswith("the agent failed: "), status
    assert ends(status) == [(-15, "agent"), (None, "agent")]


@pytest.mark.slow
def test_an_idle_agent_uses_little_cpu(job):
    status = job.start("sleep 300")
    path = "/proc/%d/schedstat" % status["agent"]["pid"]

    def cpu_seconds():
        with open(path) as stream:
            return int(stream.read().split()[0]) / 1e9

    job.looks()  # the start is over
    before = cpu_seconds()
    time.sleep(1)
    assert cpu_seconds() - before <= 0.03, machine.described()


@pytest.mark.slow
def test_the_lease_counts_from_the_last_poll_when_the_controller_is_gone(job):
    """With an unseen controller the first renewal may take longer, and with a seen one minutes."""
    with subprocess.Popen(["sleep", "300"]) as controller:
        try:
            job.start("sleep 300", lease=0.6, controller=processes.witness(controller.pid).encode())
            assert job.looks(1.5)["state"] == "running"
        finally:
            controller.kill()
    status = job.end()
    assert status["reason"] == "lease" and status["lease"]["limit"] == 0.6, status
    assert status["lease"]["age"] > 1.5, status


def test_the_agent_checks_rarely_under_a_small_quota():
    cpus = [supervisor.period_of(limit and Quota(limit, "", True)) for limit in (None, 4, 0.5, 0.1)]
    assert cpus == [0.5, 0.5, 1.0, 2.0]
