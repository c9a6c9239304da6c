"""Tests of the terminal's output of mxcluster's own playbooks. Tasks simulate the nodes."""

import os
import re
import shutil
import signal
import stat
import subprocess
import sys

import pytest

from tests.unit.plugins.callback import test_mxcluster as compact
from tests.waiting import until

pytestmark = pytest.mark.slow

PLAN = (
    compact.ACTION
    + """
IN_CHECK_MODE = True


def answer():
    return dict(changed=False, run_dir=os.path.join(os.getcwd(), "runs", "j"), job="j",
                packed_plan="x", options=dict(lease=9.0, detach=False),
                table=["job j", "", "role    host", "worker  node0"])
"""
)

REPORT = compact.VERDICT.replace('{"ok": False}', '{"ok": True}').replace("FAILED ", "OK     ")

SECRET = """
    - name: Use a secret
      ansible.builtin.set_fact: {secret: swordfish}
      no_log: true
"""

# A program on each node, whose command line and output are secret.
RUN_WITH_SECRET = """
    - name: Use a secret
      ansible.builtin.command: "echo swordfish"
      no_log: true
"""

TRAIN = (
    """
- name: A job
  hosts: all
  gather_facts: false
  tasks:
    - name: Check the controller
      mxcluster_preflight:
      run_once: true
    - name: Plan the job
      mxcluster_plan:
      register: planned
      run_once: true
    - name: Report the plan
      ansible.builtin.debug: {msg: "{{ planned.table }}"}
      run_once: true
%s
    - name: Ignore a failure
      ansible.builtin.fail: {msg: "not shown"}
      ignore_errors: true # the output must not show this failure
    - name: Fail
      ansible.builtin.fail: {msg: "disk full: delete files"}
      when: fails | default(false) | bool
    - name: Make the run folder
      ansible.builtin.file: {path: "{{ planned.run_dir }}", state: directory, mode: "0755"}
      run_once: true
    - name: Wait for the job
      mxcluster_node: {command: wait, host: "{{ inventory_hostname }}", seconds: "{{ seconds }}"}
      register: job
      until: job.ended
      retries: 100
      delay: 0
    - name: Judge
      mxcluster_report:
      register: judged
      run_once: true
    - name: Fail with the job
      ansible.builtin.assert:
        that: judged.verdict.ok
        fail_msg: "{{ judged.mxcluster_verdict_text | first }}"
        quiet: true
      run_once: true
"""
    % SECRET
)

PROVISION = """
- name: Check the nodes
  hosts: all
  gather_facts: false
  tags: always
  roles: [first]
- name: Provision the nodes
  hosts: all
  gather_facts: false
  roles: [mxnet, datasets]
"""

ROLES = {
    "first": "- name: Check the controller\n  mxcluster_preflight:\n",
    "mxnet": """
- name: Install MXNet
  ansible.builtin.set_fact: {is_done: true}
  changed_when: inventory_hostname == 'node1' and 'x' not in lookup('env', 'SECOND')
- name: Report a note
  ansible.builtin.debug: {msg: "restart me"}
""",
    "datasets": "- name: Copy the data\n  ansible.builtin.set_fact: {is_done: true}\n",
}

HEALTHY = """\
job j

role    host
worker  node0
gsync  epoch 4/9  step 30  200 samples/s (slowest worker-0 100)  loss 0.5  ETA 0:01
OK        job j
report    r.html
"""


