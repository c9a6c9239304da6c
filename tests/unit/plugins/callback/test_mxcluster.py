"""Tests of the callback in real playbooks. A task simulates the answers of a node."""

import codecs
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PLUGINS = Path(__file__).parents[4] / "plugins" / "callback"

CONFIG = """
[defaults]
inventory = hosts
library = library
action_plugins = action:plugins/action
callback_plugins = %s
stdout_callback = mxcluster
gathering = explicit
home = home
localhost_warning = False
"""

# A module would start a Python for each node. Ansible adds `invocation` to the result of a module.
ACTION = """
import os, time
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        if self._task.check_mode and not IN_CHECK_MODE:
            return {"skipped": True}
        invocation = {"module_args": self._task.args}
        return dict(answer(**self._task.args), invocation=invocation)


"""

# Answers as mxcluster_node with command=wait: the job ends at the third poll.
WAIT = (
    ACTION
    + """
IN_CHECK_MODE = False


def answer(host, seconds, command="wait", evil=None):
    polls = len(open(host).read()) + 1 if os.path.exists(host) else 1
    open(host, "a").write("x")
    while polls > 1 and os.path.exists("gate"):  # the test opens it when it has seen an answer
        time.sleep(0.01)
    time.sleep(float(seconds))
    name = "worker-" + host[-1]
    batch = {"epoch": polls, "step": 10 * polls, "samples_per_s": 100.0, "loss": 0.5,
             "done": polls / 4.0, "time": 10.0 + polls}
    status = {"job": "j", "host": host, "agent": {"pid": 1, "start_time": 1},
              "kv": evil or "dist_gsync", "started": 1.0, "ended": None,
              "reason": None, "first_failure": None, "state": "running",
              "processes": [{"name": name, "role": "worker", "index": int(host[-1]),
                             "state": "running"}]}
    if evil and polls >= 3:
        status["first_failure"] = dict(name=name, host=host, role="worker", index=0, reason=evil,
                                       time=1.0)
    return dict(changed=False, status=status, ended=polls >= 3,
                progress={name: {"start": {"epochs": 9, "time": 10.0}, "batch": batch}})
"""
)

# A node may put all of this into a text: a title, clear, cursor up (C1), right to left, a line
# break, invisible.
EVIL = "\x1b]0;owned\x07\x1b[2Jover\x9b3A\u202eKO\rhere\u2028\nFAILED    job forged\x1b[8m"

EVIL_MODULE = (
    """#!/usr/bin/python
# -*- coding: utf-8 -*-
from ansible.module_utils.basic import AnsibleModule
module = AnsibleModule(dict(fail=dict(type="bool")), supports_check_mode=True)
evil = %r
answer = dict(changed=True, msg=evil, mxcluster_verdict_text=["OK        forged"],
              mxcluster_exit_status=0, warnings=[evil], deprecations=[dict(msg=evil)],
              nested={evil: [evil]},
              diff=dict(before=evil, after="x"))
if module.params["fail"]:
    module.fail_json(cmd=[evil], rc=1, stderr=evil, **answer)
module.exit_json(**answer)
"""
    % EVIL
)

EVIL_PLAY = """
- name: What a node says
  hosts: node0
  tasks:
    - name: Succeed
      fake_evil: {}
      register: said
    - name: Show
      ansible.builtin.debug: {var: said}
    - name: Fail for each
      fake_evil: {fail: true}
      loop: ["{{ said.msg }}"]
      ignore_errors: true # the next tasks must run
    - name: Retry
      fake_evil: {fail: true}
      register: other
      until: other is success
      retries: 1
      delay: 0
      ignore_errors: true # the next tasks must run
    - name: Wait for the job
      fake_wait: {host: node0, seconds: 0, evil: "{{ said.msg }}"}
      register: job
      until: job.ended
      retries: 9
      delay: 0
    - name: Judge
      mxcluster_verify: {evil: "{{ said.msg }}"}
    - name: Fail
      fake_evil: {fail: true}
"""

VERDICT = (
    ACTION
    + """
IN_CHECK_MODE = False


def answer(evil=None):
    lines = [evil] if evil else ["FAILED    job j", "report    r.html"]
    return dict(changed=True, verdict={"ok": False}, mxcluster_verdict_text=lines)
"""
)

PREFLIGHT = (
    ACTION
    + """
IN_CHECK_MODE = True


def answer():
    return dict(changed=False, state_dir=os.path.join(os.getcwd(), "state"))
"""
)

