"""The pulse file of a process."""

import json
import subprocess
import sys
import time

import pytest

import mxcluster
from mxcluster import phases
from mxcluster.model.status import Keys, Pulse
from mxcluster.training import pulse_file
from tests.waiting import until

PACKAGE = mxcluster.__path__[0].rsplit("/", 1)[0]
PROGRAM = """
import sys, time
from mxcluster.training import pulse_file

class Store:
    def init(self, key, value): pass
    def push(self, key, value): pass
    def pull(self, key): pass
    def pushpull(self, key, value):
        self.push(key, value)
        self.pull(key)

pulse_file.start()
sys.stdin.readline()
store = Store()
pulse_file.attach(store)
store.init([0, "a"], 1)
for step in range(3): store.push(0, 1); store.pull(0)
store.pushpull(key=[0, "a"], value=1)
print("trained", flush=True)
sys.stdin.readline()
"""


@pytest.mark.slow
def test_the_pulse_shows_each_use_of_the_store(tmp_path):
    environment = {
        "MXCLUSTER_JOB_DIR": str(tmp_path),
        "MXCLUSTER_ROLE": "worker",
        "MXCLUSTER_INDEX": "3",
        "PYTHONPATH": PACKAGE,
        "DMLC_ROLE": "worker",
    }
    path = pulse_file.file_of(str(tmp_path), "worker-3")
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        until(lambda: pulse_file.read(path) and pulse_file.read(path).phase == phases.STARTING)
        began = time.time()
        process.stdin.write(b"\n")
        process.stdin.flush()
        process.stdout.readline()
        trained = time.time()
        keys = Keys(most=4, fewer={"a": 1})
        pulse = Pulse(phase=phases.TRAINING, pushes=4, time=0.0, keys=keys)
        # The file may have the pushes before the keys: each second it is written again.
        until(
            lambda: pulse_file.read(path).replaced(time=0.0) == pulse,
            evidence=lambda: str(pulse_file.read(path)),
        )
        assert began <= pulse_file.read(path).time <= trained
        process.communicate(b"\n")
        assert process.returncode == 0
    finally:
        process.kill()


def test_leaving_is_recorded_before_the_interpreter_waits_for_threads(tmp_path):
    program = (
        "import threading, time\nfrom mxcluster.training import "
        "pulse_file\npulse_file.start()\n"
        "threading.Thread(target=time.sleep, "
        "args=(60,)).start()\npulse_file.leave()\nprint('left', flush=True)\n"
    )
    environment = {
        "MXCLUSTER_JOB_DIR": str(tmp_path),
        "MXCLUSTER_ROLE": "worker",
        "MXCLUSTER_INDEX": "0",
        "PYTHONPATH": PACKAGE,
    }
    process = subprocess.Popen(
        [sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout.readline() == b"left\n"
        assert (
            pulse_file.read(pulse_file.file_of(str(tmp_path), "worker-0")).phase == phases.LEAVING
        )
        assert process.poll() is None, "the thread keeps the process alive"
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    "before, ended, used",
    [
        (phases.TRAINING, phases.ENDING, phases.TRAINING),
        (phases.STARTING, phases.STARTING, phases.STARTING),  # a thread still makes the store
    ],
)
def test_work_after_the_last_line_of_a_script_is_training(monkeypatch, before, ended, used):
    monkeypatch.setenv("DMLC_ROLE", "worker")
    monkeypatch.setattr(pulse_file._Progress, "phase", before)
    pulse_file.end_script()
    assert pulse_file._Progress.phase == ended
    pulse_file.beat()
    assert pulse_file._Progress.phase == used


def test_an_invalid_pulse_file_is_ignored(tmp_path):
    path = tmp_path / "worker-0.pulse"
    assert pulse_file.read(str(path)) is None
    huge = '{"phase": "x", "pushes": 1e999, "time": 1}'
    for text in (
        "",
        "[]",
        "{}",
        "[" * 9999,
        huge,
        json.dumps({"phase": "x", "pushes": "many", "time": 1}),
        json.dumps({"phase": "x", "pushes": 1, "time": 1, "keys": {"most": 1, "fewer": []}}),
    ):
        path.write_text(text)
        assert pulse_file.read(str(path)) is None
