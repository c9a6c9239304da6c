"""Identity, descendants and end of processes, with real processes."""

import ctypes
import os
import signal
import subprocess
import sys
import time
import types

import pytest

from mxcluster.node import processes
from mxcluster.node.processes import Entry, Identity
from tests.waiting import until


@pytest.fixture
def shell():
    """Yield a function that runs `sh -c text` in a new session; kill the rest at the end."""
    started = []

    def run(text):
        child = subprocess.Popen(["sh", "-c", text], start_new_session=True, stdout=subprocess.PIPE)
        started.append((child, processes.identity(child.pid)))
        return child

    yield run
    for child, who in started:
        processes.end_groups([who], grace=0)
        child.stdout.close()
        child.wait()


def pid_from(child):
    """Return the pid that the shell prints in its next line."""
    return int(child.stdout.readline())


def line(pid, parent=1, group=None, session=None, state="S", start=10):
    return Entry(pid, parent, group or pid, session or pid, state, start)


def test_entry_reads_a_process_with_parentheses_in_its_name():
    child = os.fork()
    if child == 0:
        ctypes.CDLL(None).prctl(15, b") S 1 (\xff", 0, 0, 0)  # PR_SET_NAME
        time.sleep(300)
        os._exit(0)
    try:
        until(lambda: b") S 1 (" in open("/proc/%d/comm" % child, "rb").read())
        entry = processes.entry(child)
        assert (entry.pid, entry.parent, entry.session) == (child, os.getpid(), os.getsid(0)), entry
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_alive_compares_the_start_time(shell):
    child = shell("sleep 300")
    who = processes.identity(child.pid)
    assert processes.alive(who)
    assert not processes.alive(who._replace(start_time=who.start_time - 1))
    child.kill()
    until(lambda: processes.entry(child.pid).state == "Z")
    assert not processes.alive(who), "a zombie counts as alive"
    assert processes.identity(child.pid) == who, "a zombie still has its pid"
    child.wait()
    assert processes.identity(child.pid) is None


