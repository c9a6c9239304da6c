"""The recorded command line has the values of knobs, and no other value that may be secret."""

import pytest

from mxcluster.ansible import command_words

SECRET = "hush-5e1f"


def shown(*words):
    return command_words.shown(["/venv/bin/ansible-playbook", "train.yml", *words], ["train.yml"])


@pytest.mark.parametrize(
    "words",
    [
        ["-e", "kv=local token=" + SECRET],
        ["-ekv=local token=" + SECRET],
        ["-e", '{"kv": "local", "token": "%s"}' % SECRET],
        ["-e", '{"secret_env": {"TOKEN": "%s"}}' % SECRET],
        ["-e", "train_job_secret_env=" + SECRET],
        ["-e", "notify_command=" + SECRET],
        ["-e", "ansible_become_password=" + SECRET],
        ["-e", "ansible_ssh_pass=" + SECRET],
        ["--extra-vars=token=" + SECRET],
        ["--extra-v", "token=" + SECRET],
        ["--e", "token=" + SECRET],
        ["-e", SECRET],
        ["-e", "[%s]" % SECRET],
        ["-e", "{%s" % SECRET],
        ["-ve", "token=" + SECRET],
        ["--vault-password-file", SECRET],
        ["--vault-id=" + SECRET],
        ["--ssh-extra-args=-o ProxyCommand='sshpass -p %s'" % SECRET],
        ["-u", SECRET],
        ["-u" + SECRET],
        ["--private-key", SECRET],
        [SECRET],
    ],
)
def test_a_value_that_is_no_knob_is_replaced(words):
    found = shown(*words)
    assert SECRET not in " ".join(found) and any("***" in word for word in found), found


def test_knobs_playbooks_and_harmless_options_stay():
    words = ["-i", "inventory/site", "-vv", "--limit=node1", "--check", "-e", "@my/knobs.yml"]
    words += ["-e", "kv=dist_sync train_job_lr=0.1 sweep_seeds=3", "--tags", "a,b", "--diff"]
    words += ["-e", '{"script_args": ["--lr", "0.1"]}']
    assert shown(*words) == ["ansible-playbook", "train.yml", *words]
