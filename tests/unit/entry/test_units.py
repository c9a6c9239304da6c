"""What root makes of a job's unit, with a systemctl that answers as the real one does; molecule/cluster has a real one."""
import json
import re

import pytest

from mxcluster.entry import units
from mxcluster.errors import MxclusterError

UNIT = "mxcluster-agent@j.service"
SAID = "Job for mxcluster-agent@j.service failed because the control process exited with error code.\nSee systemctl status."
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
CLAIM = "port 9091 on 10.0.0.1 is held by the job other, which was faster: give the command again"


def system(answers):
    """`programs.call` with answers by the program's first words, the last one for ever."""
    def call(argv):
        for words, given in answers.items():
            if " ".join(argv).startswith(words):
                answer = given if not isinstance(given, list) else given.pop(0) if len(given) > 1 else given[0]
                return answer if isinstance(answer, tuple) else (0, answer, "")
        return 0, "", ""
    return call


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(units, "UNIT_ENDS", 0.3)


ASKED = {"command": "start", "user": "nobody", "told": "", "python": "/p", "job_dir": "/jobs/j", "plan": {}}


def test_the_agents_own_error_comes_first():
    told = units.why_not_started(UNIT, SAID, STATUS % ('{"error": "%s"}' % CLAIM), "")
    assert told.splitlines() == [CLAIM, "(%s did not start; `journalctl -u %s` on this node tells more)" % (UNIT, UNIT)]


def test_without_one_the_last_lines_are_told_and_no_more():
    told = units.why_not_started(UNIT, SAID, STATUS % "python: not found", "")
    assert told.splitlines()[0] == "%s did not start: %s" % (UNIT, SAID.splitlines()[0]) and "python: not found" in told
    assert len(told.splitlines()) == 6
    assert units.why_not_started(UNIT, "", "", "a\n\nTraceback\nboom").splitlines() == [
        UNIT + " did not start: no reason was given", "a", "Traceback", "boom"]


def test_a_start_that_fails_tells_it(monkeypatch):
    asked = []
    monkeypatch.setattr(units.programs, "answer_of", lambda given: asked.append(given["command"]) or {})
    monkeypatch.setattr(units, "write_wish", lambda *given: None)
    monkeypatch.setattr(units, "settle", lambda *given: asked.append("settled") or [])
    monkeypatch.setattr(units.programs, "call", system({
        "systemctl start": (1, "", SAID), "systemctl status": STATUS % ('{"error": "%s"}' % CLAIM)}))
    with pytest.raises(MxclusterError, match="^port 9091 on 10.0.0.1 is held by the job other"):
        units.start(ASKED, UNIT)
    assert asked == ["prepare", "stop", "settled"]


def test_the_firewall_is_told_who_the_training_user_is(monkeypatch, tmp_path):
    """The ports of a job are open to those alone who belong to it: to its nodes, and on each node to that user."""
    monkeypatch.setattr(units, "WISHES", str(tmp_path / "wishes"))
    units.write_wish({"job": "j", "firewall": {"ports": [9091]}}, 1234)
    assert json.loads((tmp_path / "wishes" / "j.json").read_text()) == {"ports": [9091], "uid": 1234}


@pytest.mark.parametrize("told, states, words", [
    ("done", ["ActiveState=active\nResult=success\n"], "told that its part had ended .done., but the unit .* still active"),
    ("failed", ["ActiveState=deactivating\n"], None), ("done", ["ActiveState=failed\nResult=timeout\n"], None),
    ("done", ["ActiveState=failed\nResult=signal\n"], "its agent has failed .*signal"),
    ("done", ["ActiveState=active\n", "ActiveState=inactive\nResult=success\n"], None),
    ("failed", ["ActiveState=failed\nResult=signal\n"], None), ("", ["ActiveState=active\n"], None)])
def test_an_end_is_believed_if_the_unit_has_ended_too(told, states, words, monkeypatch):
    """The answer to `wait` is the training user's, the unit is root's."""
    monkeypatch.setattr(units.programs, "call", system({"systemctl show": list(states)}))
    found = units.untrue_end(dict(ASKED, told=told), UNIT)
    assert re.search(words, found) if words else found is None, found


def test_root_sees_which_jobs_run(monkeypatch):
    monkeypatch.setattr(units.os, "geteuid", lambda: 0)
    monkeypatch.setattr(units.os.path, "isdir", lambda path: True)
    listed = ("mxcluster-agent@a.service loaded active running the job a\n"
              "mxcluster-agent@b.service loaded failed failed the job b\n"
              "mxcluster-agent@c-1.service loaded activating start the job c\n")
    monkeypatch.setattr(units.programs, "call", system({"systemctl list-units": listed}))
    assert units.jobs_with_units(ASKED) == ["a", "c-1"]
    assert units.jobs_with_units(dict(ASKED, user="")) is None