HEADLESS = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(300,)).start()
print("begun", flush=True)
ctypes.CDLL(None).syscall(60, 0)  # exit(2): of the first thread alone
"""


def test_a_process_is_alive_as_long_as_one_of_its_threads():
    """Such a process cannot be reaped and still holds its ports."""
    child = subprocess.Popen([sys.executable, "-c", HEADLESS], stdout=subprocess.PIPE)
    who = processes.identity(child.pid)
    try:
        assert child.stdout.readline() == b"begun\n"
        until(lambda: ") Z " in open("/proc/%d/stat" % child.pid).read())
        assert processes.alive(who) and child.poll() is None
        assert processes.end_groups([who], grace=60) == []
        assert child.wait(timeout=60) == -signal.SIGTERM
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def test_send_spares_a_process_with_a_reused_pid(shell):
    child = shell("sleep 300")
    who = processes.identity(child.pid)
    assert not processes.send(who._replace(start_time=who.start_time + 1), signal.SIGKILL)
    assert child.poll() is None
    assert processes.send(who, signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    assert not processes.send(who, signal.SIGKILL)


def test_family_has_descendants_groups_and_sessions():
    lines = [
        line(1),
        line(100, start=50),
        line(101, parent=100, group=100, session=100, start=51),  # a child
        line(102, parent=1, group=102, session=100, start=52),  # an orphan in its own group
        line(103, parent=102, start=53),  # the orphan's child, in its own session
        line(104, parent=101, group=100, session=100, state="Z", start=54),
        line(200, start=50),
        line(201, parent=200, start=51),
    ]
    assert {who.pid for who in processes.family([Identity(100, 50)], lines)} == {100, 101, 102, 103}
    older = [line(90, group=100, session=100, start=3), line(101, group=100, start=51)]
    assert processes.family([Identity(100, 50)], older) == [Identity(101, 51)], "an ended root"
    stranger = [line(100, start=70), line(101, parent=100, group=100, session=100, start=71)]
    assert processes.family([Identity(100, 50)], stranger) == [], "another process has its pid"


def test_end_groups_ends_orphans_and_sessions_of_children(shell):
    child = shell("(sleep 300 & echo $!); setsid sleep 300 & echo $!; sleep 300")
    who = processes.identity(child.pid)
    orphan, other = (processes.identity(pid_from(child)) for _ in range(2))
    until(lambda: processes.entry(other.pid).session == other.pid)
    until(lambda: processes.entry(orphan.pid).parent != who.pid)
    begun = time.monotonic()
    assert processes.end_groups([who], grace=120) == []
    assert [processes.alive(one) for one in (who, orphan, other)] == [False] * 3
    assert child.wait() == -signal.SIGTERM
    assert time.monotonic() - begun < 30, "all processes end at SIGTERM"


def test_end_groups_kills_a_process_that_ignores_sigterm(shell, monkeypatch):
    """The clock counts the pauses. It stands still until the process has got SIGTERM."""
    child = shell("trap 'echo told' TERM; echo ready; while :; do sleep 0.1; done")
    assert child.stdout.readline() == b"ready\n"
    who, passes, said, pauses = processes.identity(child.pid), [], [], []

    def sleep(seconds):
        said.append(b"" if said else child.stdout.readline())
        pauses.append(seconds)
        time.sleep(seconds)

    clock = types.SimpleNamespace(monotonic=lambda: sum(pauses), sleep=sleep)
    monkeypatch.setattr(processes, "time", clock)
    left = processes.end_groups([who], grace=0.4, each_pass=lambda: passes.append(len(pauses)))
    assert left == []
    assert child.wait() == -signal.SIGKILL
    assert said[0] + child.stdout.read() == b"told\n", "SIGTERM comes once, and before SIGKILL"
    # SIGKILL comes in the first pass after 0.4 s, and a pause is 0.05 s long.
    assert passes[:9] == list(range(9)) and 0.4 <= sum(pauses)


def test_end_groups_ends_a_stopped_process(shell):
    child = shell("kill -STOP $$; sleep 300")
    until(lambda: processes.entry(child.pid).state == "T")
    assert processes.end_groups([processes.identity(child.pid)], grace=0.1) == []
    assert child.wait() == -signal.SIGKILL


def test_end_groups_spares_the_given_processes(shell):
    child = shell("sleep 300 & echo $!; wait; sleep 300")
    grandchild = processes.identity(pid_from(child))
    who = processes.identity(child.pid)
    until(lambda: len(processes.family([who])) == 2)
    left = processes.end_groups(
        [who], grace=0.2, patience=0.2, spare=[who, *processes.family([who])]
    )
    assert left == [] and processes.alive(grandchild)


def test_with_variable_finds_processes_by_their_environment(tmp_path):
    """Also an orphan in another session."""
    text = "setsid sh -c 'sleep 300 & echo $!'"
    environment = dict(os.environ, MARK=str(tmp_path))
    subprocess.check_call(["sh", "-c", "(%s) > out" % text], env=environment, cwd=str(tmp_path))
    orphan = processes.identity(int((tmp_path / "out").read_text()))
    try:
        until(lambda: processes.with_variable("MARK", str(tmp_path)) == [orphan])
        assert processes.with_variable("MARK", str(tmp_path)[:-1]) == []
    finally:
        processes.send(orphan, signal.SIGKILL)


PARENT = """
import os, subprocess, sys
sys.path.insert(0, %r)
from mxcluster.node import processes
me = os.getpid()
child = subprocess.Popen(["sleep", "300"], preexec_fn=lambda: processes.set_pdeathsig(me))
print(child.pid, flush=True)
child.wait()
"""


def test_a_child_dies_with_its_parent():
    package = os.path.dirname(os.path.dirname(os.path.dirname(processes.__file__)))
    parent = subprocess.Popen([sys.executable, "-c", PARENT % package], stdout=subprocess.PIPE)
    with parent.stdout:
        who = processes.identity(pid_from(parent))
    assert processes.alive(who)
    parent.kill()
    parent.wait()
    until(lambda: not processes.alive(who))


def test_a_child_without_its_parent_is_killed_at_once():
    child = os.fork()
    if child == 0:
        processes.set_pdeathsig(parent=os.getpid())  # a pid that is not its parent's
        os._exit(7)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL


def test_a_witness_sees_the_end_of_a_process_of_this_boot_only():
    process = subprocess.Popen(["sleep", "300"])
    known = processes.witness(process.pid)
    assert processes.lives(known) is True and processes.lives(None) is None
    assert processes.lives(known.replaced(start_time=known.start_time - 1)) is False, (
        "another process has this pid"
    )
    process.kill()
    process.wait()
    assert processes.lives(known) is False and processes.witness(process.pid) is None
    assert processes.lives(known.replaced(numbers="another boot pid:[4026531836]")) is None


@pytest.mark.slow
def test_queued_measures_the_time_without_a_core():
    """Two processes on the same core get about half of it each."""
    loops = [
        subprocess.Popen(
            [sys.executable, "-c", "while True: pass"],
            preexec_fn=lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}),
        )
        for _ in range(2)
    ]
    try:
        until(
            lambda: all(processes.queued(loop.pid) > 0.2 for loop in loops),
            evidence=lambda: str([processes.queued(loop.pid) for loop in loops]),
        )
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
    assert processes.queued(loops[0].pid) == 0.0, "there is no such process"


@pytest.mark.parametrize(
    "line,place,text,frozen",
    [
        ("0::/docker/7", "docker/7/cgroup.freeze", "1", True),
        ("0::/docker/7", "docker/7/cgroup.freeze", "0", False),
        ("4:freezer:/docker/7", "freezer/docker/7/freezer.state", "FROZEN", True),
        ("4:memory:/docker/7", "freezer/docker/7/freezer.state", "FROZEN", False),
    ],
)
def test_a_frozen_control_group(tmp_path, monkeypatch, line, place, text, frozen):
    path = tmp_path / "sys" / place
    path.parent.mkdir(parents=True)
    path.write_text(text + "\n")
    monkeypatch.setattr(processes, "CGROUPS", str(tmp_path / "sys"))
    monkeypatch.setattr(processes, "read", lambda pid, name: line.encode() + b"\n")
    assert processes.is_frozen(5) is frozen