@pytest.fixture
def project(tmp_path):
    """Return a project of its own, with a copy of the callback and two playbooks."""
    (tmp_path / "plugins" / "callback").mkdir(parents=True)
    shutil.copy(str(compact.PLUGINS / "mxcluster.py"), str(tmp_path / "plugins" / "callback"))
    files = {
        "ansible.cfg": compact.CONFIG % "plugins/callback",
        "train.yml": TRAIN,
        "provision.yml": PROVISION,
        "status.yml": TRAIN.split("    - name: Plan the job")[0] + RUN_WITH_SECRET,
        "own.yml": "- hosts: all\n  tasks: [{ansible.builtin.command: 'true', name: Mine}]\n",
        "action/mxcluster_preflight.py": compact.PREFLIGHT,
        "action/mxcluster_plan.py": PLAN,
        "action/mxcluster_node.py": compact.WAIT,
        "action/mxcluster_report.py": REPORT,
        "hosts": "node[0:1] ansible_connection=local ansible_python_interpreter=%s\n"
        % sys.executable,
    }
    for role, tasks in ROLES.items():
        files["roles/%s/tasks/main.yml" % role] = tasks
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    return tmp_path


def start(project, playbook, *arguments, **kwargs):
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("ANSIBLE_") and name != "COLUMNS"
    }
    environment.update(TERM="xterm", LC_ALL="C.UTF-8", **kwargs.pop("env", {}))
    return subprocess.Popen(
        [sys.executable, "-m", "ansible", "playbook", playbook, *arguments],
        cwd=str(project),
        env=environment,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        **dict({"stdout": subprocess.PIPE, "text": True}, **kwargs),
    )


def run(project, playbook, *arguments, **kwargs):
    """Return (output, exit status) of a playbook into a pipe."""
    process = start(project, playbook, *arguments, **kwargs)
    return process.communicate(timeout=300)[0], process.returncode


def test_a_healthy_job_shows_plan_live_line_and_verdict(project):
    output, code = run(project, "train.yml", "-e", "seconds=0")
    assert (output, code) == (HEALTHY, 0)
    log = project / "runs" / "j" / "ansible.log"
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    text = log.read_text()
    for part in ("TASK [Plan the job]", "changed: [", "...ignoring", "PLAY RECAP", "OK        job"):
        assert part in text, text
    assert "swordfish" not in text, "no_log"
    # The log has moved to the job. The callback has imported matplotlib, which keeps fonts there.
    assert [path.name for path in (project / "state").iterdir()] == ["matplotlib"]


@pytest.mark.parametrize(
    "playbook, options, place",
    [
        ("status.yml", [], "state"),
        ("train.yml", ["--check", "-e", "seconds=0"], "state"),
        ("status.yml", ["--start-at-task", "Use a secret"], ".state"),
    ],
)
def test_every_run_has_a_log(project, playbook, options, place):
    """A run without a preflight has its log in the folder of all states."""
    output, _ = run(project, playbook, *options)
    (log,) = (project / place).glob("*.log")
    assert re.fullmatch(playbook[:-4] + r"-\d{8}-\d{6}\.log", log.name)
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    text = log.read_text()
    for part in ("TASK [Use a secret]", "[node1]", "RECAP"):
        assert part in text, text
    assert "swordfish" not in text, "no_log"
    assert ("TASK [" in output) == ("--check" in options), output


def test_the_log_of_a_verbose_run_has_what_the_terminal_has(project):
    output, _ = run(project, "status.yml", "-vvv")
    (log,) = (project / "state").iterdir()
    text = log.read_text()
    executed = [line for line in output.splitlines() if " EXEC /bin/sh -c " in line]
    assert executed and all(line in text for line in executed), text
    assert "the output has been hidden" in text and "swordfish" not in text


def test_a_failure_names_host_task_and_message_once_for_all_hosts(project):
    output, code = run(project, "train.yml", "-e", "seconds=0", "-e", "fails=true")
    assert code == 2
    begin, end = HEALTHY.split("gsync")[0], output.split("worker  node0\n")[1]
    assert output.startswith(begin), output
    assert re.fullmatch(
        r"TASK \[Fail\]\nfatal: \[node.\], \[node.\]: FAILED!\n  disk full: delete files\n", end
    ), output
    (log,) = (project / "state").iterdir()
    assert re.fullmatch(r"train-\d{8}-\d{6}\.log", log.name)
    assert "TASK [Use a secret]" in log.read_text()


