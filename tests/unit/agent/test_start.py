"""Starting an agent, and what its processes find."""
import json
import os
import pathlib
import stat
import subprocess
import sys
import zipfile

from mxcluster import processes
from mxcluster.agent.claims import LOCK
from tests.ansible_modules import let_everybody_through
from tests.unit.agent.jobs import PACKAGE, command_line


def environment_of(pid):
    with open("/proc/%d/environ" % pid, "rb") as stream:
        return dict(item.split("=", 1) for item in stream.read().decode().split("\0") if item)


def targets(pid):
    """{descriptor: what it is open on} of a process."""
    folder = "/proc/%d/fd" % pid
    return {int(name): os.readlink(os.path.join(folder, name)) for name in os.listdir(folder)}


def test_start_returns_with_the_first_status(job):
    status = job.start("sleep 20", "sleep 20", lease=30)
    assert status == job.folder.status(), "what start answers is what the file says"
    assert (status["job"], status["host"], status["state"], status["reason"]) == ("job-1", "node1", "running", None)
    assert status["ended"] is None and status["first_failure"] is None
    assert processes.alive(job.agent(status))
    for index, part in enumerate(status["processes"]):
        who = processes.Identity(part["pid"], part["start_time"])
        assert processes.alive(who)
        assert part == {"name": "worker-%d" % index, "role": "worker", "index": index, "pid": who.pid,
                        "start_time": who.start_time, "state": "running", "exit_code": None, "ended_at": None,
                        "ended_by": None}
        entry = processes.entry(who.pid)
        assert (entry.parent, entry.group, entry.session) == (status["agent"]["pid"], who.pid, who.pid)
    assert os.path.exists(job.folder.file("lease"))


def kernel_log():
    """The kernel's log, where it may be read."""
    try:
        os.close(os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK))
    except OSError:
        return []
    return ["/dev/kmsg"]


def test_the_agent_holds_nothing_of_whoever_started_it(job):
    inherited, other_end = os.pipe()  # as ansible and ssh have them open when they start a command
    os.set_inheritable(other_end, True)
    job.plan("sleep 20")
    ran = subprocess.Popen([sys.executable, "-m", "mxcluster.agent", "start", "--job-dir", job.path], close_fds=False,
                           stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                           env=dict(os.environ, PYTHONPATH=PACKAGE))
    os.close(other_end)
    out, err = ran.communicate(timeout=10)  # only comes back when nobody holds the pipes any more
    assert ran.returncode == 0, (out, err)
    assert os.read(inherited, 1) == b"", "somebody still holds a pipe that it has inherited"
    os.close(inherited)
    status = json.loads(out.decode())["status"]
    job.remember(status)
    agent, worker = status["agent"]["pid"], status["processes"][0]["pid"]
    log, lock = job.folder.file("agent.log"), job.folder.file("agent.lock")
    assert sorted(targets(agent).values()) == sorted(["/dev/null", log, log, lock] + kernel_log())
    assert targets(worker) == {0: "/dev/null", 1: job.folder.file("worker-0.log"), 2: job.folder.file("worker-0.log")}
    entry = processes.entry(agent)
    assert entry.session not in (os.getsid(0), agent), "a session of its own, led by nobody"
    assert os.readlink("/proc/%d/cwd" % worker) == os.path.realpath(job.path)


def test_the_environment_is_the_plans_and_little_else(job):
    status = job.start("sleep 20", env={"DMLC_ROLE": "worker", "LANG": "C", "TEXT": "it's $HOME"},
                       environment={"SECRET": "of the caller", "LANG": "fr_FR", "PYTHONHASHSEED": "1"})
    found = environment_of(status["processes"][0]["pid"])
    found.pop("PWD", None)  # shells set it themselves
    expected = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH") if name in os.environ}
    assert found == dict(expected, DMLC_ROLE="worker", LANG="C", TEXT="it's $HOME")
    mode = os.stat(job.folder.file("worker-0.env")).st_mode
    assert stat.S_IMODE(mode) == 0o600
    assert "of the caller" not in open(job.folder.file("worker-0.env")).read()


