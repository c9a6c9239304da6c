"""The stack traces of the running processes of a job, with real processes."""

import os
import signal
import sys

import pytest

from mxcluster.agent import stack_traces
from mxcluster.errors import BadInput
from mxcluster.node import processes

TRACED = """
import faulthandler, signal, threading, time
faulthandler.register(signal.SIGUSR1, all_threads=True)
def waits_for_ever():
    print('ready', flush=True)
    while True:
        time.sleep(0.01)
threading.Thread(target=waits_for_ever).start()
waits_for_ever()
"""
OWN_HANDLER = """
import signal, time
signal.signal(signal.SIGUSR1, lambda *_: print('own handler', flush=True))
print('ready', flush=True)
while True:
    time.sleep(0.01)
"""


def python(program):
    return [sys.executable, "-c", program]


def ready(job, *names):
    """Wait until the workers have written "ready"."""
    job.until(lambda: all("ready" in job.log(name) for name in names))


@pytest.mark.slow
def test_each_process_gives_the_stack_traces_of_its_threads(job):
    job.start(python(TRACED), python(TRACED), python("raise SystemExit(0)"))
    ready(job, "worker-0", "worker-1")
    job.until(lambda: job.status()["processes"][2]["state"] == "ended")
    answer = job.ask("stacks")
    assert sorted(answer["stacks"]) == ["worker-0", "worker-1"] and answer["silent"] == {}
    for lines in answer["stacks"].values():
        assert len([line for line in lines if "most recent call first" in line]) == 2
        assert sum("in waits_for_ever" in line for line in lines) == 2
        assert not [line for line in lines if "ready" in line]
    again = job.ask("stacks", only=["worker-1"])
    assert list(again["stacks"]) == ["worker-1"]
    assert len(again["stacks"]["worker-1"]) == len(answer["stacks"]["worker-1"])


@pytest.mark.slow
def test_a_process_without_a_handler_gets_no_signal(job):
    """SIGUSR1 would end the process, and so the job."""
    job.start("echo ready; sleep 300", "trap '' USR1; echo ready; sleep 300")
    ready(job, "worker-0", "worker-1")
    answer = job.ask("stacks")
    assert answer["stacks"] == {}
    assert set(answer["silent"]) == {"worker-0", "worker-1"}
    assert all("does not handle SIGUSR1" in why for why in answer["silent"].values())
    assert job.looks()["state"] == "running"


@pytest.mark.slow
def test_a_stopped_process_and_a_mute_one_are_named(job, monkeypatch):
    monkeypatch.setattr(stack_traces, "PATIENCE", 1.0)
    status = job.start(python(TRACED), python(OWN_HANDLER))
    ready(job, "worker-0", "worker-1")
    who = processes.recorded(job.folder.status().processes[0])
    os.kill(who.pid, signal.SIGSTOP)
    job.until(lambda: processes.is_held(who))
    answer = job.ask("stacks")
    os.kill(who.pid, signal.SIGCONT)
    assert "SIGCONT" in answer["silent"]["worker-0"] and status["state"] == "running"
    assert "handles SIGUSR1 itself" in answer["silent"]["worker-1"] and not answer["stacks"]


def test_an_ended_job_has_no_stack_traces(job):
    job.start("true")
    job.end()
    assert job.ask("stacks") == {"stacks": {}, "silent": {}}


def test_a_job_of_a_batch_system_is_refused(job, monkeypatch):
    status = job.start("sleep 300")
    known = job.folder.status()
    batch = type(known).decode(dict(status, batch={"launcher": "slurm", "id": "7"}))
    monkeypatch.setattr(stack_traces.commands, "look", lambda folder: batch)
    with pytest.raises(BadInput, match="log in to a node, and send SIGUSR1"):
        job.ask("stacks")


def test_threads_that_watch_the_process_are_left_out():
    own = '  File "/lib/mxcluster-1-3.11/mxcluster/training/%s.py", line 7 in run'
    wait = '  File "/usr/lib/python3.11/threading.py", line 331 in wait'
    theirs = ["Thread 0x00007f01d17ff6c0 (most recent call first):", wait]
    main = ["Current thread 0x00007f01d5a29b80 (most recent call first):", own % "pulse_file"]
    watchers = [[theirs[0], wait, own % name] for name in ("death_watch", "pulse_file")]
    lines = watchers[0] + theirs + watchers[1] + main
    assert stack_traces._without_watchers(lines) == theirs + main
