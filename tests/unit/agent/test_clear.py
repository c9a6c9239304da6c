"""Files that a killed agent left: the next job, status.yml and provision.yml remove them."""

import os
import secrets
import signal
import time

import pytest

from mxcluster.agent import claims
from mxcluster.node import processes
from mxcluster.training.kvstore import shared_memory
from tests.plans import part_of
from tests.unit.agent.jobs import Job, files, in_a_process

SPENT = ["lease", "reserve", "secret_env.json", "token", ".status.json.4711", "worker-0.pulse"]


def leave(job):
    """Write the files that a job has while it runs."""
    for name in SPENT:
        with open(job.folder.file(name), "w") as stream:
            stream.write("x")


def kept(job):
    return sorted(set(os.listdir(job.path)) & set(SPENT))


def killed(job):
    """Start a job, then kill its agent; the job has no controller."""
    status = job.start("sleep 60")
    leave(job)
    assert processes.send(job.agent(status), signal.SIGKILL)
    job.until(lambda: not processes.alive(job.agent(status)))


def test_shared_memory_of_server_processes_is_removed(tmp_path):
    """The segment has a name until all servers of a host have opened it; one may die earlier."""
    job, token = Job(tmp_path / "jobs" / "one"), secrets.token_hex(20)  # all runs share /dev/shm
    os.makedirs(job.path)
    servers = [
        {
            "name": "server-%d" % index,
            "role": "server",
            "index": index,
            "group": index % 2,
            "command": ["true"],
        }
        for index in (4, 5)
    ]
    plan = part_of(*servers, job="one", groups=[[0], [1]])
    job.folder.prepare(files(plan, token=token))
    path = shared_memory.path_of(token.encode(), 2)
    open(path, "w").close()
    try:
        job.folder.tidy()
        assert not os.path.exists(path) and not os.path.exists(job.folder.file("token"))
        job.folder.tidy()  # without a token, the segment's name is unknown
    finally:
        if os.path.exists(path):
            os.unlink(path)


@pytest.fixture
def jobs(tmp_path):
    """Yield two jobs of one node."""
    made = [Job(tmp_path / "jobs" / name) for name in ("one", "two")]
    for job in made:
        os.makedirs(job.path)
    yield made
    for job in made:
        if job.folder.status():
            job.ask("stop")
        processes.end_groups(job.seen, grace=0)


@pytest.mark.slow
def test_files_of_a_killed_agent_are_removed(jobs):
    dead, living = jobs
    root = os.path.dirname(dead.path)
    living.start("sleep 60")
    leave(living)
    killed(dead)
    code, answer = in_a_process("jobs", jobs_dir=root, check=True)
    assert code == 0 and "cleared" not in answer and kept(dead) == sorted(SPENT)
    code, answer = in_a_process("jobs", jobs_dir=root)
    assert code == 0 and answer["cleared"] == ["one"] and kept(dead) == []
    assert {"worker-0.log", "plan.json", "status.json"} <= set(os.listdir(dead.path))
    assert kept(living) == sorted(SPENT), "files of a running job were removed"
    os.unlink(living.folder.file("status.json"))  # its agent is alive and writes another
    assert claims.clear(root) == [] and kept(living) == sorted(SPENT)
    living.until(living.folder.status)


@pytest.mark.slow
def test_the_next_job_removes_files_of_a_killed_agent(jobs):
    killed(jobs[0])
    jobs[1].start("sleep 60")
    assert kept(jobs[0]) == []


def test_a_prepared_job_keeps_its_files_until_the_time_limit(jobs):
    job, root = jobs[0], os.path.dirname(jobs[0].path)
    job.plan("true")
    leave(job)
    assert claims.clear(root) == [] and kept(job) == sorted(SPENT)
    long_ago = time.time() - claims.PREPARED - 1
    os.utime(job.path, (long_ago, long_ago))
    assert claims.clear(root) == ["one"] and kept(job) == []
