"""The job that an interrupted ansible-playbook leaves on the nodes."""

import os

import pytest

from mxcluster.ansible import attempts, left_job

PLANNED = {"packed_plan": "x", "job": "mine", "options": {"lease": 10.0, "detach": False}}
RUNS = "LEFT      job mine, which still runs on its nodes. Its lease ends the job 10 to 20 s after"


@pytest.fixture(autouse=True)
def first_process(monkeypatch):
    """Let this process be no child, and forget the file of the note after the test."""
    monkeypatch.delenv(attempts.CHILD, raising=False)
    monkeypatch.setenv(left_job.NOTE, "")


def begun(folder, command="start", planner="mxcluster_plan", **options):
    """Return the LeftJob of an ansible-playbook that has begun the job."""
    job = left_job.LeftJob(str(folder))
    job.learn(planner, dict(PLANNED, options=dict(PLANNED["options"], **options)))
    job.at_task("mxcluster_node", command)
    return job


@pytest.mark.parametrize(
    "command, planner",
    [("start", "mxcluster_plan"), ("prepare", "mxcluster_plan"), ("wait", "mxcluster_jobs")],
)
def test_a_job_is_shown_from_its_start_to_its_report(tmp_path, command, planner):
    job = begun(tmp_path, command, planner)
    job.at_task("mxcluster_node", "wait")
    lines = job.lines("inventory/mine")
    assert lines[0].startswith(RUNS), lines
    assert "attach    ansible-playbook -i inventory/mine train.yml -e attach=mine" in lines
    assert "end       ansible-playbook -i inventory/mine stop.yml -e job=mine" in lines
    job.at_task("mxcluster_report", None)
    assert job.lines("") == [] and not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", ["look", "find", "stop", "collect"])
def test_nothing_is_shown_without_a_started_job(tmp_path, command):
    assert begun(tmp_path, command).lines("") == []


def test_the_answer_of_a_node_plans_no_job(tmp_path):
    assert begun(tmp_path, planner="mxcluster_node").lines("") == []


def test_a_detached_job_has_no_lease(tmp_path):
    assert "It has no lease, so it runs to its end." in begun(tmp_path, detach=True).lines("")[0]


def test_the_first_process_shows_the_job_of_its_child(tmp_path, monkeypatch):
    parent = left_job.LeftJob(str(tmp_path))
    monkeypatch.setenv(attempts.CHILD, "benchmark.yml")
    child = begun(tmp_path / "of-child")
    assert child.lines("") == []
    monkeypatch.delenv(attempts.CHILD)
    assert parent.lines("")[0].startswith(RUNS)
    child.forget()
    assert parent.lines("") == []
    assert os.environ[left_job.NOTE].startswith(str(tmp_path))
