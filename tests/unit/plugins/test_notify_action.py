"""The action plugin mxcluster_notify, with real programs."""

import json
import sys

import pytest

from mxcluster.node import processes
from plugins.action import mxcluster_notify
from tests import ansible_modules
from tests.waiting import until

VERDICT = {
    "ok": False,
    "job": "one",
    "kv": "dist_sync",
    "accuracy": None,
    "samples_per_s": None,
    "seconds": 1.0,
    "exit_codes": {},
    "first_failure": None,
    "left": {},
    "warnings": ["{{ 1 + 1 }} $(touch x) \u00e9"] * 5000,  # more than a pipe holds
    "files": 0,
    "nodes": {},
}


@pytest.fixture
def warnings(monkeypatch):
    found = []
    monkeypatch.setattr(
        mxcluster_notify.Display, "warning", lambda self, text, **more: found.append(text)
    )
    return found


def notify(*words, check=False):
    answer = ansible_modules.carry_out(
        mxcluster_notify, check, words=[*map(str, words)], verdict=VERDICT
    )
    assert not answer.get("failed"), answer


def test_the_program_gets_the_verdict_and_its_words_without_a_shell(tmp_path, warnings):
    save = "import sys; open(sys.argv[1], 'w').write(sys.stdin.read() + sys.argv[2])"
    notify(sys.executable, "-c", save, tmp_path / "got", "$HOME; `id`")
    text = (tmp_path / "got").read_text()
    assert text.endswith("$HOME; `id`") and json.loads(text[: -len("$HOME; `id`")]) == VERDICT
    assert warnings == []


def test_a_program_need_not_read(warnings):
    notify("true")
    assert warnings == []


def test_a_program_that_fails_is_a_warning(warnings):
    notify("sh", "-c", "echo first; printf 'no\\033[2Jroute' >&2; exit 3")
    assert warnings == ["notify_command: sh exited with status 3: noroute"]
    notify("/nowhere/at/all")
    assert warnings[1].startswith("notify_command: /nowhere/at/all did not start: ")


@pytest.mark.slow
def test_a_program_that_hangs_is_killed_with_its_children():
    command = ["sh", "-c", "sleep 600 & echo $!; wait"]
    found, child = mxcluster_notify.problem(command, b"{}", timeout=2).rsplit(": ", 1)
    assert found == "was killed, because it had not ended after 2 s"
    until(lambda: getattr(processes.entry(int(child)), "state", "Z") == "Z")


def test_check_mode_runs_no_program(tmp_path, warnings):
    notify("touch", tmp_path / "there", check=True)
    assert not (tmp_path / "there").exists() and warnings == []