PLAY = """
- name: A job
  hosts: all
  tasks:
    - name: Do something
      ansible.builtin.set_fact: {is_done: true}
      changed_when: true
    - name: Skip something
      ansible.builtin.debug: {msg: "not for everybody"}
      when: inventory_hostname == 'node1'
    - name: Retry something else
      ansible.builtin.fail: {msg: "not yet"}
      register: other
      until: other is success
      retries: 1
      delay: 0
      ignore_errors: true # the task must fail, so that a retry is shown
      run_once: true
    - name: Wait for the job
      fake_wait: {host: "{{ inventory_hostname }}", seconds: "{{ seconds }}"}
      register: job
      until: job.ended
      retries: 100
      delay: 0
    - name: Judge
      mxcluster_verify:
      run_once: true
    - name: Fail as the job did
      ansible.builtin.fail: {msg: "worker 1 on node1: killed\\n  its last line"}
      when: inventory_hostname == 'node1'
"""


@pytest.fixture
def project(tmp_path):
    """Return a folder with the play above."""
    return written(tmp_path)


def written(folder):
    """Write the play, its modules and its inventory into a folder, and return the folder."""
    files = {
        "ansible.cfg": CONFIG % PLUGINS,
        "play.yml": PLAY,
        "action/fake_wait.py": WAIT,
        "action/mxcluster_verify.py": VERDICT,
        "library/fake_evil.py": EVIL_MODULE,
        "hosts": "node[0:1] ansible_connection=local ansible_python_interpreter=%s\n"
        % sys.executable,
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)
    return folder


def start(project, *arguments, **kwargs):
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("ANSIBLE_") and name != "COLUMNS"
    }
    environment.update(TERM="xterm", LC_ALL="C.UTF-8", ANSIBLE_NOCOLOR="1")
    command = [sys.executable, "-m", "ansible", "playbook", "play.yml"] + list(arguments)
    return subprocess.Popen(
        command,
        cwd=str(project),
        env=environment,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
        **kwargs,
    )


def run_piped(project, *arguments):
    process = start(project, *arguments, stdout=subprocess.PIPE, text=True)
    return process.communicate(timeout=300)[0], process.returncode


def resize(terminal, columns):
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))


def run_on_terminal(project, columns, *arguments, heard=lambda terminal, output: None):
    """Return the raw output on a pseudo-terminal of this width; `heard` gets each piece."""
    master, slave = pty.openpty()
    resize(slave, columns)
    settings = termios.tcgetattr(slave)
    settings[1] &= ~termios.OPOST  # "\n" stays alone: "\r\n" could come in two pieces
    termios.tcsetattr(slave, termios.TCSANOW, settings)
    process = start(project, *arguments, stdout=slave)
    os.close(slave)
    pieces, decoder = [], codecs.getincrementaldecoder("utf-8")("replace")
    try:
        while True:
            pieces.append(decoder.decode(os.read(master, 65536)))
            heard(master, pieces[-1])
    except OSError:  # the other end is closed
        pass
    os.close(master)
    assert process.wait(timeout=300) == 2, "".join(pieces)
    return "".join(pieces)


class Screen:
    """A simulated terminal that wraps its lines again when its width changes."""

    def __init__(self, columns):
        self.columns, self.lines, self.at = (
            columns,
            [""],
            0,
        )  # the cursor's place in the last line, over all its rows
        self.begun = ""  # a control sequence whose end comes in the next piece

    def write(self, text):
        text, self.begun = re.fullmatch(r"([\s\S]*?)(\x1b(?:\[\d*)?)?", self.begun + text).groups(
            ""
        )
        for command, sign in re.findall(r"(\x1b\[\d*[A-Z])|([\s\S])", text):
            line, row = self.lines[-1], self.at // self.columns * self.columns
            if command.endswith("A"):
                self.at = max(0, self.at - int(command[2:-1]) * self.columns)
            elif command.endswith("J"):
                self.lines[-1] = line[: self.at]
            elif command.endswith("K"):
                self.lines[-1] = line[: self.at] + line[row + self.columns :]
            elif sign == "\r":
                self.at = row
            elif sign == "\n":
                self.lines, self.at = self.lines + [""], 0
            else:
                self.lines[-1], self.at = line[: self.at] + sign + line[self.at + 1 :], self.at + 1


