"""The files of Ansible's output, with Ansible's own display as their writer."""

import logging
import os
import stat
from types import SimpleNamespace

import pytest
from ansible import constants as C
from ansible.utils import display as ansible_display

from mxcluster.ansible.terminal import log as logs

STAMP = "20261127-101500"


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Return a function that begins the log of a playbook; the clock stands still."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(ansible_display, "logger", None)
    for kind in ("_deprecations", "_warns", "_errors"):  # of other tests
        known = getattr(ansible_display.Display(), kind)
        monkeypatch.setattr(ansible_display.Display(), kind, type(known)())
    monkeypatch.setattr(logs, "time", SimpleNamespace(strftime=lambda form: STAMP))
    return lambda playbook: logs.Log(str(tmp_path / "tmp"), playbook, str(tmp_path / ".state"))


def write(text, **options):
    ansible_display.Display().display(text, log_only=True, **options)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def lines(path):
    """Return the lines of a log without their times, "2026-11-27 10:15:00,123 "."""
    return [line[24:] for line in path.read_text().splitlines()]


def test_the_log_follows_the_folders_that_a_run_learns(made, tmp_path):
    log, state, run = made("train.yml"), tmp_path / "state", tmp_path / "runs" / "j"
    write("one")
    log.learn(logs.PREFLIGHT, {"state_dir": str(state)})
    write("two")
    assert lines(state / ("train-%s.log" % STAMP)) == ["one", "two"] and not names(tmp_path / "tmp")
    log.learn("mxcluster_plan", {"run_dir": str(run)})
    run.mkdir(parents=True)
    log.move_to_job()
    write("three", color=C.COLOR_VERBOSE)
    assert lines(run / "ansible.log") == ["one", "two", "three"] and not names(state)
    assert stat.S_IMODE((run / "ansible.log").stat().st_mode) == 0o600
    log.close()
    log.close()
    write("four")
    assert lines(run / "ansible.log") == ["one", "two", "three"]


def test_the_log_has_the_warnings_before_the_playbook(made, tmp_path, capsys):
    ansible_display.Display().warning("no inventory 100% parsed")
    log = made("train.yml")
    log.close()
    [path] = (tmp_path / ".state").iterdir()
    assert lines(path) == ["[WARNING]: no inventory 100% parsed"] and capsys.readouterr().err


def test_a_later_playbook_of_a_job_continues_its_log(made, tmp_path):
    run = tmp_path / "runs" / "j"
    run.mkdir(parents=True)
    for text in ("trains", "attaches"):
        log = made("train.yml")
        log.learn(logs.PREFLIGHT, {"state_dir": str(tmp_path / "state")})
        log.learn("mxcluster_jobs", {"run_dir": str(run)})
        write(text)
        log.close()  # without a poll, such as that of a detached job
    assert lines(run / "ansible.log") == ["trains", "attaches"] and not names(tmp_path / "state")


def test_a_run_without_a_run_folder_has_its_log_in_the_state_folder(made, tmp_path):
    log = made("train.yml")
    log.learn(logs.PREFLIGHT, {"state_dir": str(tmp_path / "state")})
    log.learn("mxcluster_plan", {"run_dir": str(tmp_path / "runs" / "planned")})
    log.move_to_job()
    log.close()
    assert names(tmp_path / "state") == ["train-%s.log" % STAMP]
    assert not (tmp_path / "runs").exists()


def test_a_run_without_a_preflight_has_its_log_in_the_folder_of_all_states(made, tmp_path):
    log = made("provision.yml")
    write("x")
    log.close()
    assert lines(tmp_path / ".state" / ("provision-%s.log" % STAMP)) == ["x"]


def test_the_last_ten_logs_of_each_playbook_stay(made, tmp_path):
    state = tmp_path / "state"
    state.mkdir()
    for playbook in ("status", "stop"):
        for number in range(10):
            (state / ("%s-20200101-00000%d.log" % (playbook, number))).write_text("")
    (state / "status.json").write_text("")
    log = made("status.yml")
    log.learn(logs.PREFLIGHT, {"state_dir": str(state)})
    log.close()
    of_status = [name for name in names(state) if name.startswith("status-")]
    assert len(of_status) == 10 and of_status[0].endswith("01.log") and STAMP in of_status[-1]
    assert len(names(state)) == 21, "other playbooks and files stay"


def test_two_runs_of_one_second_have_a_log_each(made, tmp_path):
    state = tmp_path / "state"
    for text in ("first", "second"):
        log = made("status.yml")
        log.learn(logs.PREFLIGHT, {"state_dir": str(state)})
        write(text)
        log.close()
    start = state / ("status-" + STAMP)
    assert lines(start.with_suffix(".log")) == ["first"]
    assert lines(state / ("status-%s-%d.log" % (STAMP, os.getpid()))) == ["second"]


def test_a_folder_that_cannot_be_written_leaves_the_log_where_it_is(made, tmp_path):
    (tmp_path / "run" / "ansible.log").mkdir(parents=True)
    log = made("train.yml")
    log.learn(logs.PREFLIGHT, {"state_dir": str(tmp_path / "state")})
    log.learn("mxcluster_plan", {"run_dir": str(tmp_path / "run")})
    log.move_to_job()
    write("x")
    log.close()
    assert lines(tmp_path / "state" / ("train-%s.log" % STAMP)) == ["x"]


def test_a_link_in_the_place_of_a_log_is_not_followed(made, tmp_path):
    run, target = tmp_path / "runs" / "j", tmp_path / "target"
    run.mkdir(parents=True)
    target.write_text("mine")
    (run / "ansible.log").symlink_to(target)
    log = made("train.yml")
    log.learn("mxcluster_plan", {"run_dir": str(run)})
    write("x")
    log.close()
    assert target.read_text() == "mine"
    assert lines(tmp_path / ".state" / ("train-%s.log" % STAMP)) == ["x"]


def test_a_log_that_the_user_has_set_stays(made, tmp_path, monkeypatch):
    own = logging.Logger("ansible", logging.INFO)
    own.addHandler(logging.FileHandler(str(tmp_path / "own.log")))
    monkeypatch.setattr(ansible_display, "logger", own)
    log = made("status.yml")
    write("x")
    log.close()
    assert (tmp_path / "own.log").read_text() == "x\n"
    assert lines(tmp_path / ".state" / ("status-%s.log" % STAMP)) == ["x"]
