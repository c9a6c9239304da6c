"""What is said of a node that cannot be talked to, from the words of ssh (OpenSSH 7.4 to 9.2)."""
import os
import pwd
import subprocess
import sys
from unittest import mock

import pytest

from mxcluster import contact
from plugins.action import mxcluster_contact as plugin

VIA = "Failed to connect to the host via ssh: "


@pytest.mark.parametrize("port, said, told", [
    (22, "@@@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @@@\nOffending ED25519 key in /home/me/.ssh/known_hosts:7\n"
     "Host key verification failed.", ["/home/me/.ssh/known_hosts:7", "`ssh-keygen -R 10.0.0.2`", "installed anew"]),
    (2222, "@@@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @@@\nHost key verification failed.", ["-R '[10.0.0.2]:2222'"]),
    (22, "No ED25519 host key is known for 10.0.0.2 and you have requested strict checking.\nHost key verification failed.",
     ["not known here", "ssh-keyscan -p 22 10.0.0.2", "node_host_key"]),
    (22, "joe@10.0.0.2: Permission denied (publickey,password).", ["does not let joe in", "ansible_user", "--ask-pass"]),
    (22, "ssh: connect to host 10.0.0.2 port 22: Connection refused", ["cannot be reached", "Connection refused"]),
    (22, "ssh: Could not resolve hostname nod2: Name or service not known", ["cannot be reached", "ansible_host"]),
    (22, "", ["no answer"])])
def test_a_cause_and_a_cure(port, said, told):
    message = contact.explain(VIA + said, "node2", "10.0.0.2", port, "joe")
    assert message.startswith("node2 (10.0.0.2, port %d): " % port)
    assert not [part for part in told if part not in message], message


def say_hello(monkeypatch, answer, transport="ssh", **arguments):
    """What the action plugin tells when a shell's answer is `answer(command)`."""
    monkeypatch.setattr(plugin.ActionModule, "_low_level_execute_command", lambda self, command, in_data=None: answer(command))
    task = mock.Mock(args=arguments, async_val=0, check_mode=False)
    action = plugin.ActionModule(task, mock.Mock(transport=transport), None, None, None, None)
    return action.run(task_vars={"inventory_hostname": "node2", "ansible_host": "10.0.0.2",
                                 "ansible_python_interpreter": sys.executable})


def noisy(command):
    """What arrives over ssh -tt when a shell repeats its commands, and others speak before and after."""
    said = subprocess.run(["sh", "-xc", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout.decode()
    return {"rc": 0, "stderr": "", "stdout": "bash: warning: setlocale: LC_ALL: cannot change locale (C.UTF-8)\r\n"
            "sudo: unable to resolve host node2\r\nWelcome!" + said.replace("\n", "\r\n") + "Shared connection closed.\r\n"}


def test_noise_is_not_taken_for_the_answer(monkeypatch):
    me = pwd.getpwuid(os.geteuid()).pw_name
    told = say_hello(monkeypatch, noisy, users=[me])
    assert (told.get("user"), told.get("uid"), told.get("python")) == (me, str(os.geteuid()), sys.executable), told
    assert told["over_ssh"]
    refused = say_hello(monkeypatch, noisy, users=["somebody-else"])
    assert refused["failed"] and refused["msg"].startswith("node2: Ansible is %s there, and this takes somebody-else" % me)


def test_a_node_without_a_python_or_a_shell(monkeypatch):
    bare = say_hello(monkeypatch, lambda command: noisy(command.replace(sys.executable, "/no/python")))
    assert bare["failed"] and "there is no Python" in bare["msg"], bare
    mute = say_hello(monkeypatch, lambda command: {"rc": 0, "stdout": "This account is not available.\r\n", "stderr": ""})
    assert mute["failed"] and "not available" in mute["msg"] and "set ansible_user" in mute["msg"]


def test_a_node_that_is_not_required_is_told_as_lost(monkeypatch):
    lost = say_hello(monkeypatch, lambda command: {"rc": 0, "stdout": "This account is not available.\r\n", "stderr": ""},
                     required=False)
    assert not lost.get("failed") and "not available" in lost["lost"]["why"] and lost["lost"]["since"] > 1e9, lost


@pytest.mark.parametrize("trainer, uid, transport, words", [
    ("", "0", "ssh", "so root would train"), ("", "0", "local", ""), ("", "1000", "ssh", ""), ("mxcluster", "0", "ssh", ""),
    ("root", "1000", "local", "mxcluster_user is root")])
def test_nobody_trains_as_root_but_on_his_own_machine(monkeypatch, trainer, uid, transport, words):
    def answer(command):
        said = "mxcluster-user=toor\nmxcluster-uid=%s\nmxcluster-python=/p\nmxcluster-end=\n" % uid
        return {"rc": 0, "stderr": "", "stdout": said}
    told = say_hello(monkeypatch, answer, transport, trainer=trainer)
    assert words in told.get("msg", "") and bool(told.get("failed")) == bool(words), told


def test_what_comes_after_the_answer_is_none_of_it(monkeypatch):
    """A program may follow in the same breath, whose answer holds names that others have chosen."""
    said = "mxcluster-user=toor\nmxcluster-uid=0\nmxcluster-python=/p\nmxcluster-end=\n%s"
    assert contact.heard(said % 'mxcluster-uid=5)"}\nmxcluster-user=joe\n') == {"user": "toor", "uid": "0", "python": "/p"}
    assert contact.heard("Welcome!\nnot mxcluster-user=joe\n" + said % "")["user"] == "toor"
    assert contact.heard("mxcluster-user=toor\nmxcluster-uid=0\n")["user"] == "", "it was cut off"


def test_the_words_around_a_broken_connection_are_not_told():
    said = ('Data could not be sent to remote host "10.0.0.2". Make sure this host can be reached over ssh: ssh: connect to host '
            "10.0.0.2 port 22: Connection refused\r\n")
    assert "cannot be reached (ssh: connect to host 10.0.0.2 port 22: Connection refused)" in contact.explain(
        said, "node2", "10.0.0.2", 22, "joe")
