"""module_utils/mxcluster_user.py under the Pythons of nodes.

The child process runs as the user, and its parent keeps its own user.
"""

import os
import pwd
import signal
import subprocess

import pytest

from mxcluster.node import training_user
from tests import needs
from tests.ansible_modules import PROJECT
from tests.pythons import python_of

PYTHONS = ["2.7", "controller"]
SILENT = "FAILED a process with the rights of nobody sent no result within 1 s"
KILLED = "FAILED a process with the rights of nobody was killed by signal 9"
BEGIN = """
import os, pwd, signal, sys, time  # the user may not read where this Python lies
sys.path.insert(0, %r)
import mxcluster_user

class Module:
    check_mode = False
    def fail_json(self, msg):
        print("FAILED " + msg)
        sys.exit(1)
""" % str(PROJECT / "plugins" / "module_utils")
START = (
    BEGIN
    + """
{before}
try:
    mxcluster_user.act_as(Module(), "nobody", lambda: {work})
finally:
    print("PARENT %d" % os.geteuid())
"""
)


@pytest.fixture(params=PYTHONS)
def act(request):
    def run(work, ended=None, before=""):
        script = START.replace("{work}", work).replace("{before}", before)
        child = subprocess.Popen(
            [python_of(request.param), "-c", script],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
        )
        if ended:
            assert child.stdout.readline() == "UP\n"
            child.send_signal(ended)
        out, err = child.communicate(timeout=60)
        return subprocess.CompletedProcess([], child.returncode, out, err)

    return run


pytestmark = needs.root
WHO = (
    "sys.stdout.write('CHILD %d %d %r %s\\n' % "
    "(os.getuid(), os.getgid(), os.getgroups(), os.environ['HOME']))"
)


def test_the_child_runs_as_the_user_and_the_parent_does_not(act):
    nobody = pwd.getpwnam("nobody")
    done = act(WHO)
    ids = (nobody.pw_uid, nobody.pw_gid, nobody.pw_gid, nobody.pw_dir)
    assert done.stdout == "CHILD %d %d [%d] %s\nPARENT 0\n" % ids and done.returncode == 0


@pytest.mark.parametrize(
    "work, code, told",
    [
        ("sys.exit(3)", 3, ""),
        ("sys.exit()", 0, ""),
        ("1 / 0", 1, "ZeroDivisionError"),
        ("os.setuid(0)", 1, "OSError"),
    ],
)
def test_the_childs_exit_status_is_the_modules(act, work, code, told):
    done = act(work)
    assert (done.returncode, done.stdout) == (code, "PARENT 0\n")
    assert told in done.stderr or work.startswith("os.") and "PermissionError" in done.stderr


def test_a_killed_child_is_reported(act):
    done = act("os.kill(os.getpid(), %d)" % signal.SIGKILL)
    assert done.returncode == 1 and KILLED in done.stdout


def test_a_terminated_parent_ends_the_child_and_itself(act):
    """Otherwise Ansible's folder would stay, and the child would go on."""
    work = "(sys.stdout.write('UP\\n'), sys.stdout.flush(), time.sleep(300))"
    done = act(work, ended=signal.SIGTERM)
    assert "killed by signal 15" in done.stdout and "PARENT 0" in done.stdout
    assert done.returncode == 1


def test_a_signal_at_the_end_of_the_child_changes_nothing(act):
    """Python 2.7 looped endlessly: the parent took the error of `kill` for an interrupted wait."""
    done = act(
        "sys.exit(3)",
        before="""
real = os.waitpid
def waitpid(child, options):
    found = real(child, options)
    if found[0]:
        os.kill(os.getpid(), signal.SIGTERM)
    return found
os.waitpid = waitpid
""",
    )
    assert (done.returncode, done.stdout) == (3, "PARENT 0\n"), done.stderr


def test_a_child_killed_at_once_is_reported(act):
    """The child dies before its parent lets it start."""
    done = act(
        "None",
        before="""
real = os.fork
def fork():
    child = real()
    if child:
        os.kill(child, signal.SIGKILL)
        while ") Z " not in open("/proc/%d/stat" % child).read():
            time.sleep(0.01)
    return child
os.fork = fork
""",
    )
    assert done.returncode == 1 and KILLED in done.stdout, done.stderr


def test_a_parent_killed_at_once_leaves_no_working_child(act):
    done = act(
        "sys.stdout.write('WORKED\\n')",
        before="""
real = os.fork
def fork():
    child = real()
    if child:
        os.kill(os.getpid(), signal.SIGKILL)
    return child
os.fork = fork
""",
    )
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, ""), done.stderr


ASK = (
    BEGIN
    + """
entry = pwd.getpwnam("nobody")
limit = float(sys.argv[1])
try:
    print("HEARD %r" % (mxcluster_user.ask_as(Module(), entry, lambda: {work}, limit=limit),))
finally:
    print("PARENT %d" % os.geteuid())
"""
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "work, words",
    [
        ("[os.getuid(), 'a' * 200000][:1]", "HEARD [%d]" % pwd.getpwnam("nobody").pw_uid),
        ("len('a' * 200000)", "HEARD 200000"),
        ("1 / 0", "FAILED a process with the rights of nobody failed (ZeroDivisionError"),
        ("os._exit(3)", "FAILED a process with the rights of nobody ended with status 3 and with"),
        ("os.kill(os.getpid(), 9)", KILLED),
        ("time.sleep(300)", SILENT),
        ("os.kill(os.getpid(), signal.SIGSTOP)", SILENT),
    ],
)
@pytest.mark.parametrize("python", PYTHONS)
def test_root_gets_the_childs_answer_and_never_waits_for_ever(python, work, words):
    limit = "1" if "within 1 s" in words else "60"
    done = subprocess.run(
        [python_of(python), "-c", ASK.replace("{work}", work), limit],
        capture_output=True,
        timeout=120,
    )
    assert done.stdout.decode().startswith(words) and done.stdout.decode().endswith("PARENT 0\n"), (
        done
    )


def test_a_changed_clock_does_not_shorten_the_time_of_an_answer(monkeypatch):
    moments = iter(range(0, 10**9, 10**6))
    monkeypatch.setattr(training_user.time, "time", lambda: float(next(moments)))
    told, tell = os.pipe()
    os.write(tell, b"answer")
    os.close(tell)
    assert training_user.read_until(told, training_user.clock() + 5.0) == (b"answer", False)
    os.close(told)


def test_modules_and_the_package_share_one_file():
    """Ansible sends the content of the file behind a relative symlink; git keeps the symlink."""
    shared = PROJECT / "plugins" / "module_utils" / "mxcluster_user.py"
    assert os.readlink(str(shared)) == "../../python/mxcluster/node/training_user.py"
