"""The later attempts at a job, as children of a real ansible-playbook. The job is a pretence.

`test_4_checkpoints.py` has real jobs.
"""

import contextlib
import fcntl
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios

import pytest

from mxcluster.node import processes
from tests.often import seldom
from tests.playbooks.conftest import PATIENCE, SOURCE, end, hear_signals
from tests.unit.job.test_restarts import failed, plan_of
from tests.waiting import until

CONFIG = """
[defaults]
inventory = hosts
library = library
action_plugins = action
callback_plugins = %s
stdout_callback = mxcluster
gathering = explicit
home = home
localhost_warning = False
""" % (SOURCE / "plugins" / "callback")
# The first command gives the job its name in `first`; an attempt gets its name in `job_id`.
PLAY = """
- name: A job
  hosts: localhost
  tasks:
    - name: Train
      fake_train: {job: "{{ job_id | default(first) }}"}
      register: trained
      until: trained.ended
      retries: 1000
      delay: 0
    - name: Restart
      mxcluster_restart:
        run_dir: "{{ playbook_dir }}/runs/{{ first }}"
        text: [FAILED    job mine]
        restart:
          text: RESTART   job mine-r1, at once
          delay: "{{ delay | default(0) }}"
          extra: {job_id: mine-r1, max_restarts: 1, restart_delay: 5, without: []}
      register: restarted
      when: job_id is not defined
    - name: End
      fake_end: {job: "{{ job_id | default(first) }}"}
      when: job_id is defined
    - name: Fail as the last attempt
      ansible.builtin.fail: {msg: "the last one failed"}
      when: job_id is not defined and not (restarted.verdict.ok | default(false))
"""
# Answers as mxcluster_node with command=wait; a job trains until the file train-<job> is gone.
TRAIN = """#!/usr/bin/python
import os, time
from ansible.module_utils.basic import AnsibleModule
module = AnsibleModule(dict(job=dict()))
job = module.params["job"]
open("polls-" + job, "a").write("x")
time.sleep(0.1)
batch = {"epoch": 1, "step": os.path.getsize("polls-" + job), "samples_per_s": 100.0, "loss": 0.5,
         "time": time.time()}
status = {"job": job, "host": "localhost", "agent": {"pid": 1, "start_time": 1}, "kv": "dist_gsync",
          "started": 1.0, "ended": None, "reason": None,
          "first_failure": None, "state": "running",
          "processes": [{"name": "worker-0", "role": "worker", "index": 0, "state": "running"}]}
module.exit_json(status=status, ended=not os.path.exists("train-" + job),
                 progress={"worker-0": {"start": {"epochs": 9, "time": 10.0}, "batch": batch}})
"""
# Copies plan and verdict of the attempt into its folder, and fails if the file fail-<job> is there.
END = """#!/usr/bin/python
import os, shutil, time
from ansible.module_utils.basic import AnsibleModule
module = AnsibleModule(dict(job=dict()))
job = module.params["job"]
if os.path.isdir("ready-" + job):
    shutil.copytree("ready-" + job, "runs/" + job)
if os.path.exists("fail-" + job):
    module.fail_json(msg="the job %s has failed" % job)
module.exit_json(changed=True)
"""
OK = {
    "ok": True,
    "kv": "dist_gsync",
    "exit_codes": {"worker-0": 0},
    "accuracy": 0.9,
    "seconds": 5.0,
    "samples_per_s": 100.0,
    "warnings": [],
    "files": 0,
    "first_failure": None,
    "nodes": {"node1": "done", "node2": "done"},
}
FAILED = dict(OK, left={}, **failed(-9))


