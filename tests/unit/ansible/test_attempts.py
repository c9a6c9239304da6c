"""A later attempt at a job: a child, its output and its exit status."""

import json
import os
import pty
import signal
import sys
import time

import pytest

from mxcluster.ansible import attempts
from mxcluster.node import processes
from tests.waiting import until


@pytest.fixture
def attempt(tmp_path, monkeypatch):
    """attempt(program): run this Python text: (exit status, {False: stdout, True: stderr})."""

    def run(program, **extra):
        path = tmp_path / "program.py"
        path.write_text("import json, os, sys, time\n" + program)
        monkeypatch.setattr(sys, "argv", [str(path), "train.yml", "-e", "kv=local"])
        shown = {False: "", True: ""}

        def show(piece, is_stderr):
            shown[is_stderr] += piece

        return attempts.run(extra, show), shown

    return run


def test_an_attempt_is_the_same_command_line_with_other_knobs(attempt):
    status, shown = attempt(
        "print(json.dumps(sys.argv[1:] + [os.environ['MXCLUSTER_ATTEMPT']]))",
        resume="mine",
        without=["node3"],
    )
    *argv, knobs, attempt = json.loads(shown[False])
    assert status == 0 and argv == ["train.yml", "-e", "kv=local", "-e"] and attempt == "1"
    assert json.loads(knobs) == {"resume": "mine", "without": ["node3"]}


@pytest.mark.parametrize(
    "argv,own,wanted",
    [
        (["a-p", "-v", "/p/compare.yml"], "/p/compare.yml", ["a-p", "-v", "/p/train.yml"]),
        (["a-p", "train.yml"], "", ["a-p", "train.yml"]),
    ],
)
def test_another_playbook_takes_the_place_of_the_own_one(argv, own, wanted):
    before = list(argv)
    found = attempts.command_line(argv, {"lr": 1}, own, "train.yml")
    assert found == wanted + ["-e", '{"lr": 1}'] and argv == before


def test_a_child_of_another_playbook_knows_its_parent(attempt, monkeypatch):
    assert attempts.parent() == ""
    monkeypatch.setenv("MXCLUSTER_ATTEMPT", "1")
    assert attempts.is_child() and attempts.parent() == ""
    monkeypatch.setenv("MXCLUSTER_ATTEMPT", "benchmark.yml")
    assert attempts.is_child() and attempts.parent() == "benchmark.yml"


def test_a_child_runs_the_other_playbook(tmp_path, monkeypatch):
    program, pieces = tmp_path / "program.py", []
    program.write_text("import os, sys\nprint(sys.argv[1:3], os.environ['MXCLUSTER_ATTEMPT'])\n")
    monkeypatch.setattr(sys, "argv", [str(program), "books/compare.yml", "-v"])
    status = attempts.run({}, lambda *piece: pieces.append(piece), "books/compare.yml", "stop.yml")
    output = "".join(text for text, is_stderr in pieces if not is_stderr)
    assert status == 0 and output == "['books/stop.yml', '-v'] compare.yml\n"


@pytest.mark.parametrize(
    "program,status",
    [("sys.exit(250)", 250), ("os.kill(os.getpid(), 9)", 137), ("os.close(1); sys.exit(4)", 4)],
)
def test_the_exit_status_is_that_of_the_attempt(attempt, program, status):
    assert attempt(program)[0] == status


def test_pieces_of_output_are_whole_letters_of_the_right_stream(attempt):
    program = """
for byte in "Gr\u00fc\u00dfe".encode():
    os.write(1, bytes([byte]))
    time.sleep(0.01)
os.write(2, b"a warning")
os.write(1, b"x" * 300000)
"""
    status, shown = attempt(program)
    assert status == 0 and shown == {False: "Gr\u00fc\u00dfe" + "x" * 300000, True: "a warning"}


def test_a_child_inherits_a_terminal(attempt):
    """Its output keeps colours and the live line. Only what is no terminal is shown as pieces."""
    controller, terminal = pty.openpty()
    stdout = os.dup(1)
    os.dup2(terminal, 1)
    try:
        status, shown = attempt("print(sys.stdout.isatty(), sys.stderr.isatty())")
    finally:
        os.dup2(stdout, 1)
    assert status == 0 and os.read(controller, 100).split() == [b"True", b"False"]
    for fd in (controller, terminal, stdout):
        os.close(fd)
    assert shown == {False: "", True: ""}


def test_a_process_that_keeps_the_output_open_delays_nothing(attempt):
    began = time.monotonic()
    status, shown = attempt("print(os.spawnlp(os.P_NOWAIT, 'sleep', 'sleep', '300'))")
    os.kill(int(shown[False]), signal.SIGKILL)
    assert status == 0 and time.monotonic() - began < 60


def alive(pids):
    """Return the processes in the file `pids` that are alive."""
    known = [processes.identity(int(pid)) for pid in pids.read_text().split()]
    return [one for one in known if one and processes.alive(one)]


@pytest.mark.slow
def test_a_child_that_hears_nothing_is_ended_with_its_workers(attempt, monkeypatch, tmp_path):
    monkeypatch.setattr(attempts, "INTERRUPTED", 0.3)
    monkeypatch.setattr(attempts, "TERMINATED", 0.3)
    monkeypatch.setattr(attempts, "_ignore_signals", lambda: None)
    pids = tmp_path / "pids"
    program = """
import signal
for signum in (signal.SIGINT, signal.SIGTERM):
    signal.signal(signum, signal.SIG_IGN)
worker = os.spawnlp(os.P_NOWAIT, "sleep", "sleep", "300")
open(%r, "w").write("%%d %%d\\n" %% (os.getpid(), worker))
print("ready")
time.sleep(300)
"""

    def interrupted(*arguments):
        until(lambda: pids.exists() and pids.read_text().endswith("\n"))
        raise KeyboardInterrupt

    copy = attempts._copy
    monkeypatch.setattr(
        attempts, "_copy", lambda *args: copy(*args) if len(args) > 3 else interrupted()
    )
    with pytest.raises(KeyboardInterrupt):
        attempt(program % str(pids))
    until(lambda: not alive(pids), evidence=lambda: str(alive(pids)))


@pytest.mark.parametrize(
    "options,words",
    [
        ({}, None),
        ({"ask_pass": True}, "Ansible would prompt for a password again"),
        ({"vault_ids": ["mine@prompt"]}, "Ansible would prompt for a password again"),
        ({"step": True}, "with --step"),
    ],
)
def test_what_a_user_would_have_to_type_again_is_refused(tmp_path, options, words):
    program = tmp_path / "ansible-playbook"
    program.write_text("")
    reason = attempts.refusal(str(program), options)
    assert reason is None if words is None else words in reason
    assert "not started with ansible-playbook" in attempts.refusal("ansible-playbook", options)
