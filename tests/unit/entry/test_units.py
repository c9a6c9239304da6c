"""The unit of a job as root handles it, with a simulated systemctl.

molecule/cluster has a real one.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
import types

import pytest

from mxcluster.entry import units
from mxcluster.errors import BadInput, MxclusterError
from mxcluster.model.answers import Progress
from mxcluster.model.node_requests import CollectRequest, LookRequest
from mxcluster.model.protocol import Collect, Jobs, Look, Start
from mxcluster.model.status import Process, Status
from mxcluster.node import processes
from tests import needs
from tests.plans import part_of
from tests.waiting import until

UNIT = "mxcluster-agent@j.service"
SAID = (
    "Job for mxcluster-agent@j.service failed because the control process exited with error code.\n"
    "See systemctl status."
)
STATUS = """x mxcluster-agent@j.service - mxcluster's agent of the job j
     Loaded: loaded (/etc/systemd/system/mxcluster-agent@.service; static)
     Active: failed (Result: exit-code) since Sun 2026-11-22 01:00:00 UTC; 9ms ago
   Main PID: 77 (code=exited, status=1/FAILURE)

Starting mxcluster's agent of the job j...
%s
mxcluster-agent@j.service: Main process exited, code=exited, status=1/FAILURE
mxcluster-agent@j.service: Failed with result 'exit-code'.
Failed to start mxcluster's agent of the job j.
"""
CLAIM = (
    "port 9091 on 10.0.0.1 is held by the job other, which started first: wait until that job has"
)


def system(answers):
    """Return a `calls.run` that answers by a command's first words; the last answer repeats."""

    def call(argv):
        for words, given in answers.items():
            if " ".join(argv).startswith(words):
                if isinstance(given, list):
                    given = given.pop(0) if len(given) > 1 else given[0]
                return given if isinstance(given, tuple) else (0, given, "")
        return 0, "", ""

    return call


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(units, "UNIT_ENDS", 0.3)


START = Start(user="nobody", job_dir="/jobs/j", plan=part_of())
COLLECT = Collect(user="nobody", job_dir="/jobs/j", output="/o")


def test_without_an_agents_error_the_last_lines_are_shown():
    told = units.why_not_started(UNIT, SAID, STATUS % "python: not found", "")
    assert (
        told.splitlines()[0]
        == "%s did not start (%s): correct the error that `journalctl -u %s` shows on this node, "
        "and run the playbook again"
        % (UNIT, SAID.splitlines()[0], UNIT)
        and "python: not found" in told
    )
    last = units.why_not_started(UNIT, "", "", "a\n\nTraceback\nboom").splitlines()
    assert "(systemctl gave no reason)" in last[0] and last[1:] == ["a", "Traceback", "boom"]


def test_a_failed_start_reports_the_agents_error(monkeypatch):
    commands = []
    monkeypatch.setattr(units.programs, "answer_of", lambda given: commands.append(given.KIND))
    monkeypatch.setattr(units, "write_firewall_request", lambda *given: None)
    monkeypatch.setattr(units, "settle", lambda *given: commands.append("settled") or [])
    shown = STATUS % ('{"error": "%s"}' % CLAIM)
    answers = {"systemctl start": (1, "", SAID), "systemctl status": shown}
    monkeypatch.setattr(units.calls, "run", system(answers))
    with pytest.raises(MxclusterError, match="^port 9091 on 10.0.0.1 is held by the job other"):
        units.start(START, UNIT)
    assert commands == ["prepare", "stop", "settled"]


def test_root_starts_no_job_without_its_plan():
    with pytest.raises(BadInput, match="needs the plan of the job"):
        units.start(START.replaced(plan=None), UNIT)


