"""Messages about a node without a connection, from the output of ssh (OpenSSH 7.4 to 9.2)."""

import os
import pwd
import subprocess
import sys
from unittest import mock

import pytest

from mxcluster.ansible import contact, node_task
from mxcluster.ansible.contact import NoLogin, Output
from mxcluster.ansible.node_arguments import Connection
from mxcluster.errors import BadInput
from plugins.action import mxcluster_preflight as plugin

NODE = contact.Node("node2", "10.0.0.2", 22, "joe")
VIA, FAILED = "Failed to connect to the host via ssh: ", "Host key verification failed."


@pytest.mark.parametrize(
    "port, output, words",
    [
        (
            2222,
            "@@@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @@@\n" + FAILED,
            ["-R '[10.0.0.2]:2222'"],
        ),
        (
            22,
            "No ED25519 host key is known for 10.0.0.2 and you have requested strict checking.\n"
            + FAILED,
            ["ssh host key unknown", "ssh-keyscan -p 22 10.0.0.2", "node_host_key"],
        ),
        (22, "", ["no answer"]),
    ],
)
def test_an_ssh_error_gets_a_cause_and_a_remedy(port, output, words):
    message = contact.explain(VIA + output, NODE._replace(port=port))
    assert message.startswith("node2 (10.0.0.2, port %d): " % port)
    assert not [part for part in words if part not in message], message


def connect(monkeypatch, answer, transport="ssh", **arguments):
    """Return the action plugin's result when the shell's answer is `answer(command)`."""
    arguments["command"] = "connection"
    task = mock.Mock(args=arguments, async_val=0, check_mode=False)
    action = plugin.ActionModule(task, mock.Mock(transport=transport), None, None, None, None)
    action._low_level_execute_command = lambda command, in_data=None: answer(command)
    variables = {"inventory_hostname": "node2", "ansible_host": "10.0.0.2"}
    return action.run(task_vars=dict(variables, ansible_python_interpreter=sys.executable))


def without_login(command):
    """Return the output of an account whose shell runs no command."""
    return {"rc": 0, "stdout": "This account is not available.\r\n", "stderr": ""}


