"""Starting an agent, and the environment of its processes."""

import contextlib
import json
import os
import re
import stat
import subprocess
import sys

import pytest

from mxcluster.agent.claims import LOCK
from mxcluster.node import processes
from tests import waiting
from tests.plans import part_json
from tests.unit.agent.jobs import PACKAGE, in_a_process, request


def environment_of(pid):
    with open("/proc/%d/environ" % pid, "rb") as stream:
        return dict(item.split("=", 1) for item in stream.read().decode().split("\0") if item)


def targets(pid):
    """Return {descriptor: its target} of a process."""
    folder, found = "/proc/%d/fd" % pid, {}
    for name in os.listdir(folder):
        with contextlib.suppress(FileNotFoundError):  # the process has just closed it
            found[int(name)] = os.readlink(os.path.join(folder, name))
    return found


def test_start_returns_with_the_first_status(job):
    status = job.start("sleep 300", "sleep 300", lease=30)
    assert status == job.status(), "the answer must be the content of the file"
    assert (status["state"], status["first_failure"]) == ("running", None)
    assert processes.alive(job.agent(status))
    for part in status["processes"]:
        pid = part["pid"]
        assert processes.alive(processes.Identity(pid, part["start_time"]))
        entry = processes.entry(pid)
        assert (entry.parent, entry.group, entry.session) == (status["agent"]["pid"], pid, pid)
    assert os.path.exists(job.folder.file("lease"))


def kernel_log():
    """Return the path of the kernel's log if this user may read it."""
    try:
        os.close(os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK))
    except OSError:
        return []
    return ["/dev/kmsg"]


def test_the_agent_inherits_no_descriptor(job):
    # Ansible and ssh have such pipes open when they start a command.
    inherited, other_end = os.pipe()
    os.set_inheritable(other_end, True)
    job.plan("sleep 300")
    ran = subprocess.Popen(
        [sys.executable, "-m", "mxcluster.entry"],
        close_fds=False,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(os.environ, PYTHONPATH=PACKAGE),
    )
    os.close(other_end)
    data = request("start", job_dir=job.path).to_bytes()
    out, err = ran.communicate(data, timeout=60)  # returns only when no process holds the pipes
    assert ran.returncode == 0, (out, err)
    assert os.read(inherited, 1) == b"", "a process still holds an inherited pipe"
    os.close(inherited)
    status = json.loads(out.decode().split("\n")[1])["status"]
    job.remember(status)
    agent, worker = status["agent"]["pid"], status["processes"][0]["pid"]
    log, lock = job.folder.file("agent.log"), job.folder.file("agent.lock")
    own = sorted(["/dev/null", log, log, lock] + kernel_log() + ["pipe"])  # to the meter

    def opened():
        return sorted(re.sub(r":\[\d+\]", "", path) for path in targets(agent).values())

    waiting.until(  # the agent opens other files for a moment
        lambda: opened() == own, evidence=lambda: str(targets(agent))
    )
    log = job.folder.file("worker-0.log")
    assert targets(worker) == {0: "/dev/null", 1: log, 2: log}
    entry = processes.entry(agent)
    assert entry.session == agent, "the agent must have its own session"
    assert os.readlink("/proc/%d/cwd" % worker) == os.path.realpath(job.path)


def test_a_process_gets_the_plans_environment_and_few_other_variables(job):
    status = job.start(
        "sleep 300",
        env={"DMLC_ROLE": "worker", "LANG": "C", "TEXT": "it's $HOME"},
        environment={"SECRET": "of the caller", "LANG": "fr_FR", "PYTHONHASHSEED": "1"},
    )
    found = environment_of(status["processes"][0]["pid"])
    found.pop("PWD", None)  # shells set it themselves
    kept = {"PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH"} & set(os.environ)
    expected = {name: os.environ[name] for name in kept}
    assert found == dict(expected, DMLC_ROLE="worker", LANG="C", TEXT="it's $HOME")
    mode = os.stat(job.folder.file("worker-0.env")).st_mode
    assert stat.S_IMODE(mode) == 0o600
    assert "of the caller" not in open(job.folder.file("worker-0.env")).read()


def test_other_users_can_neither_read_a_jobs_folder_nor_hold_its_locks(job):
    """Also with a folder and a lock that an earlier version made."""
    secret, lock, starting = (
        job.folder.file(name) for name in ("secret.py", "agent.lock", os.path.join(os.pardir, LOCK))
    )
    for path in (secret, lock):
        with open(path, "w") as stream:
            stream.write("token")
        os.chmod(path, 0o644)
    os.chmod(job.path, 0o755)
    job.start("sleep 300")
    modes = [stat.S_IMODE(os.stat(path).st_mode) for path in (job.path, lock, starting)]
    assert modes == [0o700, 0o600, 0o600]
    if os.geteuid() == 0:
        for path in (secret, lock, starting):
            tried = subprocess.run(
                ["runuser", "-u", "nobody", "--", "flock", "--nonblock", path, "cat", path],
                capture_output=True,
            )
            assert tried.returncode != 0 and b"Permission denied" in tried.stderr, tried
            assert tried.stdout == b"", tried


