"""A process tells how far it is."""
import json
import subprocess
import sys
import time

import mxcluster
from mxcluster import pulse

PACKAGE = mxcluster.__path__[0].rsplit("/", 1)[0]
PROGRAM = """
import sys, time
from mxcluster import pulse

class Store:
    def init(self, key, value): pass
    def push(self, key, value): pass
    def pull(self, key): pass
    def pushpull(self, key, value):
        self.push(key, value)
        self.pull(key)

pulse.start()
sys.stdin.readline()
store = Store()
pulse.attach(store)
store.init([0, "a"], 1)
for step in range(3): store.push(0, 1); store.pull(0)
store.pushpull(key=[0, "a"], value=1)
print("trained", flush=True)
sys.stdin.readline()
"""


def test_a_process_tells_what_it_does_with_its_store(tmp_path):
    environment = {"MXCLUSTER_JOB_DIR": str(tmp_path), "MXCLUSTER_ROLE": "worker", "MXCLUSTER_INDEX": "3", "PYTHONPATH": PACKAGE,
                   "DMLC_ROLE": "worker"}
    path = pulse.file_of(str(tmp_path), "worker-3")
    process = subprocess.Popen([sys.executable, "-c", PROGRAM], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        until(lambda: (pulse.read(path) or {}).get("phase") == pulse.STARTING)
        process.stdin.write(b"\n")
        process.stdin.flush()
        process.stdout.readline()
        trained = time.time()
        until(lambda: pulse.read(path)["pushes"] == 4)
        assert pulse.read(path)["keys"] == {"most": 4, "fewer": {"a": 1}}
        assert pulse.read(path)["phase"] == pulse.TRAINING and abs(pulse.read(path)["time"] - trained) < 1
        process.communicate(b"\n")
        assert process.returncode == 0
    finally:
        process.kill()


def test_who_leaves_has_told_so_before_the_interpreter_waits_for_threads(tmp_path):
    program = ("import threading, time\nfrom mxcluster import pulse\npulse.start()\n"
               "threading.Thread(target=time.sleep, args=(60,)).start()\npulse.leave()\nprint('left', flush=True)\n")
    environment = {"MXCLUSTER_JOB_DIR": str(tmp_path), "MXCLUSTER_ROLE": "worker", "MXCLUSTER_INDEX": "0", "PYTHONPATH": PACKAGE}
    process = subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE)
    try:
        assert process.stdout.readline() == b"left\n"
        assert pulse.read(pulse.file_of(str(tmp_path), "worker-0"))["phase"] == pulse.LEAVING
        assert process.poll() is None, "its thread keeps it"
    finally:
        process.kill()
        process.communicate()


def test_what_is_no_pulse(tmp_path):
    path = tmp_path / "worker-0.pulse"
    assert pulse.read(str(path)) is None
    huge = '{"phase": "x", "pushes": 1e999, "time": 1}'
    for text in ("", "[]", "{}", "[" * 9999, huge, json.dumps({"phase": "x", "pushes": "many", "time": 1}),
                 json.dumps({"phase": "x", "pushes": 1, "time": 1, "keys": {"most": 1, "fewer": []}})):
        path.write_text(text)
        assert pulse.read(str(path)) is None


def until(condition, seconds=10.0):
    deadline = time.time() + seconds
    while not condition():
        assert time.time() < deadline
        time.sleep(0.05)
