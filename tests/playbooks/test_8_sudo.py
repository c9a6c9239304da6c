"""The first contact takes the way of the modules, so a sudo that refuses them shows at once.

A stand-in for ssh gives a terminal as OpenSSH does: to -tt only.
"""

import pytest

from tests.playbooks.conftest import role

SSH = """#!/bin/sh
for word; do
  case $word in -tt) terminal=yes ;; -V | -O) exit 0 ;; esac
  last=$word
done
if [ "$terminal" ]; then exec script -qec "$last" /dev/null; fi
exec setsid -w sh -c "$last"
"""
SUDO = """#!/bin/sh
if ! (: < /dev/tty) 2> /dev/null; then
  echo 'sudo: sorry, you must have a tty to run sudo' >&2
  exit 1
fi
"""
REST = """
while [ "$1" != root ]; do shift; done
shift
exec "$@"
"""
CHECK = "Check the connection, the login user and the Python of the node"


@pytest.mark.parametrize("sudo, refused", [(SUDO, True), ("#!/bin/sh", False)])
def test_a_sudo_that_needs_a_terminal_is_refused_at_the_first_contact(
    play, tmp_path, sudo, refused
):
    for name, text in (("ssh", SSH), ("sudo", sudo + REST)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    tasks = role("preflight", "contact.yml")
    results = play(
        tasks + [{"name": "Run a module", "ansible.builtin.ping": {}}],
        ansible_connection="ssh",
        ansible_user="joe",
        ansible_ssh_executable=str(tmp_path / "ssh"),
        ansible_become=True,
        ansible_become_user="root",
        ansible_become_exe=str(tmp_path / "sudo"),
        mxcluster_user="trainer",
        preflight_users=[],
    )
    assert bool(results["refused"]) is refused, results
    if refused:
        assert "sudo on the node needs a terminal" in results["refused"], results
        assert "`Defaults:joe !requiretty`" in results["refused"], results
    else:
        assert results["Run a module"]["ping"] == "pong", results
