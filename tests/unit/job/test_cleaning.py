"""The choice of clean.yml: which old jobs and runs go, and which stay."""

import pytest

from mxcluster.job import cleaning
from mxcluster.job.kept_runs import Removal, Run
from mxcluster.model.answers import JobEntry, JobList, Removed
from tests.unit import statuses

DAY = 86400.0
NOW = 100 * DAY


def entry(job, days=40.0, state="ended", processes=("worker-0",), **more):
    """Return the summary of a job that ended some days ago."""
    parts = [{"name": name, "state": "ended", "exit_code": 0} for name in processes]
    status = {"job": job, "state": "ended", "reason": "done", "processes": parts}
    ended = None if state in ("running", "prepared") else NOW - days * DAY
    known = statuses.status(dict(status, ended=ended))
    fields = {"job": job, "state": state, "ended": ended, "started": NOW - 50 * DAY, "nodes": ["a"]}
    return JobEntry(**dict(fields, reason="done" if ended else None, status=known, **more))


def run(days=40.0, complete=True, checkpoints=False, nodes=("a",)):
    return Run(NOW - days * DAY, list(nodes), complete, checkpoints)


def choose(entries, runs, lost=()):
    answers = {"a": JobList(jobs=entries), **dict.fromkeys(lost)}
    return cleaning.choose(answers, runs, 30 * DAY, NOW)


def test_old_jobs_and_runs_go_and_young_ones_stay():
    found = choose([entry("old"), entry("young", 20)], {"old": run(), "young": run(20)})
    assert found == ({"a": ["old"]}, ["old"], [])


@pytest.mark.parametrize("state", ["running", "prepared"])
def test_an_active_job_and_its_run_stay(state):
    """A run may have an older verdict of the same job."""
    assert choose([entry("one", state=state)], {"one": run()}) == ({}, [], [])


def test_a_job_without_a_complete_run_stays_and_is_named():
    """Nobody has collected a detached job, or a node was lost at the end of a job."""
    found = choose([entry("none"), entry("half")], {"half": run(complete=False)})
    assert not found.parts and not found.runs
    assert [line.split()[:4] for line in found.kept] == [
        ["job", "none", "on", "a:"],
        ["job", "half", "on", "a:"],
    ]
    assert "train.yml -e attach=none" in found.kept[0]


def test_a_rendezvous_leaves_nothing_to_keep():
    """verify.yml makes such jobs, and they have no run."""
    assert choose([entry("verify-1", processes=())], {}).parts == {"a": ["verify-1"]}


def test_the_only_checkpoints_of_a_job_stay():
    found = choose([entry("one")], {"one": run(checkpoints=True)})
    assert found.parts == {"a": ["one"]} and not found.runs
    assert "run one: it has the only checkpoints" in found.kept[0]


def test_a_run_whose_node_does_not_answer_stays():
    found = choose([], {"one": run(nodes=("a", "b")), "two": run()}, lost=["b"])
    assert found.runs == ["two"] and "run one: no answer from b" in found.kept[0]


def test_a_run_without_all_files_stays_if_a_node_is_of_another_inventory():
    """All inventories have one runs_dir, and a controller can still attach to that job."""
    runs = {"half": run(complete=False, nodes=("a", "z")), "whole": run(nodes=("a", "z"))}
    found = choose([], runs)
    assert found.runs == ["whole"]
    assert "run half: no answer from z," in found.kept[0] and "with -i" in found.kept[0]


def test_a_run_stays_if_a_node_keeps_a_part_of_its_job():
    parts = {"a": ["one", "two"], "b": ["one"]}
    done = {"a": Removed(removed=["one", "two"], problems=[]), "b": None}
    assert cleaning.without_failed(["one", "two", "three"], parts, done) == ["two", "three"]


def test_the_result_names_what_stays_and_what_failed():
    done = {"a": Removed(removed=["one"], problems=[])}
    lines = cleaning.result({"a": ["one"]}, done, Removal(["one"], 5, []), ["run x: why"])
    assert lines == [
        "OK        removed 1 job folder of 1 node, and 1 run folder",
        "kept      run x: why",
    ]
    failed = {"a": Removed(removed=[], problems=["the job in /j/one has not ended\x1b"]), "b": None}
    lines = cleaning.result({"a": ["one"], "b": ["one"]}, failed, Removal([], 0, ["no right"]), [])
    assert lines == [
        "FAILED    removed 0 job folders of 0 nodes, and 0 run folders",
        "a: the job in /j/one has not ended",
        "no answer from b: run clean.yml again",
        "no right",
    ]


def test_a_dry_run_names_all():
    assert cleaning.dry_run({"a": ["one", "two"]}, ["one"], ["run x: why"]) == [
        "CHECK     clean.yml would remove 2 job folders of 1 node, and 1 run folder",
        "  a: one two",
        "  runs: one",
        "kept      run x: why",
    ]
