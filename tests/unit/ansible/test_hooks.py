"""The hooks of a site are checked on the controller before a job starts."""

import pytest

from mxcluster.ansible import attempts
from mxcluster.ansible.hooks import hooks as checked
from mxcluster.errors import BadInput
from mxcluster.model.hooks import GivenHooks, Hooks

TASKS = "- name: Say so\n  ansible.builtin.debug:\n    msg: '{{ so }}'\n"


def hooks(given, cwd):
    return checked(GivenHooks.decode(given), cwd)


@pytest.fixture
def site(tmp_path):
    (tmp_path / "tasks.yml").write_text(TASKS)
    (tmp_path / "play.yml").write_text("- hosts: all\n  tasks: []\n")
    (tmp_path / "torn.yml").write_text("- name: [\n")
    (tmp_path / "words.yml").write_text("hello\n")
    (tmp_path / "empty.yml").write_text("")
    (tmp_path / "tell").write_text("#!/bin/sh\n")
    (tmp_path / "tell").chmod(0o755)
    return tmp_path


def test_relative_paths_begin_at_the_folder_of_the_user(site):
    found = hooks(
        {
            "notify_command": ["./tell", "a b"],
            "tasks_before": "tasks.yml",
            "tasks_after": ["tasks.yml"],
        },
        str(site),
    )
    path = str(site / "tasks.yml")
    assert found == Hooks(notify=[str(site / "tell"), "a b"], before=[path], after=[path])
    assert hooks({"notify_command": '["sh", "-c", "cat"]'}, str(site)).notify[1:] == ["-c", "cat"]
    assert hooks({}, str(site)) == Hooks()


def test_a_file_in_a_vault_is_taken_unread(site):
    """The check has no password. A value in a vault needs none for the check, either."""
    secret = "!vault |\n      $ANSIBLE_VAULT;1.1;AES256\n      6162\n"
    (site / "tasks.yml").write_text(TASKS.replace("'{{ so }}'\n", secret))
    (site / "all.yml").write_text("$ANSIBLE_VAULT;1.1;AES256\n6162\n")
    assert len(hooks({"tasks_before": "tasks.yml,all.yml"}, str(site)).before) == 2


@pytest.mark.parametrize(
    "given, words",
    [
        ({"notify_command": "tell me"}, "a list of words"),
        ({"notify_command": ["no-such-program"]}, "there is no program 'no-such-program'"),
        ({"notify_command": ["./tasks.yml"]}, "there is no program './tasks.yml'"),
        ({"notify_command": [1]}, "a list of words"),
        ({"tasks_before": "none.yml"}, "none.yml is no file on this controller"),
        ({"tasks_before": {"a": 1}}, "paths on the controller"),
        ({"tasks_after": "play.yml"}, "play.yml is a playbook"),
        ({"tasks_after": "torn.yml"}, "torn.yml cannot be read"),
        ({"tasks_after": "words.yml"}, "words.yml has no list of tasks"),
        ({"tasks_after": "empty.yml"}, "empty.yml has no list of tasks"),
    ],
)
def test_a_wrong_hook_is_refused_by_name(site, given, words):
    with pytest.raises(BadInput) as refusal:
        hooks(given, str(site))
    (name,) = given
    assert str(refusal.value).startswith(name) and words in str(refusal.value)


def test_all_wrong_hooks_are_named_at_once(site):
    with pytest.raises(BadInput) as refusal:
        hooks({"notify_command": ["nobody"], "tasks_before": "a.yml,b.yml"}, str(site))
    assert [line.split(":")[0] for line in str(refusal.value).splitlines()] == [
        "notify_command",
        "tasks_before",
        "tasks_before",
    ]


def test_a_later_attempt_repeats_no_hook(site, monkeypatch):
    given = {"notify_command": ["sh"], "tasks_before": "tasks.yml", "tasks_after": "tasks.yml"}
    monkeypatch.setenv(attempts.CHILD, "1")
    assert hooks(given, str(site)) == Hooks()
    monkeypatch.setenv(attempts.CHILD, "compare.yml")  # each job of a sweep is a job of its own
    assert hooks(given, str(site)).before
