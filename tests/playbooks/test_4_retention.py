"""Old jobs and runs: keep_jobs of train.yml, clean.yml, and the disk space in status.yml."""

import json
import os
import shutil
import time

import pytest

from mxcluster.job import kept_runs
from tests.playbooks.conftest import On

MONTH = 40 * 86400.0  # seconds, more than the age that the tests give


@pytest.fixture(scope="module")
def single(project):
    """Return the project on its first node, so that the test can count the jobs of the node."""
    return On(project, project.inventory("single", nodes=1))


def job_folders(single):
    """Return {job: folder} of the started jobs on the node."""
    folders = (single.path / ".state" / "local" / "jobs" / "node1").iterdir()
    return {path.name: path for path in folders if (path / "status.json").exists()}


def end_at(folder, when):
    """Write another end of the job into its status on the node."""
    path = folder / "status.json"
    path.write_text(json.dumps(dict(json.loads(path.read_text()), ended=when)))


@pytest.mark.soak  # test_kept_runs.py chooses the old jobs
def test_old_jobs_go_and_uncollected_ones_stay(single):
    """The start of a job removes the oldest job folder, whose files the controller has."""
    result, run = single.train(kv="dist_sync", num_epochs=1, job_id="oldest")
    assert result.code == 0, result.output
    assert json.loads((run / "verdict.json").read_text())["complete"] == ["node1"]
    oldest = job_folders(single)["oldest"]
    # Two jobs of another controller: one old, and one young, so that keep_jobs is above 0.
    uncollected, youngest = oldest.with_name("uncollected"), oldest.with_name("youngest")
    for copy in (uncollected, youngest):
        shutil.copytree(str(oldest), str(copy))
    end_at(uncollected, 1000.0)
    end_at(oldest, 1001.0)
    # The jobs of other tests are younger. A test that kills an agent leaves a job without an end.
    statuses = [folder / "status.json" for folder in job_folders(single).values()]
    ended = [path for path in statuses if json.loads(path.read_text())["state"] == "ended"]
    keep = len(ended) - 2
    options = dict(kv="dist_sync", num_epochs=1, savemodel=True, keep_jobs=keep)
    result, _ = single.train("--check", job_id="dry", **options)
    assert "the start removes the folders of 1 old job from 1 node" in result.output, result.output
    assert oldest.exists()
    result, run = single.train(job_id="with-checkpoints", **options)
    assert result.code == 0, result.output
    words = "keep_jobs=%d: the start removes the folders of 1 old job from 1 node" % keep
    assert words in result.output and ": oldest\n" in result.output, result.output
    assert not oldest.exists() and uncollected.exists()
    assert (single.path / "runs" / "oldest" / "report.html").exists()

    lasting = start_lasting(single)
    clean_up(single, run)
    assert lasting.exists() and single.status("lasting", "node1")["state"] == "running"
    assert (single.path / "runs" / "lasting" / "verdict.json").exists()
    stopped = single.run("stop.yml", "-e", "job=lasting")
    assert stopped.code == 0, stopped.output
    single.wait_for_nothing_left()


def start_lasting(single):
    """Start a detached job whose run has an old verdict, and return its folder on the node."""
    runs = single.path / "runs"
    options = dict(kv="dist_sync", num_epochs=100000, step_ms=50, start_timeout=0)
    result, run = single.train(job_id="lasting", detach=True, **options)
    assert result.code == 0, result.output
    verdict = json.loads((runs / "oldest" / "verdict.json").read_text())
    (run / "verdict.json").write_text(json.dumps(dict(verdict, job="lasting")))
    (run / "nodes" / "node1").mkdir(parents=True)
    long_ago = time.time() - MONTH
    os.utime(str(run / "verdict.json"), (long_ago, long_ago))
    assert kept_runs.of_job(str(runs), "lasting").is_complete
    return single.path / ".state" / "local" / "jobs" / "node1" / "lasting"


def clean_up(single, saved):
    """Check clean.yml after the jobs oldest, saved and uncollected, while the job lasting runs."""
    refused = single.run("clean.yml", "-e", "older_than=30")
    assert refused.code != 0 and "such as 30d, 12h or 2w" in refused.output, refused.output
    long_ago = time.time() - MONTH
    end_at(job_folders(single)["with-checkpoints"], long_ago)
    for job in ("oldest", "with-checkpoints"):
        path = str(single.path / "runs" / job / "verdict.json")
        os.utime(path, (long_ago, long_ago))
    dry = single.run("clean.yml", "-e", "older_than=30d", "--check")
    assert dry.code == 0, dry.output
    words = "CHECK     clean.yml would remove 1 job folder of 1 node, and 1 run folder"
    assert words in dry.output and "  node1: with-checkpoints\n" in dry.output, dry.output
    assert "lasting" not in dry.output, dry.output
    assert "with-checkpoints" in job_folders(single) and (single.path / "runs" / "oldest").exists()

    result = single.run("clean.yml", "-e", "older_than=30d")
    assert result.code == 0, result.output
    assert "OK        removed 1 job folder of 1 node, and 1 run folder" in result.output
    for line in (
        "kept      job uncollected on node1: runs_dir has not all of its files.",
        "kept      run with-checkpoints: it has the only checkpoints of its job.",
    ):
        assert line in result.output, result.output
    assert "with-checkpoints" not in job_folders(single) and saved.exists()
    assert not (single.path / "runs" / "oldest").exists()
    again = single.run("clean.yml", "-e", "older_than=30d")
    assert again.code == 0, again.output
    assert "removed 0 job folders of 0 nodes, and 0 run folders" in again.output, again.output

    status = single.run("status.yml")
    words = "disk      1 node: %d job folder" % len(job_folders(single))
    assert status.code == 0 and words in status.output, status.output
