"""The callback under real playbooks, with a module that answers as a node does."""
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

PLUGINS = Path(__file__).parents[4] / "plugins" / "callback"

CONFIG = """
[defaults]
inventory = hosts
library = library
callback_plugins = %s
stdout_callback = mxcluster
gathering = explicit
home = home
localhost_warning = False
"""

# Answers as mxcluster_node does with command=wait: the job ends at the third poll.
WAIT = """#!/usr/bin/python
import os, time
from ansible.module_utils.basic import AnsibleModule
module = AnsibleModule(dict(host=dict(), seconds=dict(type="float")))
host = module.params["host"]
polls = len(open(host).read()) + 1 if os.path.exists(host) else 1
open(host, "a").write("x")
time.sleep(module.params["seconds"])
name = "worker-" + host[-1]
batch = {"epoch": polls, "step": 10 * polls, "samples_per_s": 100.0, "loss": 0.5, "done": polls / 4.0,
         "time": 10.0 + polls}
status = {"host": host, "kv": "dist_gsync", "started": 1.0, "ended": None, "reason": None, "first_failure": None,
          "state": "running",
          "processes": [{"name": name, "role": "worker", "index": int(host[-1]), "state": "running"}]}
module.exit_json(status=status, ended=polls >= 3,
                 progress={name: {"start": {"epochs": 9, "time": 10.0}, "batch": batch}})
"""

VERDICT = """#!/usr/bin/python
from ansible.module_utils.basic import AnsibleModule
AnsibleModule({}).exit_json(changed=True, verdict={"ok": False},
                            mxcluster_verdict_text=["FAILED    job j", "report    r.html"])
"""

PLAY = """
- name: A job
  hosts: all
  tasks:
    - name: Do something
      ansible.builtin.command: "true"
    - name: Skip something
      ansible.builtin.debug: {msg: "not for everybody"}
      when: inventory_hostname == 'node1'
    - name: Retry something else
      ansible.builtin.command: "false"
      register: other
      until: other is success
      retries: 1
      delay: 0
      ignore_errors: true # it has to fail, so that there is a retry to show; the play goes on to the wait
      run_once: true
    - name: Wait for the job
      fake_wait: {host: "{{ inventory_hostname }}", seconds: "{{ seconds }}"}
      register: job
      until: job.ended
      retries: 100
      delay: 0
    - name: Judge
      fake_verdict:
      run_once: true
    - name: Fail as the job did
      ansible.builtin.fail: {msg: "worker 1 on node1: killed\\n  its last line"}
      when: inventory_hostname == 'node1'
"""


@pytest.fixture
def project(tmp_path):
    """A folder with the play above."""
    (tmp_path / "library").mkdir()
    files = {"ansible.cfg": CONFIG % PLUGINS, "play.yml": PLAY,
             "library/fake_wait.py": WAIT, "library/fake_verdict.py": VERDICT,
             "hosts": "node[0:1] ansible_connection=local ansible_python_interpreter=%s\n" % sys.executable}
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    return tmp_path


def start(project, *arguments, **kwargs):
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith("ANSIBLE_") and name != "COLUMNS"}
    environment.update(TERM="xterm", LC_ALL="C.UTF-8", ANSIBLE_NOCOLOR="1")
    command = [sys.executable, "-m", "ansible", "playbook", "play.yml"] + list(arguments)
    return subprocess.Popen(command, cwd=str(project), env=environment, stdin=subprocess.DEVNULL,
                            stderr=subprocess.STDOUT, **kwargs)


def run_piped(project, *arguments):
    process = start(project, *arguments, stdout=subprocess.PIPE, text=True)
    return process.communicate(timeout=60)[0], process.returncode


def run_on_terminal(project, columns, *arguments):
    """The raw output on a pseudo-terminal of that width."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = start(project, *arguments, stdout=slave)
    os.close(slave)
    pieces = []
    try:
        while True:
            pieces.append(os.read(master, 65536))
    except OSError:  # the other end is closed
        pass
    os.close(master)
    assert process.wait(timeout=60) == 2
    return b"".join(pieces).decode("utf-8").replace("\r\n", "\n")


def test_into_a_pipe(project):
    begun = time.monotonic()
    output, code = run_piped(project, "-e", "seconds=0")
    seconds = time.monotonic() - begun
    assert code == 2, output
    for lines in ("TASK [Do something]\nchanged: [", "ok: [node1] => {\n    \"msg\": \"not for everybody\"\n}\n",
                  "skipping: [node0]\n", "FAILED - RETRYING: [node0]: Retry something else (1 retries left).\n",
                  "gsync  epoch 4/9  step 30  200 samples/s (slowest worker-0 100)  loss 0.5  ETA 0:01\n"
                  "TASK [Judge]\nchanged: [node0]\n",
                  "fatal: [node1]: FAILED!\n  worker 1 on node1: killed\n    its last line\n"):
        assert lines in output, output
    waiting = output.split("TASK [Wait for the job]\n")[1].split("TASK [Judge]")[0].splitlines()
    assert len(waiting) <= 1 + seconds // 5, "the last line, and one every five seconds; %.1f s: %s" % (seconds, output)
    assert sorted(re.search(r"changed: \[(node.)\], \[(node.)\]\n", output).groups()) == ["node0", "node1"], output
    assert output.count("RETRYING") == 1 and "Warning" not in output.title().replace("[Warning]: No", ""), output
    assert output.split("PLAY RECAP", 1)[1].rstrip().endswith("\nFAILED    job j\nreport    r.html"), output
    assert "\r" not in output and "invocation" not in output


def test_on_a_terminal_one_line_is_rewritten(project):
    output = run_on_terminal(project, 60, "-e", "seconds=0.1")
    waiting = output.split("TASK [Wait for the job]\n")[1].split("TASK [Judge]")[0]
    assert waiting.count("\n") == 1 and waiting.endswith("\x1b[K\n"), waiting
    versions = [version.replace("\x1b[K", "").strip() for version in waiting.split("\r") if version]
    assert len(versions) == 6, versions
    assert versions[0] == "starting: 1 of 2 nodes have answered"
    assert versions[-1] == "gsync  epoch 4/9  step 30  200 samples/s  ETA 0:01"
    assert all(len(version) < 60 for version in versions)
    assert output.rstrip().endswith("\nFAILED    job j\nreport    r.html"), output


def test_verbose_output_is_that_of_the_default_callback(project):
    output, _ = run_piped(project, "-e", "seconds=0", "-v")
    assert re.search(r"\nTASK \[Do something\] \*+\nchanged: \[node.\] => {", output), output
    assert "skipping: [node0] => {" in output, output
    assert "  worker 1 on node1: killed\n    its last line\n  => {" in output, output
    assert "RETRYING: [node0]: Wait" not in output, output


def test_without_the_package_jobs_have_no_live_line_and_all_else_works(project, monkeypatch):
    (project / "mxcluster.py").write_text("raise ImportError")
    monkeypatch.setenv("PYTHONPATH", str(project))
    output, code = run_piped(project, "-e", "seconds=0")
    assert code == 2 and "FAILED - RETRYING: [node0]: Wait for the job" in output, output
    assert output.rstrip().endswith("\nFAILED    job j\nreport    r.html"), output