def test_the_verdict_of_a_failed_job_is_shown_once(project):
    report = project / "action" / "mxcluster_report.py"
    report.write_text(compact.VERDICT)
    output, code = run(project, "train.yml", "-e", "seconds=0")
    assert code == 2
    assert output.split("ETA 0:01\n")[1] == "FAILED    job j\nreport    r.html\n", output
    assert "TASK [Fail with the job]\n" in (project / "runs" / "j" / "ansible.log").read_text()


@pytest.mark.parametrize("options", [["-v"], ["--diff"]])
def test_options_that_ask_for_ansibles_output_get_it(project, options):
    output, _ = run(project, "train.yml", "-e", "seconds=0", *options)
    assert "TASK [Use a secret]" in output and "PLAY RECAP" in output, output
    text = (project / "runs" / "j" / "ansible.log").read_text()
    assert "TASK [Use a secret]" in text and "swordfish" not in output + text, "no_log"


def test_a_playbook_of_the_user_keeps_ansibles_output(project):
    output, _ = run(project, "own.yml")
    assert "TASK [Mine]" in output and "PLAY RECAP" in output, output


def test_provision_shows_a_line_for_each_role(project):
    first, code = run(project, "provision.yml")
    assert code == 0
    shown = re.sub(r"\d+:\d\d", "0:00", first)
    assert shown.split("\nPLAY RECAP")[0] == (
        "preflight        2 nodes: 2 ok   0:00\n"
        "node0, node1: restart me\n"
        "mxnet            2 nodes: 1 ok, 1 changed (node1)   0:00\n"
        "datasets         2 nodes: 2 ok   0:00\n"
    )
    assert shown.endswith("\nOK        provision.yml   0:00\n") and "changed=1" in shown, shown
    second, _ = run(project, "provision.yml", env={"SECOND": "x"})
    assert "mxnet            2 nodes: 2 ok" in second and "changed=1" not in second, second
    assert "\x1b" not in first + second
    logs = list((project / "state").iterdir())
    assert logs and all("TASK [mxnet : Install MXNet]" in log.read_text() for log in logs)


def test_the_last_ten_logs_stay(project):
    (project / "state").mkdir()
    old = [project / "state" / ("provision-20200101-0000%02d.log" % number) for number in range(12)]
    for log in [*old, project / "state" / "profile.json"]:
        log.write_text("")
    run(project, "provision.yml")
    names = sorted(path.name for path in (project / "state").iterdir())
    assert len(names) == 11 and "profile.json" in names
    assert [log.exists() for log in old] == [False] * 3 + [True] * 9


def test_the_log_is_complete_after_ctrl_c(project):
    process = start(project, "train.yml", "-e", "seconds=10")
    log = project / "runs" / "j" / "ansible.log"
    until(lambda: log.exists() and "TASK [Wait for the job]" in log.read_text(), 120)
    os.killpg(process.pid, signal.SIGINT)
    output = process.communicate(timeout=120)[0]
    assert "LEFT      job j" in output, output
    assert "TASK [Ignore a failure]" in log.read_text() and "LEFT      job j" in log.read_text()


@pytest.mark.parametrize("columns", [40, 200])
def test_the_live_line_fits_the_terminal(project, columns, monkeypatch):
    def on_terminal(folder, *arguments, **kwargs):
        return start(folder, "train.yml", *arguments, **dict(kwargs, text=False))

    monkeypatch.setattr(compact, "start", on_terminal)
    screen = compact.Screen(columns)
    output = []
    with pytest.raises(AssertionError):  # it asserts the exit status 2
        compact.run_on_terminal(
            project, columns, "-e", "seconds=2", heard=lambda _, piece: output.append(piece)
        )
    screen.write(re.sub(r"\x1b\[[0-9;]*m", "", "".join(output)))
    assert len(max(screen.lines[4:-1], key=len)) < columns, screen.lines
    assert [line.split("  ")[0].strip() for line in screen.lines if line] == [
        "job j", "role", "worker", "gsync" if columns > 40 else "epoch 4/9", "OK", "report",
    ], screen.lines  # fmt: skip
