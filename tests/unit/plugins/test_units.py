"""What root makes of a job's unit, with a systemctl that answers as the real one does; molecule/cluster has a real one."""
import importlib.util

import pytest

from tests.ansible_modules import PROJECT

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


class Failed(Exception):
    """The module has failed, with this message."""


class Module:
    """Answers of run_command by the program's first words, the last one for ever."""

    def __init__(self, answers, **params):
        self.params = dict({"user": "mx", "told": "", "python": "/p", "job_dir": "/jobs/j"}, **params)
        self.answers = answers

    def run_command(self, argv, **_):
        for words, given in self.answers.items():
            if " ".join(argv).startswith(words):
                answer = given if not isinstance(given, list) else given.pop(0) if len(given) > 1 else given[0]
                return answer if isinstance(answer, tuple) else (0, answer, "")
        return 0, "", ""

    def fail_json(self, msg):
        raise Failed(msg)


@pytest.fixture
def units(monkeypatch):
    import ansible.module_utils
    monkeypatch.setattr(ansible.module_utils, "__path__",
                        list(ansible.module_utils.__path__) + [str(PROJECT / "plugins" / "module_utils")])
    path = PROJECT / "plugins" / "module_utils" / "mxcluster_unit.py"
    spec = importlib.util.spec_from_file_location("mxcluster_unit", str(path))
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    monkeypatch.setattr(loaded, "UNIT_ENDS", 0.3)
    return loaded


def test_the_agents_own_error_comes_first(units):
    told = units.why_not_started(UNIT, SAID, STATUS % ('{"error": "%s"}' % CLAIM), "")
    assert told.splitlines() == [CLAIM, "(%s did not start; `journalctl -u %s` on this node tells more)" % (UNIT, UNIT)]


def test_without_one_the_last_lines_are_told_and_no_more(units):
    told = units.why_not_started(UNIT, SAID, STATUS % "python: not found", "")
    assert told.splitlines()[0] == "%s did not start: %s" % (UNIT, SAID.splitlines()[0]) and "python: not found" in told
    assert len(told.splitlines()) == 6
    assert units.why_not_started(UNIT, "", "", "a\n\nTraceback\nboom").splitlines() == [
        UNIT + " did not start: no reason was given", "a", "Traceback", "boom"]


def test_a_start_that_fails_tells_it(units, monkeypatch):
    monkeypatch.setattr(units, "run_as", lambda *given, **more: {})
    monkeypatch.setattr(units, "told_to_start", lambda params: "")
    monkeypatch.setattr(units, "with_secrets", lambda params: [])
    monkeypatch.setattr(units, "write_wish", lambda *given: None)
    monkeypatch.setattr(units, "settle_unit", lambda *given: [])
    module = Module({"systemctl start": (1, "", SAID), "systemctl status": STATUS % ('{"error": "%s"}' % CLAIM)},
                    user="nobody", plan={})
    with pytest.raises(Failed, match="^port 9091 on 10.0.0.1 is held by the job other"):
        units.start_unit(module, UNIT)


@pytest.mark.parametrize("told, states, words", [
    ("done", ["ActiveState=active\nResult=success\n"], "told that its part had ended .done., but the unit .* still active"),
    ("failed", ["ActiveState=deactivating\n"], None), ("done", ["ActiveState=failed\nResult=timeout\n"], None),
    ("done", ["ActiveState=failed\nResult=signal\n"], "its agent has failed .*signal"),
    ("done", ["ActiveState=active\n", "ActiveState=inactive\nResult=success\n"], None),
    ("failed", ["ActiveState=failed\nResult=signal\n"], None), ("", ["ActiveState=active\n"], None)])
def test_an_end_is_believed_if_the_unit_has_ended_too(units, told, states, words):
    """The answer to `wait` is the training user's, the unit is root's."""
    import re
    found = units.untrue_end(Module({"systemctl show": states}, told=told), UNIT)
    assert re.search(words, found) if words else found is None, found


def test_root_sees_which_jobs_run(units, monkeypatch):
    monkeypatch.setattr(units.os, "geteuid", lambda: 0)
    monkeypatch.setattr(units.os.path, "isdir", lambda path: True)
    listed = ("mxcluster-agent@a.service loaded active running the job a\n"
              "mxcluster-agent@b.service loaded failed failed the job b\n"
              "mxcluster-agent@c-1.service loaded activating start the job c\n")
    assert units.jobs_with_units(Module({"systemctl list-units": listed})) == ["a", "c-1"]
    assert units.jobs_with_units(Module({}, user="")) is None
