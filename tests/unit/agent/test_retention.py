"""Old jobs on a node: which are old, and the removal of their folders."""

import fcntl
import json
import os
import pathlib

import pytest

from mxcluster.agent import claims, retention
from mxcluster.agent.folder import AGENT_LOCK
from tests.unit import statuses
from tests.unit.agent.jobs import ask, in_a_process


def make(root, job, ended=None, **more):
    """Make the folder of a job that ended at the time `ended`, None for a running job."""
    folder = root / job
    folder.mkdir(parents=True)
    state = {"state": "running"} if ended is None else {"state": "ended", "reason": "done"}
    status = statuses.status(dict({"job": job, "ended": ended, "processes": []}, **state, **more))
    (folder / "status.json").write_text(json.dumps(status.encode()))
    (folder / "worker-0.log").write_text("x" * 5000)
    return folder


def test_the_jobs_besides_the_newest_are_old(tmp_path):
    for number, job in enumerate(("c", "a", "b", "d")):
        make(tmp_path, job, ended=1000.0 + number)
    make(tmp_path, "running")
    (make(tmp_path, "damaged", ended=1.0) / "status.json").write_text("{")
    (tmp_path / "prepared").mkdir()
    assert retention.old(str(tmp_path), 2) == ["c", "a"]
    assert retention.old(str(tmp_path), 4) == [] == retention.old(str(tmp_path), 0)
    assert retention.old(str(tmp_path / "missing"), 2) == []


def test_old_jobs_are_removed_and_nothing_else(tmp_path):
    make(tmp_path, "one", ended=1.0)
    make(tmp_path, "two", ended=2.0)
    make(tmp_path, "half", ended=1.0).rename(tmp_path / ".removed-half")  # of a killed call
    answer = ask("remove", jobs_dir=str(tmp_path), remove=["one", "missing"])
    assert answer == {"removed": ["one", "missing"], "problems": []}
    assert os.listdir(str(tmp_path)) == ["two"]


@pytest.mark.parametrize("kind", ["running", "prepared", "damaged", "link", "locked"])
def test_a_job_that_may_run_stays(tmp_path, kind):
    root, away = tmp_path / "jobs", tmp_path / "away"
    folder = make(root, "one", ended=None if kind == "running" else 1.0)
    if kind == "prepared":
        (folder / "status.json").unlink()
    if kind == "damaged":
        (folder / "status.json").write_text("{")
    if kind == "link":
        folder.rename(away)
        folder.symlink_to(away)
    lock = claims.open_lock(str(folder / AGENT_LOCK))
    if kind == "locked":
        fcntl.flock(lock, fcntl.LOCK_EX)
    answer = ask("remove", jobs_dir=str(root), remove=["one"])
    os.close(lock)
    assert answer["removed"] == [] and str(folder) in answer["problems"][0], answer
    assert (folder / "worker-0.log").exists()


def test_no_link_in_a_folder_is_followed(tmp_path):
    """A script may have written anything into the folder of its job."""
    root, kept = tmp_path / "jobs", tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("x")
    (make(root, "one", ended=1.0) / "link").symlink_to(kept)
    assert ask("remove", jobs_dir=str(root), remove=["one"])["removed"] == ["one"]
    assert (kept / "file").exists() and os.listdir(str(root)) == []


def test_a_folder_that_cannot_be_removed_is_named(tmp_path, monkeypatch):
    make(tmp_path, "one", ended=1.0)

    def refuse(source, target):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(retention.os, "rename", refuse)
    answer = ask("remove", jobs_dir=str(tmp_path), remove=["one"])
    assert answer["removed"] == [] and "Permission denied" in answer["problems"][0]


@pytest.mark.parametrize("name", ["../one", ".removed-one", ""])
def test_a_name_of_no_job_is_refused(tmp_path, name):
    with pytest.raises(ValueError):
        ask("remove", jobs_dir=str(tmp_path), remove=[name])


@pytest.mark.slow
def test_the_start_of_a_job_removes_old_jobs(job):
    """The controller names the old jobs, and a running job among them stays."""
    root = pathlib.Path(job.path).parent
    make(root, "old", ended=1.0)
    make(root, "other")
    job.plan("sleep 300")
    code, answer = in_a_process("start", job_dir=job.path, remove=["old", "other"])
    assert code == 0, answer
    job.remember(answer["status"])
    assert claims.names(str(root)) == ["job-1", "other"]


def test_the_list_of_jobs_measures_the_disk(tmp_path):
    for number in range(12):
        make(tmp_path, "job-%02d" % number, ended=1000.0 + number)
    listing = ask("jobs", jobs_dir=str(tmp_path), measure=True)
    assert len(listing["jobs"]) == 10 and listing["disk"]["jobs"] == 12
    assert listing["disk"]["bytes"] >= 12 * 5000 and listing["disk"]["free"] > 0
    every = ask("jobs", jobs_dir=str(tmp_path), every=True)
    assert len(every["jobs"]) == 12 and every.get("disk") is None
