"""secret_env and the token reach the processes; no other file contains them."""

import json
import os
import pathlib
import sys
import tarfile

import pytest

from mxcluster.errors import MxclusterError
from mxcluster.node import processes
from tests.unit.agent.jobs import ask, in_a_process

SECRET = "the-s3cret-t0ken"


def start(job, *texts, command="start", secrets=None, **plan):
    """Start a job with a secret as the entry does; return the answer."""
    job.plan(*texts, **plan)
    files = dict(secrets or {"secret_env": {"TOKEN": SECRET}}, plan=job.folder.plan().encode())
    os.unlink(job.folder.file("plan.json"))
    return in_a_process(command, job_dir=job.path, **files)[1]


def holding(job):
    """Return the names of the job's files that contain the secret."""
    return [path.name for path in pathlib.Path(job.path).rglob("*") if SECRET in content(path)]


def content(path):
    """Return the text of a file, "" for a folder and for a draft that the agent has renamed."""
    try:
        return path.read_text() if path.is_file() else ""
    except FileNotFoundError:
        return ""


def test_secret_env_is_deleted_when_the_agent_has_read_it(job):
    answer = start(job, "echo ${#TOKEN}; sleep 300", "echo ${#TOKEN}; sleep 300")
    job.remember(answer["status"])
    job.until(lambda: job.log("worker-0") and job.log("worker-1"))
    assert (job.log("worker-0"), job.log("worker-1")) == ("%d\n" % len(SECRET),) * 2
    assert holding(job) == [] and not os.path.exists(job.folder.file("secret_env.json"))
    assert (
        "# from secret_env, not written to disk: export TOKEN=..."
        in pathlib.Path(job.folder.file("worker-0.env")).read_text()
    )
    assert SECRET not in json.dumps(answer) + json.dumps(job.ask("status"))


def test_a_prepared_secret_env_is_readable_for_its_owner_only(job):
    """systemd's unit runs the job later than `prepare`."""
    assert start(job, "true", command="prepare") == {"job": "job-1"}
    assert holding(job) == ["secret_env.json"]
    for name in ("secret_env.json", "plan.json"):
        assert os.stat(job.folder.file(name)).st_mode & 0o777 == 0o600, name
    assert job.folder.take_secret_env() == {"TOKEN": SECRET} and job.folder.take_secret_env() == {}


@pytest.mark.parametrize("secrets", [None, {"token": SECRET}])
def test_an_agent_that_does_not_start_leaves_no_secret(job, monkeypatch, secrets):
    start(job, "true", command="prepare", secrets=secrets)
    assert len(holding(job)) == 1
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(MxclusterError, match="did not start"):
        ask("start", job_dir=job.path)
    assert holding(job) == []


@pytest.mark.parametrize("umask", [0o000, 0o022])
def test_the_archive_is_private_and_has_no_secret(job, tmp_path, umask):
    start(job, "true")
    job.end()
    before = os.umask(umask)
    try:
        job.ask("collect", output=str(tmp_path / "o.tar"))
    finally:
        os.umask(before)
    assert os.stat(str(tmp_path / "o.tar")).st_mode & 0o777 == 0o600
    assert SECRET.encode() not in (tmp_path / "o.tar").read_bytes()


@pytest.mark.slow
def test_the_token_exists_until_the_job_ends(job, tmp_path):
    answer = start(job, "cat token; stat -c %a token; sleep 300", secrets={"token": SECRET})
    job.remember(answer["status"])
    job.until(lambda: job.log("worker-0").count("\n"))
    assert job.log("worker-0") == SECRET + "600\n"
    os.unlink(job.folder.file("worker-0.log"))
    assert holding(job) == ["token"] and SECRET not in json.dumps(answer) + json.dumps(
        job.ask("status")
    )
    job.ask("collect", output=str(tmp_path / "o.tar"))
    assert SECRET.encode() not in (tmp_path / "o.tar").read_bytes()
    with tarfile.open(str(tmp_path / "o.tar")) as archive:
        assert "token" not in archive.getnames()
    job.ask("stop")
    assert job.nothing_left() and holding(job) == []


def test_the_token_of_a_killed_agent_is_removed(job):
    answer = start(job, "sleep 300", secrets={"token": SECRET})
    job.remember(answer["status"])
    assert processes.send(job.agent(answer["status"]), 9)
    job.end()
    assert holding(job) == []
