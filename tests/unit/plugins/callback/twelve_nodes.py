"""A provisioning of twelve nodes with fake roles, for tests of the terminal."""

import fcntl
import os
import pty
import re
import shutil
import subprocess
import sys
import termios
import threading

from tests.unit.plugins.callback import test_mxcluster as compact

CONFIG = compact.CONFIG % "plugins/callback" + "forks = 3\n"
COPIED = ("callback/mxcluster.py", "action/mxcluster_downloads.py")

PROVISION = """
- name: Check the nodes
  hosts: all
  tags: always
  tasks: [{name: Check, ansible.builtin.import_role: {name: checks}}]
- name: Provision the nodes
  hosts: all
  roles: [training_user, mxnet, datasets]
"""

# The tasks run on the controller, because twelve Pythons take long on a busy machine.
ROLES = {
    "checks": """
- name: Check the controller
  mxcluster_preflight:
  run_once: true
- name: Report the reason for the provisioning of the node
  ansible.builtin.debug:
    msg: "needs provisioning: {{ 'new' if inventory_hostname != 'node02' else 'another user' }}"
  when: lookup('env', 'SECOND') == ''
""",
    "training_user": """
- name: Create the user
  ansible.builtin.set_fact: {is_done: true}
  changed_when: lookup('env', 'SECOND') == ''
""",
    "mxnet": """
- name: Build the Python environment with MXNet on the node
  ansible.builtin.set_fact: {is_done: true}
  changed_when: inventory_hostname < 'node10' and lookup('env', 'SECOND') == ''
- name: Check the disk
  ansible.builtin.fail: {msg: "/opt has 40 MB free, and MXNet needs 900 MB: delete files there"}
  when: lookup('env', 'FULL') != '' and inventory_hostname in ['node03', 'node07']
""",
    "datasets": """
- name: Copy the data
  ansible.builtin.set_fact: {is_done: true}
  changed_when: false
""",
}


def written(folder, nodes=12, **files):
    """Write a project with a copy of the callback, and return its folder.

    Args: `files` {path: content} of further files.
    """
    for name in COPIED:
        (folder / "plugins" / name).parent.mkdir(parents=True)
        shutil.copy(str(compact.PLUGINS.parent / name), str(folder / "plugins" / name))
    contents = {
        "ansible.cfg": CONFIG,
        "provision.yml": PROVISION,
        "action/mxcluster_preflight.py": compact.PREFLIGHT,
        "hosts": "node[01:%02d] ansible_connection=local ansible_python_interpreter=%s\n"
        % (nodes, sys.executable),
        **{"roles/%s/tasks/main.yml" % role: tasks for role, tasks in ROLES.items()},
        **files,
    }
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder


def environment(**more):
    """Return the variables of an ansible-playbook without settings of the user."""
    names = [name for name in os.environ if not name.startswith("ANSIBLE_") and name != "COLUMNS"]
    kept = {name: os.environ[name] for name in names}
    return {**kept, "TERM": "xterm", "LC_ALL": "C.UTF-8", **more}


def start(project, *arguments, playbook="provision.yml", env=None, **streams):
    """Start ansible-playbook in a project. Args: `env` variables; `streams` of subprocess."""
    streams = {"stdin": subprocess.DEVNULL, "stderr": subprocess.STDOUT, **streams}
    return subprocess.Popen(
        [sys.executable, "-m", "ansible", "playbook", playbook, *arguments],
        cwd=str(project),
        env=environment(**env or {}),
        **streams,
    )


def run(project, *arguments, **options):
    """Return (output, exit status) of a run into a pipe."""
    process = start(project, *arguments, stdout=subprocess.PIPE, text=True, **options)
    return process.communicate(timeout=900)[0], process.returncode


def control_the_terminal():
    """Begin a session whose terminal is stdin, so that prompts and Ctrl-C work."""
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class OnTerminal:
    """A run on a terminal of some width. `output` is what it has written so far."""

    def __init__(self, project, columns, *arguments, **options):
        self._master, slave = pty.openpty()
        compact.resize(slave, columns)
        self.columns, self.output = columns, ""
        options.update(stdin=slave, stdout=slave, stderr=slave, preexec_fn=control_the_terminal)
        self.process = start(project, *arguments, **options)
        os.close(slave)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self):
        try:
            while True:
                piece = os.read(self._master, 65536)
                self.output += piece.decode("utf-8", "replace")
        except OSError:  # the other end is closed
            os.close(self._master)

    def answer(self, text):
        """Type a text on the terminal."""
        os.write(self._master, text.encode())

    def end(self):
        """Return (lines that the terminal shows at the end, exit status)."""
        status = self.process.wait(timeout=900)
        self._reader.join()
        screen = compact.Screen(self.columns)
        # Ansible's pause begins sequences that it does not end: a terminal drops them.
        screen.write(
            re.sub(
                r"\x1b\[(?:[0-9;]*m|\?\d+[hl]|(?=[\r\x1b]))", "", self.output.replace("\r\n", "\n")
            )
        )
        return [line.rstrip() for line in screen.lines], status


def without_times(text):
    """Return a text with 0:00 for each duration, and without stars and blanks of Ansible."""
    return re.sub(r"\d+:\d\d\b", "0:00", re.sub(r" \*{3,}| +$", "", text, flags=re.MULTILINE))
