"""The agent with the runtime docker. A small program stands in for docker.

It starts the first process of a container as a plain process, without a container around it.
molecule/container has the same jobs under a real engine.
"""

import os
import pathlib
import signal
import sys

import pytest

from mxcluster.agent import commands, runtimes
from mxcluster.node import processes
from tests.unit.agent.jobs import PACKAGE, Contained

ENGINE = """#!%s
import ctypes, os, sys
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # as the first process of a container: adopt orphans
words = sys.argv[1:]
with open(sys.argv[0] + ".asked", "a") as asked:
    asked.write(" ".join(words) + "\\n")
gone = sys.argv[0] + ".gone"
if words[0] == "ps" and not os.path.exists(gone):
    print("c0ffee")
if words[0] == "rm" and open(asked.name).read().count("rm --force") == 1:
    sys.exit("removal of container c0ffee is already in progress")
if words[0] == "rm":
    open(gone, "w").close()
if words[0] != "run":
    sys.exit(0)
if "localhost/nobody" in words:
    sys.stderr.write("docker: No such image: localhost/nobody\\n")
    sys.exit(125)
place = words.index("--entrypoint")
for option, value in zip(words, words[1:]):
    if option == "--env":
        os.environ.update([value.split("=", 1)])
os.chdir(words[words.index("--workdir") + 1])
os.execvp(sys.executable, [sys.executable] + words[place + 3 :])
"""
SLEEP = "trap 'exit 0' USR1; echo ready; while :; do sleep 0.1; done"


@pytest.fixture
def job(tmp_path, monkeypatch):
    """Yield a job whose engine is the program above."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "docker").write_text(ENGINE % sys.executable)
    (folder / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", "%s:%s" % (folder, os.environ["PATH"]))
    (tmp_path / "job").mkdir()
    made = Contained(tmp_path / "job")
    made.engine_folder = folder
    yield made
    if made.folder.status():
        made.ask("stop")
    processes.end_groups(
        processes.with_variable("MXCLUSTER_JOB_DIR", made.path) + list(made.seen), grace=0
    )


@pytest.mark.slow
def test_a_process_is_known_by_its_own_pid_and_not_by_that_of_its_client(job):
    job.start(SLEEP, SLEEP)
    first, second = job.running(2)
    assert processes.variable(first, "MXCLUSTER_PROCESS") == "worker-0"
    assert processes.variable(second, "MXCLUSTER_PROCESS") == "worker-1"
    for pid in (first, second):
        os.kill(pid, signal.SIGUSR1)
    assert [part["exit_code"] for part in job.end()["processes"]] == [0, 0]


@pytest.mark.slow
def test_an_orphan_is_not_taken_for_the_process(job):
    """Also by an agent that looks only when the orphan is there, as this test's own runtime does.

    The orphan is younger by several clock ticks, in which the kernel tells the start of a process.
    """
    status = job.start("sleep 0.1; (sleep 60 &); " + SLEEP)
    (pid,) = job.running(1)
    first = processes.entry(pid).parent

    def orphans():
        return [
            line.pid
            for line in processes.table()
            if line.parent == first
            and processes.command_name(line.pid) == "sleep"
            and processes.variable(line.pid, "MXCLUSTER_JOB_DIR") == job.path
        ]

    assert pid not in job.until(orphans) and processes.command_name(pid) == "sh"
    late = runtimes.of_plan(job.path, job.folder.plan(), job.agent(status))
    assert late.find()["worker-0"].process.pid == pid


@pytest.mark.slow
def test_the_status_of_a_killed_process_is_its_signal(job):
    job.start(SLEEP, SLEEP)
    os.kill(job.running(2)[1], signal.SIGKILL)
    failure = job.end()["first_failure"]
    assert (failure["name"], failure["exit_code"]) == ("worker-1", -signal.SIGKILL)


@pytest.mark.slow
def test_an_engine_that_starts_nothing_is_quoted(job):
    job.image = "localhost/nobody"
    job.start(SLEEP)
    failure = job.end()["first_failure"]
    assert "did not start in a container of docker: docker: No such image" in failure["reason"]


def asked(job):
    """Return the command lines of the engine so far."""
    return (job.engine_folder / "docker.asked").read_text().splitlines()


@pytest.mark.slow
def test_containers_that_the_engine_still_has_are_removed_at_the_end(job):
    """The engine removes the container already, and refuses to begin again. The agent waits."""
    job.start("exit 0")
    job.end()
    listed = "ps --all --quiet --filter label=mxcluster.job_dir=" + job.path
    removed = "rm --force --volumes c0ffee"
    assert asked(job)[-5:] == [listed, removed, listed, removed, listed]


@pytest.mark.slow
def test_containers_that_a_killed_agent_left_are_removed_by_the_next_question(job):
    status = job.start(SLEEP)
    job.running(1)
    assert processes.send(job.agent(status), signal.SIGKILL)
    job.until(lambda: not processes.alive(job.agent(status)))
    assert not any(line.startswith("rm") for line in asked(job))
    assert job.ask("stop")["left"] == []
    assert asked(job)[-2] == "rm --force --volumes c0ffee"


@pytest.mark.slow
@pytest.mark.parametrize("container", ["", "1", '{"engine": "other"}'])
def test_a_damaged_plan_does_not_prevent_the_end_of_a_job(job, container):
    status = job.start(SLEEP)
    job.running(1)
    assert processes.send(job.agent(status), signal.SIGKILL)
    job.until(lambda: not processes.alive(job.agent(status)))
    (job.engine_folder / "other").symlink_to("docker")  # no engine, so the agent must not run it
    plan = pathlib.Path(job.folder.file("plan.json"))
    whole = plan.read_text()
    plan.write_text('{"container": %s}' % container)
    commands.look(job.folder, tidy=True)
    plan.write_text(whole)
    assert job.folder.status().state == "ended"
    assert not any(line.startswith(("ps", "rm")) for line in asked(job))
    assert not (job.engine_folder / "other.asked").exists()


@pytest.mark.slow
def test_the_package_of_the_node_runs_in_the_container(job):
    job.start("echo ready $PYTHONPATH $HOME; pwd")
    job.end()
    assert job.log("worker-0").split() == ["ready", PACKAGE, "/tmp", job.path]