def noisy(command):
    """Return the output over ssh -tt of a shell that repeats its commands, with foreign lines."""
    output = subprocess.run(
        ["sh", "-xc", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ).stdout.decode()
    return {
        "rc": 0,
        "stderr": "",
        "stdout": "bash: warning: setlocale: LC_ALL: cannot change locale (C.UTF-8)\r\n"
        "sudo: unable to resolve host node2\r\nWelcome!"
        + output.replace("\n", "\r\n")
        + "Shared connection closed.\r\n",
    }


def test_foreign_output_is_not_taken_for_the_answer(monkeypatch):
    me = pwd.getpwuid(os.geteuid()).pw_name
    found = {"user": me, "uid": str(os.geteuid()), "python": sys.executable, "over_ssh": True}
    assert connect(monkeypatch, noisy, users=[me]) == dict(found, changed=False)
    refused = connect(monkeypatch, noisy, users=["somebody-else"])
    words = "node2: Ansible runs as %s on this node, but this playbook needs somebody-else" % me
    assert refused["failed"] and refused["msg"].startswith(words)


class Templar:
    """Replace Ansible's templar."""

    VALUES = {"{{ own_host }}": "10.9.9.9", "{{ own_port }}": "2222", "{{ own }}": "python3"}
    template = VALUES.__getitem__


def login_with(variables, answer):
    """Return the login on a node with these host variables."""
    action = object.__new__(plugin.ActionModule)
    action._connection, action._templar = mock.Mock(transport="ssh"), Templar()
    action._low_level_execute_command = lambda command, in_data=None: answer(command)
    return action.check_connection(
        Connection(users=[], trainer=None), dict({"inventory_hostname": "node2"}, **variables)
    )[0]


def test_templates_in_the_variables_of_a_connection_are_evaluated():
    def no_answer(command):
        raise node_task.AnsibleConnectionFailure(
            VIA + "No ED25519 host key is known for x\nHost key verification failed."
        )

    with pytest.raises(NoLogin, match="ssh-keyscan -p 2222 10.9.9.9"):
        login_with({"ansible_host": "{{ own_host }}", "ansible_port": "{{ own_port }}"}, no_answer)
    with pytest.raises(BadInput, match="node2: ansible_port='ssh' is refused"):
        login_with({"ansible_port": "ssh"}, no_answer)


@pytest.mark.parametrize(
    "interpreter, pythons",
    [
        ("{{ own }}", "for p in python3; do"),
        ("python3.8", "for p in python3.8; do"),
        ("auto_silent", "for p in python3 python3.13"),
        (None, "for p in python3 python3.13"),
    ],
)
def test_the_named_python_of_a_node_is_used(interpreter, pythons):
    """A program name and a template once meant any Python of the node."""
    commands = []

    def answer(command):
        commands.append(command)
        return {"rc": 0, "stdout": "", "stderr": ""}

    with pytest.raises(NoLogin):
        login_with({"ansible_python_interpreter": interpreter}, answer)
    assert pythons in commands[0], commands


def test_a_node_without_the_named_python_is_refused():
    with pytest.raises(NoLogin, match=r"\(looked for python3.99\)"):
        login_with({"ansible_python_interpreter": "python3.99"}, noisy)


def test_a_node_without_python_or_a_shell_fails(monkeypatch):
    bare = connect(monkeypatch, lambda said: noisy(said.replace(sys.executable, "/no/python")))
    assert bare["failed"] and "the node has no Python" in bare["msg"], bare
    mute = connect(monkeypatch, without_login)
    assert mute["failed"] and "not available" in mute["msg"] and "set ansible_user" in mute["msg"]


@pytest.mark.parametrize(
    "stderr, words",
    [
        ("sudo: sorry, you must have a tty to run sudo", "add the line `Defaults:joe !requiretty`"),
        ("noise\r\nsudo: a password is required\r\n", "let joe use sudo without a password"),
        ("sudo: command not found", "instead of the user's name"),
    ],
)
def test_a_refusal_of_sudo_has_a_remedy(stderr, words):
    message = contact.no_shell(NODE, Output(rc=1, stdout="", stderr=stderr))
    assert message.startswith("node2 (10.0.0.2): ") and words in message, message


def test_a_missing_password_of_sudo_names_the_node():
    """Ansible itself raises this error, before the command runs."""

    def no_password(command):
        raise node_task.AnsibleError("Missing sudo password")

    with pytest.raises(NoLogin, match=r"^node2 \(node2\): sudo on the node asks for"):
        login_with({"ansible_user": "joe"}, no_password)


@pytest.mark.parametrize("pipelined", [True, False])
@pytest.mark.parametrize("program, stdin", [("", None), ("cat", b"{}")])
def test_the_check_runs_as_a_module_does(monkeypatch, pipelined, program, stdin):
    """With data on stdin, for which Ansible's ssh asks no terminal.

    Without pipelining the modules run in a terminal, too.
    """
    sent = []

    def answer(command, in_data=None):
        sent.append(in_data)
        return {"rc": 0, "stdout": "", "stderr": ""}

    action = object.__new__(plugin.ActionModule)
    action._connection, action._templar = mock.Mock(transport="ssh"), Templar()
    action._low_level_execute_command = answer
    monkeypatch.setattr(action, "_is_pipelining_enabled", lambda *_: pipelined)
    with pytest.raises(NoLogin):
        action.check_connection(
            Connection(users=[], trainer=None), {"inventory_hostname": "node2"}, program, stdin
        )
    assert sent == ([stdin or b"\n"] if pipelined else [None]), sent


def test_a_lost_node_that_is_not_required_is_marked_lost(monkeypatch):
    lost = connect(monkeypatch, without_login, required=False)
    assert not lost.get("failed") and "not available" in lost["lost"]["why"], lost
    assert lost["lost"]["since"] > 1e9, lost


@pytest.mark.parametrize(
    "version, oldest, words",
    [
        ("Python 3.6.8", (3, 8), "node2: %s is Python 3.6, and the modules of this ansible-core"),
        ("Python 3.10.1", (3, 9), ""),
    ],
)
def test_a_python_too_old_for_the_modules_is_refused(monkeypatch, tmp_path, version, oldest, words):
    """Only nodes on which modules will run are refused, and only under a newer ansible-core."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho '%s' >&2\n" % version)
    python.chmod(0o755)
    monkeypatch.setattr(node_task, "oldest_python", lambda core: oldest)
    monkeypatch.setattr(
        plugin.ActionModule, "_pythons_of_modules", lambda self, task_vars: [str(python)]
    )
    result = connect(monkeypatch, noisy, modules=True)
    assert bool(result.get("failed")) == bool(words), result
    assert not words or (words % python if "%s" in words else words) in result["msg"], result
    assert "failed" not in connect(monkeypatch, noisy, modules=False)


def test_a_node_without_a_python_for_the_modules_is_refused(monkeypatch):
    monkeypatch.setattr(node_task, "oldest_python", lambda core: (3, 9))
    monkeypatch.setattr(
        plugin.ActionModule, "_pythons_of_modules", lambda self, task_vars: ["/no/python3"]
    )
    result = connect(monkeypatch, noisy, modules=True)
    assert (
        result["failed"]
        and "node2: the node has none of the Pythons that Ansible looks for, and" in result["msg"]
    ), result


@pytest.mark.parametrize(
    "trainer, uid, transport, words",
    [
        ("", "0", "ssh", "so root would train"),
        ("", "0", "local", ""),
        ("mxcluster", "0", "ssh", ""),
        ("root", "1000", "local", "mxcluster_user is root"),
    ],
)
def test_root_trains_on_the_local_machine_only(monkeypatch, trainer, uid, transport, words):
    def answer(command):
        marked = "mxcluster-user=toor\nmxcluster-uid=%s\nmxcluster-python=/p\nmxcluster-end=\n"
        return {"rc": 0, "stderr": "", "stdout": marked % uid}

    result = connect(monkeypatch, answer, transport, trainer=trainer)
    assert words in result.get("msg", "") and bool(result.get("failed")) == bool(words), result


def test_output_after_the_answer_is_ignored():
    """The output of a later program may contain names that other users chose."""
    answer = "mxcluster-user=toor\nmxcluster-uid=0\nmxcluster-python=/p\nmxcluster-end=\n%s"
    found = contact.marked(answer % 'mxcluster-uid=5)"}\nmxcluster-user=joe\n')
    assert found == {"user": "toor", "uid": "0", "python": "/p"}
    assert contact.marked("Welcome!\nnot mxcluster-user=joe\n" + answer % "")["user"] == "toor"
    assert contact.marked("mxcluster-user=toor\nmxcluster-uid=0\n")["user"] == "", "cut off"