def test_the_firewall_gets_the_training_users_uid(monkeypatch, tmp_path):
    """A job's ports are open to its nodes only, and on each node to the training user only."""
    monkeypatch.setattr(units.firewall, "FOLDER", str(tmp_path / "requests"))
    wanted = {"job": "j", "address": "10.0.0.2", "interface": "eth1", "ports": [9091], "peers": {}}
    units.write_firewall_request(part_of(job="j", firewall=wanted), 1234)
    assert json.loads((tmp_path / "requests" / "j.json").read_text()) == dict(wanted, uid=1234)


@pytest.mark.parametrize(
    "told, states, words",
    [
        ("done", ["ActiveState=active\n"], "its part of the job had ended .done., but .* still ac"),
        ("failed", ["ActiveState=deactivating\n"], None),
        ("done", ["ActiveState=failed\nResult=timeout\n"], None),
        ("done", ["ActiveState=failed\nResult=signal\n"], "the agent has failed .*signal"),
        ("done", ["ActiveState=active\n", "ActiveState=inactive\nResult=success\n"], None),
        ("failed", ["ActiveState=failed\nResult=signal\n"], None),
        ("", ["ActiveState=active\n"], None),
    ],
)
def test_an_end_is_accepted_if_the_unit_has_ended(told, states, words, monkeypatch):
    """The training user gives the answer to `wait`; the unit belongs to root."""
    monkeypatch.setattr(units.calls, "run", system({"systemctl show": list(states)}))
    found = units.untrue_end(COLLECT.replaced(reason=told), UNIT)
    assert re.search(words, found) if words else found is None, found


def status(since):
    """Return the status of a job whose agent began at `since` (clock ticks)."""
    agent = Process(pid=1, start_time=since)
    return Status(job="j", host="node1", agent=agent, started=1.0, processes=[])


class Outsider:
    """The training user, whose processes have no unit; `since` is the start of the job's agent."""

    def __init__(self):
        self.uid, self.started, self.since = 3_000_000 + os.getpid(), [], 0

    def start(self, program="exec sleep 300", **environ):
        """Start an orphan, which is in no chain of processes with this one; return its identity."""
        told = subprocess.check_output(
            ["sh", "-c", "(%s) >/dev/null 2>&1 & echo $!" % program],
            env=dict(os.environ, **environ),
            preexec_fn=lambda: os.setuid(self.uid),
        )
        self.started.append(processes.identity(int(told)))
        return self.started[-1]

    def answer(self, asked):
        return Progress(status=status(self.since))


@pytest.fixture
def outsider(monkeypatch):
    """Return an Outsider. A test undoes its own changes of `processes` before the end."""
    made = Outsider()
    monkeypatch.setattr(units.pwd, "getpwnam", lambda name: types.SimpleNamespace(pw_uid=made.uid))
    monkeypatch.setattr(units.programs, "answer_of", made.answer)
    yield made
    for who in made.started:  # the started processes alone, each by its pid
        processes.send(who, signal.SIGKILL)


@needs.root
def test_processes_outside_of_the_unit_are_named(outsider):
    """A job may leave its unit by ssh to its own node, or through systemd of the user."""
    older = outsider.start()
    time.sleep(0.02)  # start times are multiples of 0.01 s
    left = outsider.start()
    outsider.start(MXCLUSTER_JOB_DIR="/jobs/other")
    outsider.since = left.start_time
    assert outsider.since > older.start_time
    assert units.outside(COLLECT, 0.0) == [
        "pid %d (sleep) of nobody runs outside of the job's unit, and began during the job: if "
        "no person has started this process, kill it" % left.pid
    ]


@needs.root
@pytest.mark.parametrize(
    "group", ["system.slice/mxcluster-agent@other.service", "user@7.service/init.scope"]
)
def test_processes_of_units_and_the_users_systemd_are_not_outside(outsider, monkeypatch, group):
    outsider.start()
    assert len(units.outside(COLLECT, 0.0)) == 1
    read = processes.read

    def read_group(pid, name):
        return b"0::/%s\n" % group.encode() if name == "cgroup" else read(pid, name)

    with monkeypatch.context() as patch:
        patch.setattr(processes, "read", read_group)
        assert units.outside(COLLECT, 0.0) == []