def test_the_agents_blocked_signals_are_not_inherited(job):
    """The agent blocks signals for itself; with the same mask, SIGTERM would not end a process."""
    # No shell, since shells block signals for a moment when they fork.
    status = job.start(["sleep", "300"])
    with open("/proc/%d/status" % status["processes"][0]["pid"]) as stream:
        lines = [line for line in stream.read().splitlines() if line.startswith("Sig")]
    found = dict(line.split(":\t") for line in lines)
    assert int(found["SigBlk"], 16) == 0, found


def test_stdout_and_stderr_go_to_the_log_at_once(job):
    script = "import sys, time; print('out'); print('err', file=sys.stderr); time.sleep(300)"
    job.start([sys.executable, "-uc", script])
    job.until(lambda: job.log("worker-0") == "out\nerr\n")


@pytest.mark.slow
def test_a_folder_serves_one_job_only(job):
    job.start("true")
    job.end()
    job.nothing_left()
    words = "%s holds a job that has ended already (done): choose another job_id" % job.path
    assert in_a_process("start", job_dir=job.path) == (1, {"error": words})


def test_a_command_that_does_not_exist_fails_the_job(job):
    job.start("sleep 300", ["/no/such/python", "-m", "nothing"], "sleep 300")
    status = job.end()
    assert status["reason"] == "failed"
    failure = status["first_failure"]
    assert failure["reason"].startswith("did not start: "), failure
    assert "No such file or directory: '/no/such/python'" in failure["reason"], failure
    assert (failure["name"], failure["exit_code"]) == ("worker-1", None)
    assert [
        (part["state"], part["exit_code"], part["ended_by"]) for part in status["processes"]
    ] == [("ended", -15, "agent"), ("ended", 127, "self"), ("ended", None, "agent")], (
        "the third process must not start"
    )
    job.nothing_left()


def test_start_returns_the_agents_error(job):
    job.plan("true")
    os.mkdir(job.folder.file("worker-0.log"))  # the log cannot be written
    os.mkdir(job.folder.file("status.json"))  # the status cannot be written
    code, answer = in_a_process("start", job_dir=job.path)
    assert code == 1 and "Is a directory" in answer["error"], answer
    os.rmdir(job.folder.file("status.json"))


def on_a_small_disk(folder, size, plan, prepare="true"):
    """Start a job in a file system of `size`, after the shell command `prepare`.

    Returns (the answer of the command `start`, the names in the folder of all jobs).
    """
    command = "%s -m mxcluster.entry" % sys.executable
    ran = subprocess.run(
        [
            *("unshare", "--mount", "sh", "-c"),
            "mount -t tmpfs -o size=%s tmpfs %s && cd %s && { %s; } >&2; %s; ls"
            % (size, folder, folder, prepare, command),
        ],
        stdout=subprocess.PIPE,
        input=request("start", job_dir=str(folder / "job-1"), plan=plan).to_bytes(),
        env=dict(os.environ, PYTHONPATH=PACKAGE),
        timeout=120,
    )
    answer, *names = ran.stdout.decode().split("\n")[1:-1]  # an empty line begins the answer
    return json.loads(answer), names


def test_a_disk_that_is_full_at_the_start_is_named_and_gets_its_space_back(tmp_path):
    plan = part_json(files={"hosts": "x" * (2 << 20)})
    answer, names = on_a_small_disk(tmp_path, "1m", plan)
    assert answer["error"] == (
        "%s/job-1: No space left on device: the disk is full, so make room on this disk" % tmp_path
    )
    assert names == [], "files of the job keep the disk full"


@pytest.mark.slow
def test_a_disk_that_is_too_full_for_the_agent_is_named(tmp_path):
    """The agent cannot write its reserve, nor a line of its log."""
    worker = {"name": "worker-0", "role": "worker", "index": 0, "command": ["true"]}
    plan = part_json(worker, rendezvous={"own": [], "timeout": 1, "clock": 1})
    answer, _ = on_a_small_disk(tmp_path, "1m", plan)
    assert "the agent did not start" in answer["error"], answer
    assert "job-1: No space left on device: the disk is full" in answer["error"], answer