def test_nobody_else_reads_a_jobs_folder_or_holds_its_locks(job):
    """Also a folder and a lock as an earlier version has made them."""
    secret, lock, starting = (job.folder.file(name) for name in ("secret.py", "agent.lock", os.path.join(os.pardir, LOCK)))
    let_everybody_through(pathlib.Path(secret))
    for path in (secret, lock):
        with open(path, "w") as stream:
            stream.write("token")
        os.chmod(path, 0o644)
    os.chmod(job.path, 0o755)
    job.start("sleep 20")
    assert [stat.S_IMODE(os.stat(path).st_mode) for path in (job.path, lock, starting)] == [0o700, 0o600, 0o600]
    if os.geteuid() == 0:
        for path in (secret, lock, starting):
            tried = subprocess.run(["runuser", "-u", "nobody", "--", "flock", "--nonblock", path, "cat", path],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            assert tried.returncode != 0 and b"Permission denied" in tried.stderr and tried.stdout == b"", tried


def test_processes_get_signals_as_usual(job):
    """The agent blocks signals for itself; inherited by its processes, SIGTERM would not end them."""
    status = job.start(["sleep", "20"])  # no shell: shells block signals for a moment when they fork
    with open("/proc/%d/status" % status["processes"][0]["pid"]) as stream:
        found = dict(line.split(":\t") for line in stream.read().splitlines() if line.startswith("Sig"))
    assert int(found["SigBlk"], 16) == 0, found


def test_output_and_errors_go_to_the_log_as_they_come(job):
    job.start([sys.executable, "-uc", "import sys, time; print('out'); print('err', file=sys.stderr); time.sleep(20)"])
    job.until(lambda: job.log("worker-0") == "out\nerr\n")


def test_arguments_keep_their_quoting(job):
    job.start([sys.executable, "-c", "import sys; print(sys.argv[1:])", "a", "b c", "$HOME", "'", ""])
    assert job.end()["reason"] == "done"
    assert job.log("worker-0") == "['a', 'b c', '$HOME', \"'\", '']\n"


def test_a_second_agent_is_refused(job):
    status = job.start("sleep 20")
    assert command_line("start", "--job-dir", job.path) == (1, {
        "error": "another controller has started the job %s (%s, agent pid %d), and it runs: choose another job_id, or wait for "
                 "that job with train.yml -e attach=%s"
                 % (os.path.basename(job.path), job.path, status["agent"]["pid"], os.path.basename(job.path))})
    assert job.folder.status() == status


def test_a_folder_serves_one_job_only(job):
    job.start("true")
    job.end()
    job.nothing_left()
    assert command_line("start", "--job-dir", job.path) == (1, {
        "error": "%s holds a job that has ended already (done): choose another job_id" % job.path})


def test_a_plan_that_is_not_there(job):
    code, answer = command_line("start", "--job-dir", job.path)
    assert code == 1 and answer["error"].startswith("%s/plan.json is not there" % job.path), answer


def test_a_command_that_does_not_exist_fails_the_job(job):
    job.start("sleep 20", ["/no/such/python", "-m", "nothing"], "sleep 20")
    status = job.end()
    assert status["reason"] == "failed"
    failure = status["first_failure"]
    assert failure["reason"].startswith("could not be started: "), failure
    assert "No such file or directory: '/no/such/python'" in failure["reason"], failure
    assert (failure["name"], failure["exit_code"], failure["log"]) == ("worker-1", None, [failure["reason"]])
    assert [(part["state"], part["exit_code"], part["ended_by"]) for part in status["processes"]] == [
        ("ended", -15, "agent"), ("ended", 127, "self"), ("ended", None, "agent")], "the third was never started"
    job.nothing_left()


def test_an_agent_that_cannot_work_says_why(job):
    job.plan("true")
    os.mkdir(job.folder.file("worker-0.log"))  # in the way of the log
    os.mkdir(job.folder.file("status.json"))  # and of the status
    code, answer = command_line("start", "--job-dir", job.path)
    assert code == 1 and "Is a directory" in answer["error"], answer
    os.rmdir(job.folder.file("status.json"))


def test_from_a_zip_file(job, tmp_path):
    """As it lies on the nodes: one file on sys.path."""
    archive = str(tmp_path / "mxcluster.zip")
    with zipfile.ZipFile(archive, "w") as packed:
        for root, _, files in os.walk(os.path.join(PACKAGE, "mxcluster")):
            for name in (name for name in files if name.endswith(".py")):
                path = os.path.join(root, name)
                packed.write(path, os.path.relpath(path, PACKAGE))
    environment = dict(os.environ, PYTHONPATH=archive)
    job.plan([sys.executable, "-c", "import mxcluster; print(mxcluster.__file__)"], env={"PYTHONPATH": archive})

    def call(module, *argv):
        out = subprocess.check_output([sys.executable, "-m", module] + list(argv), env=environment, cwd="/", timeout=20)
        return json.loads(out.decode())

    job.remember(call("mxcluster.agent", "start", "--job-dir", job.path)["status"])
    status = call("mxcluster.agent", "wait", "--job-dir", job.path, "--seconds", "5")["status"]
    assert status["reason"] == "done", job.evidence(status)
    assert job.log("worker-0") == "%s/mxcluster/__init__.py\n" % archive
    assert call("mxcluster.node", "look", "--request", '{"address": "127.0.0.1"}')["problems"] == []