@needs.root
def test_a_job_without_a_unit_has_no_process_outside(outsider):
    """The daemons of mpirun and all agents run without a unit under launcher=mpi."""
    outsider.start()
    assert len(units.outside(COLLECT, 0.0)) == 1
    assert units.outside(COLLECT.replaced(arguments=CollectRequest(engine="mpirun")), 0.0) == []


@needs.root
def test_the_shell_of_ansible_above_this_program_is_not_outside(outsider, monkeypatch):
    """If the login user trains, the shell that runs sudo has the training user's uid."""
    shell = outsider.start("sleep 300; true")
    assert len(units.outside(COLLECT, 0.0)) >= 1
    below = until(lambda: [line.pid for line in processes.table() if line.parent == shell.pid])
    outsider.started.append(processes.identity(below[0]))
    with monkeypatch.context() as patch:
        patch.setattr(units.os, "getpid", lambda: below[0])
        assert units.outside(COLLECT, 0.0) == []


@needs.root
def test_the_programs_of_a_command_are_not_outside(outsider):
    """verify.yml runs ssh as the training user, two processes below root's program."""
    below = "import os, subprocess; os.setuid(%d); subprocess.call(['sleep', '300'])" % outsider.uid
    child = "import subprocess, sys; subprocess.call([sys.executable, '-c', %r])" % below
    above = "import subprocess, sys; subprocess.call([sys.executable, '-c', %r, 'x'])" % child
    command = [sys.executable, "-c", above, "mxcluster.entry"]
    entry = subprocess.Popen(command, start_new_session=True)
    try:
        until(lambda: len(processes.of_user(outsider.uid)) == 2)
        assert units.outside(COLLECT, 0.0) == []
    finally:
        os.killpg(entry.pid, signal.SIGKILL)
        entry.wait()


@needs.root
def test_only_a_process_that_stays_is_outside(outsider, monkeypatch):
    """The ssh sessions of another node's verify.yml come and go."""
    looks = []

    def of_user(uid):
        looks.append(uid)
        return [processes.Identity(10_000_000 + len(looks), 10)]

    with monkeypatch.context() as patch:
        patch.setattr(processes, "of_user", of_user)
        assert units.outside(COLLECT, 5.0) == [] and len(looks) == 2


def test_a_job_that_has_not_started_has_no_process_outside(monkeypatch):
    def refuses(request):
        raise BadInput("/jobs/j has no status.json")

    monkeypatch.setattr(units.programs, "answer_of", refuses)
    assert units.outside(COLLECT, 0.0) == []


def test_root_lists_the_running_jobs(monkeypatch):
    monkeypatch.setattr(units.os, "geteuid", lambda: 0)
    monkeypatch.setattr(units.os.path, "isdir", lambda path: True)
    listed = (
        "mxcluster-agent@a.service loaded active running the job a\n"
        "mxcluster-agent@b.service loaded failed failed the job b\n"
        "mxcluster-agent@c-1.service loaded activating start the job c\n"
    )
    monkeypatch.setattr(units.calls, "run", system({"systemctl list-units": listed}))
    assert units.jobs_with_units(Jobs(jobs_dir="/jobs", user="nobody")) == ["a", "c-1"]
    assert units.jobs_with_units(Jobs(jobs_dir="/jobs")) is None


def test_a_job_outside_of_a_unit_sees_every_folder(monkeypatch):
    """A unit has its own /tmp. An engine of the site starts the agent outside of a unit."""
    monkeypatch.setattr(units, "has_units", lambda asked: True)
    needs = LookRequest(data_dir="/tmp/data", engine="")
    assert "/tmp/data" in units.hidden(Look(arguments=needs))[0]
    assert units.hidden(Look(arguments=needs.replaced(engine="mpirun"))) == []
