"""The host localhost, the controller: its connection, Python and become are stated in one file."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest
import yaml

from tests.often import seldom

PROJECT = pathlib.Path(__file__).resolve().parents[3]
OF_THE_HOST = {"ansible_connection", "ansible_python_interpreter", "ansible_become"}
HOSTS = """
all:
  hosts: {node1: }
  vars:
    ansible_connection: ssh
    ansible_port: 1
    ansible_python_interpreter: /no/python
    ansible_become: true
    ansible_become_exe: /no/sudo
"""
PLAY = """
- hosts: node1
  gather_facts: false
  tasks:
    - ansible.builtin.stat: {path: /}
      delegate_to: localhost
"""


def keys(value):
    """Yield all keys of dicts in `value` with a value: a null states nothing."""
    if isinstance(value, dict):
        yield from (key for key, one in value.items() if one is not None)
        value = list(value.values())
    if isinstance(value, list):
        for entry in value:
            yield from keys(entry)


def test_no_role_or_playbook_states_them_again():
    paths = list(PROJECT.glob("roles/*/*/*.yml")) + list(PROJECT.glob("playbooks/*.yml"))
    assert len(paths) > 100
    found = {
        str(path.relative_to(PROJECT))
        for path in paths
        if OF_THE_HOST & set(keys(yaml.safe_load(path.read_text())))
    }
    assert found == set()


@pytest.mark.slow
@pytest.mark.parametrize(
    "inventory", [seldom(HOSTS), HOSTS.replace("node1: }", "node1: , localhost: }")]
)
def test_they_win_over_the_values_of_an_inventory(tmp_path, inventory):
    (tmp_path / "playbooks").mkdir()
    shutil.copytree(str(PROJECT / "playbooks/host_vars"), str(tmp_path / "playbooks/host_vars"))
    (tmp_path / "hosts.yml").write_text(inventory)
    (tmp_path / "playbooks" / "play.yml").write_text(PLAY)
    (tmp_path / "play.yml").write_text("- import_playbook: playbooks/play.yml\n")
    environment = dict(os.environ, ANSIBLE_HOME=str(tmp_path / "home"), LC_ALL="C.UTF-8")
    # Root becomes root in the tests, which Ansible skips otherwise.
    environment["ANSIBLE_BECOME_ALLOW_SAME_USER"] = "true"
    for play in ("play.yml", "playbooks/play.yml"):
        done = subprocess.run(
            [sys.executable, "-m", "ansible", "playbook", "-i", "hosts.yml", play],
            cwd=str(tmp_path),
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert done.returncode == 0, done.stdout.decode()
