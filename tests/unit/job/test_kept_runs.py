"""The runs on the controller that make the folders of a job on the nodes redundant."""

import json
import os

import pytest

from mxcluster.job import kept_runs
from tests.unit import statuses


def make(runs_dir, job, complete=("a", "b"), **more):
    """Make the run folder of a job of the nodes a and b."""
    folder = runs_dir / job
    for host in ("a", "b"):
        (folder / "nodes" / host).mkdir(parents=True)
    nodes = {"a": "done", "b": "done"}
    given = dict({"ok": True, "job": job, "nodes": nodes, "complete": list(complete)}, **more)
    (folder / "verdict.json").write_text(json.dumps(statuses.of_verdict(given).encode()))
    return folder


def test_a_job_is_removable_if_all_its_files_are_in_its_run(tmp_path):
    make(tmp_path, "whole")
    make(tmp_path, "half", complete=["a"])
    make(tmp_path, "another").rename(tmp_path / "other")
    (make(tmp_path, "pruned") / "nodes" / "b").rmdir()
    (make(tmp_path, "damaged") / "verdict.json").write_text("{")
    (make(tmp_path, "running") / "verdict.json").unlink()
    (tmp_path / "linked").symlink_to(make(tmp_path / "elsewhere", "linked"))
    jobs = ["whole", "half", "other", "pruned", "damaged", "running", "linked", "../x", "missing"]
    assert kept_runs.removable(str(tmp_path), jobs) == ["whole"]
    assert sorted(kept_runs.read(str(tmp_path))) == ["half", "pruned", "whole"]


def test_a_run_of_an_earlier_version_is_not_complete(tmp_path):
    path = make(tmp_path, "one") / "verdict.json"
    known = json.loads(path.read_text())
    del known["complete"]
    path.write_text(json.dumps(known))
    assert kept_runs.removable(str(tmp_path), ["one"]) == []


def test_a_start_removes_few_jobs(tmp_path, monkeypatch):
    monkeypatch.setattr(kept_runs, "MOST_REMOVED", 2)
    for job in ("c", "a", "b"):
        make(tmp_path, job)
    assert kept_runs.removable(str(tmp_path), ["c", "a", "b"]) == ["c", "a"]


def test_runs_are_removed_with_their_rows_in_the_page(tmp_path):
    make(tmp_path, "one")
    make(tmp_path, "two")
    (tmp_path / "index.html").write_text(kept_runs_mark() + "one two")
    removal = kept_runs.remove(str(tmp_path), ["one", "missing"])
    assert removal.jobs == ["one"] and removal.bytes > 0 and "missing" in removal.problems[0]
    assert sorted(os.listdir(str(tmp_path))) == ["index.html", "two"]
    assert "one two" not in (tmp_path / "index.html").read_text()


def test_the_verdict_goes_last_so_that_a_second_call_finds_the_rest(tmp_path, monkeypatch):
    """The order of a folder's files depends on the file system, so files lie on both sides."""
    for number in range(20):
        (tmp_path / "one").mkdir(exist_ok=True)
        (tmp_path / "one" / ("before-%d" % number)).write_text("x")
    folder, unlink, order = make(tmp_path, "one"), os.unlink, []
    for number in range(20):
        (folder / ("after-%d" % number)).write_text("x")

    def note(path, **more):
        order.append(os.path.basename(str(path)))
        unlink(path, **more)

    monkeypatch.setattr(os, "unlink", note)
    assert kept_runs.remove(str(tmp_path), ["one"]).jobs == ["one"] and not folder.exists()
    assert len(order) == 41 and order[-1] == "verdict.json", order


def kept_runs_mark():
    """Return the mark by which mxcluster knows its own page."""
    from mxcluster.job.report import history

    return history.MARK


def test_checkpoints_of_a_run_are_seen(tmp_path):
    (make(tmp_path, "one") / "checkpoints").mkdir()
    assert not kept_runs.of_job(str(tmp_path), "one").has_checkpoints
    (tmp_path / "one" / "checkpoints" / "mlp-0001.params").write_text("x")
    assert kept_runs.of_job(str(tmp_path), "one").has_checkpoints


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([[], []], ""),
        ([["a"], []], "the folders of 1 old job from 1 node, because runs_dir has all"),
        ([["a", "b"], ["b", "c", "d"]], "4 old jobs from 2 nodes"),
    ],
)
def test_the_start_announces_the_old_jobs(given, words):
    line = kept_runs.announcement(50, given)
    assert words in line and bool(line) == bool(words)
    if "4 old" in words:
        assert line.startswith("keep_jobs=50: ") and line.endswith(": a, b, c and 1 more")