def test_output_into_a_pipe_has_one_line_every_five_seconds(project):
    begun = time.monotonic()
    output, code = run_piped(project, "-e", "seconds=0")
    seconds = time.monotonic() - begun
    assert code == 2, output
    for lines in (
        "TASK [Do something]\nchanged: [",
        'ok: [node1] => {\n    "msg": "not for everybody"\n}\n',
        "skipping: [node0]\n",
        "FAILED - RETRYING: [node0]: Retry something else (1 retries left).\n",
        "gsync  epoch 4/9  step 30  200 samples/s (slowest worker-0 100)  loss 0.5  ETA 0:01\n"
        "TASK [Judge]\nchanged: [node0]\n",
        "fatal: [node1]: FAILED!\n  worker 1 on node1: killed\n    its last line\n",
    ):
        assert lines in output, output
    waiting = output.split("TASK [Wait for the job]\n")[1].split("TASK [Judge]")[0].splitlines()
    assert len(waiting) <= 1 + seconds // 5, (
        "the last line, and one every five seconds; %.1f s: %s" % (seconds, output)
    )
    assert sorted(re.search(r"changed: \[(node.)\], \[(node.)\]\n", output).groups()) == [
        "node0",
        "node1",
    ], output
    assert output.count("RETRYING") == 1 and "Warning" not in output.title().replace(
        "[Warning]: No", ""
    ), output
    assert (
        output.split("PLAY RECAP", 1)[1].rstrip().endswith("\nFAILED    job j\nreport    r.html")
    ), output
    assert "\r" not in output and "invocation" not in output


def test_a_terminal_rewrites_one_line(project):
    output = run_on_terminal(project, 60, "-e", "seconds=0.1")
    waiting = output.split("TASK [Wait for the job]\n")[1].split("TASK [Judge]")[0]
    assert waiting.count("\n") == 1 and waiting.endswith("\x1b[K\n"), waiting
    versions = [version.replace("\x1b[K", "").strip() for version in waiting.split("\r") if version]
    assert len(versions) == 6, versions
    assert versions[0] == "starting: 1 of 2 nodes have answered"
    assert versions[-1] == "gsync  epoch 4/9  step 30  200 samples/s  ETA 0:01"
    assert all(len(version) < 60 for version in versions)
    assert output.rstrip().endswith("\nFAILED    job j\nreport    r.html"), output


def test_a_narrowed_terminal_keeps_no_rest_of_the_line(project):
    screen, gate = Screen(100), project / "gate"
    gate.write_text("")

    def heard(terminal, output):
        screen.write(output)
        if gate.exists() and any("step 10" in line for line in screen.lines):
            screen.columns = 30
            resize(terminal, 30)
            gate.unlink()

    run_on_terminal(project, 100, "-e", "seconds=0", heard=heard)
    begin = screen.lines.index("TASK [Wait for the job]")
    assert screen.lines[begin + 1 : begin + 3] == ["epoch 4/9  200 samples/s", "TASK [Judge]"], (
        screen.lines
    )


@pytest.mark.parametrize("options", [["--diff"], ["--diff", "-v"]], ids=["usual", "verbose"])
def test_control_characters_of_a_node_have_no_effect(project, options):
    (project / "play.yml").write_text(EVIL_PLAY)
    output = run_on_terminal(project, 200, *options)
    ours = re.sub(r"\r|\x1b\[K|\n", "", output)
    assert ours.isprintable(), sorted({sign for sign in ours if not sign.isprintable()})
    live = output.split("TASK [Wait for the job]")[1].split("\n", 1)[1].split("\nTASK [Judge]")[0]
    assert "overKOhere FAILED    job forged  epoch 2/9" in live, live
    assert "\n" not in live.rstrip("\n"), live
    assert "\nFAILED    job" not in output, "a node must not print a line of its own"
    assert "PLAY RECAP" in output and output.rstrip().endswith(
        "\noverKOhere  FAILED    job forged"
    ), output


def test_verbose_output_is_that_of_the_default_callback(project):
    output, _ = run_piped(project, "-e", "seconds=0", "-v")
    assert re.search(r"\nTASK \[Do something\] \*+\nchanged: \[node.\] => {", output), output
    assert "skipping: [node0] => {" in output, output
    assert "  worker 1 on node1: killed\n    its last line\n  => {" in output, output
    assert "RETRYING: [node0]: Wait" not in output, output


def test_without_the_package_only_the_live_line_is_missing(project, monkeypatch):
    (project / "mxcluster.py").write_text("raise ImportError")
    monkeypatch.setenv("PYTHONPATH", str(project))
    output, code = run_piped(project, "-e", "seconds=0")
    assert code == 2 and "FAILED - RETRYING: [node0]: Wait for the job" in output, output
    assert "fatal: [node1]: FAILED!\n  worker 1 on node1: killed\n" in output, output
    assert output.rstrip().endswith("\nFAILED    job j\nreport    r.html"), output
