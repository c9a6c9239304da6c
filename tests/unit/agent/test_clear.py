"""The next job, status.yml and provision.yml remove the files that a hard kill has left and that no job owns."""
import os
import signal
import time

import pytest

from mxcluster import processes
from mxcluster.agent import claims
from mxcluster.kvstore import shared
from tests.unit.agent.jobs import Job, command_line

SPENT = ["lease", "reserve", "secret_env.json", "token", ".status.json.4711", "worker-0.pulse"]


def leave(job):
    """Files that a job has while it runs."""
    for name in SPENT:
        with open(job.folder.file(name), "w") as stream:
            stream.write("x")


def kept(job):
    return sorted(set(os.listdir(job.path)) & set(SPENT))


def killed(job):
    """A job whose agent was killed, with its controller."""
    status = job.start("sleep 60")
    leave(job)
    os.kill(status["agent"]["pid"], signal.SIGKILL)
    job.until(lambda: not processes.alive(job.agent(status)))


def test_what_server_processes_share_is_removed(tmp_path):
    """Its name is there until all of a host have come, and one may die before."""
    job, token = Job(tmp_path / "jobs" / "one"), "t" * 40
    os.makedirs(job.path)
    plan = {"job": "one", "host": "node1", "files": {}, "groups": [[0], [1]], "processes": [
        {"name": "server-%d" % index, "role": "server", "index": index, "group": index % 2, "command": ["true"], "env": {}}
        for index in (4, 5)]}
    job.folder.prepare(plan, None, token)
    path = shared.path_of(token.encode(), 2)
    open(path, "w").close()
    try:
        job.folder.tidy()
        assert not os.path.exists(path) and not os.path.exists(job.folder.file("token"))
        job.folder.tidy()  # without a token nothing is known of it
    finally:
        if os.path.exists(path):
            os.unlink(path)


@pytest.fixture
def jobs(tmp_path):
    """Two jobs of one node."""
    made = [Job(tmp_path / "jobs" / name) for name in ("one", "two")]
    for job in made:
        os.makedirs(job.path)
    yield made
    for job in made:
        if job.folder.status():
            job.ask("stop")
        processes.end_groups(job.seen, grace=0)


def test_what_a_killed_agent_leaves_is_removed(jobs):
    dead, living = jobs
    root = os.path.dirname(dead.path)
    living.start("sleep 60")
    leave(living)
    killed(dead)
    code, answer = command_line("jobs", "--jobs-dir", root)
    assert code == 0 and "cleared" not in answer and kept(dead) == sorted(SPENT)
    code, answer = command_line("jobs", "--jobs-dir", root, "--clear")
    assert code == 0 and answer["cleared"] == ["one"] and kept(dead) == []
    assert {"worker-0.log", "plan.json", "status.json"} <= set(os.listdir(dead.path))
    assert kept(living) == sorted(SPENT), "what belongs to a job that runs was removed"
    os.unlink(living.folder.file("status.json"))  # its agent writes another; it lives all the same
    assert claims.clear(root) == [] and kept(living) == sorted(SPENT)
    living.until(living.folder.status)


def test_the_next_job_removes_it_too(jobs):
    killed(jobs[0])
    jobs[1].start("sleep 60")
    assert kept(jobs[0]) == []


def test_a_job_that_is_about_to_start_keeps_what_it_has(jobs):
    job, root = jobs[0], os.path.dirname(jobs[0].path)
    job.plan("true")
    leave(job)
    assert claims.clear(root) == [] and kept(job) == sorted(SPENT)
    long_ago = time.time() - claims.PREPARED - 1
    os.utime(job.path, (long_ago, long_ago))
    assert claims.clear(root) == ["one"] and kept(job) == []