class Chain:
    """A folder with the play above, and one ansible-playbook that runs it."""

    def __init__(self, folder):
        self.path = folder
        for name in ("library", "action"):
            (folder / name).mkdir()
        shutil.copy(str(SOURCE / "plugins/action/mxcluster_restart.py"), str(folder / "action"))
        files = {
            "ansible.cfg": CONFIG,
            "play.yml": PLAY,
            "library/fake_train.py": TRAIN,
            "library/fake_end.py": END,
            "hosts": "localhost ansible_connection=local ansible_python_interpreter=%s\n"
            % sys.executable,
        }
        for name, content in files.items():
            (folder / name).write_text(content)

    def attempt(self, job, verdict=None, fails=False, trains=False):
        """Say what becomes of an attempt."""
        if verdict:
            ready = self.path / ("ready-" + job)
            ready.mkdir()
            plan = plan_of(
                max_restarts=1 if job == "mine-r1" else 0, restart_delay=0, network="mlp"
            )
            (ready / "plan.json").write_text(json.dumps(dict(plan.encode(), job=job)))
            (ready / "verdict.json").write_text(json.dumps(dict(verdict, job=job)))
        for name, is_set in (("fail-", fails), ("train-", trains)):
            if is_set:
                (self.path / (name + job)).write_text("")

    def start(self, *arguments, **streams):
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")
        }
        environment.update(TERM="xterm", LC_ALL="C.UTF-8")
        environment.pop("COLUMNS", None)
        program = str(pathlib.Path(sys.executable).parent / "ansible-playbook")
        self.process = subprocess.Popen(
            [program, "play.yml", "-e", "first=mine", *arguments],
            cwd=str(self.path),
            env=dict(environment, PYTHONPATH=str(SOURCE / "python")),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=hear_signals,
            **dict({"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}, **streams),
        )
        return self.process

    def run(self, *arguments):
        """Run the play to its end: (exit status, output)."""
        self.start(*arguments)
        output = self.rest()
        return self.process.returncode, output

    def rest(self):
        """Return the rest of the output, after the end of the command."""
        try:
            return self.process.communicate(timeout=PATIENCE)[0].decode()
        except subprocess.TimeoutExpired:
            raise AssertionError("%s\n%s" % (self.left(), end(self.process))) from None

    def read_until(self, words, count=1):
        """Read the output until it has had these words `count` times."""
        seen = b""
        while seen.count(words) < count:
            line = self.process.stdout.readline()
            assert line, seen.decode()
            seen += line

    def until(self, condition):
        until(condition, evidence=lambda: "%s\n%s" % (self.left(), end(self.process)))

    def polls(self, job):
        path = self.path / ("polls-" + job)
        return path.stat().st_size if path.exists() else 0

    def left(self):
        """The processes of the command, its workers and its children: all work in this folder."""
        commands = {}
        for entry in processes.table():
            try:
                path = pathlib.Path("/proc/%d" % entry.pid)
                ended = "State:\tZ" in (path / "status").read_text()
                if os.readlink(str(path / "cwd")) == str(self.path) and not ended:
                    commands[entry.pid] = (path / "cmdline").read_text().replace("\0", " ")
            except OSError:  # it ended meanwhile
                continue
        return commands

    def child(self):
        """The pid of the ansible-playbook of a later attempt. Its forks have the same command."""
        found = [processes.entry(pid) for pid, text in self.left().items() if "job_id" in text]
        pids = {entry.pid for entry in found if entry}
        return next(entry.pid for entry in found if entry and entry.parent not in pids)


@pytest.fixture
def chain(tmp_path):
    made = Chain(tmp_path)
    yield made
    for pid in made.left():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_the_last_attempt_decides_verdict_and_exit_status(chain):
    chain.attempt("mine-r1", FAILED, fails=True)
    chain.attempt("mine-r2", OK)
    code, output = chain.run()
    assert code == 0, output
    found = [
        output.index(words)
        for words in (
            "FAILED    job mine\n",
            "RESTART   job mine-r1, at once\n",
            "the job mine-r1 has failed\n",
            "FAILED    job mine-r1 (dist_gsync)",
            "RESTART   job mine-r2, 2 of 2, from the beginning, in 0 s\n",
        )
    ]
    assert found == sorted(found), output
    assert output.count("PLAY RECAP") == 2, "one for each child, and no stale one at the end"
    assert output.split("TASK [Restart]")[-1].count("OK        job mine-r2") == 1, output
    assert output.rstrip().endswith("runs/mine-r2/report.html"), output


def test_a_failed_last_attempt_fails_the_command(chain):
    chain.attempt("mine-r1", dict(FAILED, **failed(1)), fails=True)
    code, output = chain.run()
    assert code == 2 and "RESTART   no: the cause would most likely recur" in output
    assert output.index("PLAY RECAP") < output.index("FAILED    job mine-r1 (dist_gsync)"), output


@pytest.mark.parametrize("signum,status", [(signal.SIGINT, 99), (signal.SIGKILL, 137)])
def test_an_attempt_without_a_verdict_ends_the_chain_with_its_status(chain, signum, status):
    chain.attempt("mine-r1", trains=True)
    process = chain.start()
    chain.until(lambda: chain.polls("mine-r1") > 1)
    os.kill(chain.child(), signum)
    output = chain.rest()
    assert process.returncode == status, output
    words = (
        "FAILED    job mine-r1: ansible-playbook ended with status %d before the verdict. See the "
        "error in the output above\nnext      run status.yml. If it lists the job, run train.yml "
        "-e attach=mine-r1\n          If not, remove the error, and run train.yml -e resume=mine"
        % status
    )
    assert output.rstrip().endswith(words), output


def all_of(chain):
    return lambda signum: os.killpg(chain.process.pid, signum)  # as a terminal does


def first_of(chain):
    return chain.process.send_signal


@pytest.mark.parametrize(
    "moment,target,signum,status",
    [
        ("delay", all_of, signal.SIGINT, 99),
        seldom("attempt", all_of, signal.SIGINT, 99),
        seldom("delay", first_of, signal.SIGINT, 99),
        ("attempt", first_of, signal.SIGINT, 99),
        ("delay", first_of, signal.SIGTERM, -15),
        seldom("attempt", first_of, signal.SIGTERM, -15),
        seldom("delay", first_of, signal.SIGKILL, -9),
        ("attempt", first_of, signal.SIGKILL, -9),
    ],
)
def test_a_signal_ends_the_command_and_its_child(chain, moment, target, signum, status):
    chain.attempt("mine-r1", trains=True)
    process = chain.start("-e", "delay=%d" % (600 if moment == "delay" else 0))
    if moment == "delay":
        chain.read_until(b"RESTART")
    else:
        chain.until(lambda: chain.polls("mine-r1") > 1)
    polls = chain.polls("mine-r1")
    target(chain)(signum)
    chain.until(lambda: process.poll() is not None and not chain.left())
    assert process.returncode == status
    # No process is left that could start the attempt. A child that the signal does not reach is
    # ended after 10 s (attempts.INTERRUPTED), and has polled more than 20 times on a quiet machine.
    assert chain.polls("mine-r1") <= (polls + 4 if moment == "attempt" else 0)
    assert not (chain.path / "runs").exists()
    if signum == signal.SIGINT:
        assert not list((chain.path / "home" / "tmp").iterdir()), "temporary files are left"


def test_a_killed_worker_leaves_nothing_of_its_child(chain):
    chain.attempt("mine-r1", trains=True)
    process = chain.start()
    chain.until(lambda: chain.polls("mine-r1") > 1)
    os.kill(processes.entry(chain.child()).parent, signal.SIGKILL)
    output = chain.rest()
    assert process.returncode, output
    chain.until(lambda: not chain.left())


def test_output_of_an_attempt_comes_at_once(chain):
    chain.attempt("mine-r1", OK, trains=True)
    process = chain.start()
    chain.read_until(b"TASK [Train]", count=2)
    assert process.poll() is None and (chain.path / "train-mine-r1").exists()
    (chain.path / "train-mine-r1").unlink()
    assert "OK        job mine-r1" in chain.rest()


def test_on_a_terminal_an_attempt_has_colours_and_one_live_line(chain):
    chain.attempt("mine-r1", OK, trains=True)
    screen, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    process = chain.start(stdout=terminal, stderr=terminal)
    os.close(terminal)
    output = b""
    while True:
        assert select.select([screen], [], [], PATIENCE)[0], output
        try:
            output += os.read(screen, 65536)
        except OSError:  # EIO: the command has ended
            break
        if output.count(b"\rgsync  epoch 2/9") > 5:  # the last version may not be whole yet
            (chain.path / "train-mine-r1").unlink(missing_ok=True)
    os.close(screen)
    assert process.wait(PATIENCE) == 0, output
    line = output.decode().split("TASK [Train]")[2].split("TASK [")[0]
    versions = re.findall(r"\r(gsync  epoch 2/9[^\r\n]*)\x1b\[K", line)
    assert len(versions) >= 5, line
    assert all(len(version) < 60 for version in versions), versions
    assert "\x1b[0;3" in output.decode().split("TASK [Train]")[2], "colours"
