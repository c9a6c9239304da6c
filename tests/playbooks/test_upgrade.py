"""A cluster that an older version has provisioned is taken over, with its jobs."""

import json
import shutil
import subprocess

import pytest

from tests.playbooks.conftest import SOURCE, Project
from tests.recap import changes

# The last version with the package in node/.
BEFORE = "5faeefa9d23751c303ca619abea9ee384c7a2e53"
SMALL = ("-i", "inventory/small")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Return the project with a cluster of the old version, an ended job and one that runs."""
    known = subprocess.run(
        ["git", "cat-file", "-e", BEFORE + "^{commit}"], cwd=str(SOURCE), stderr=subprocess.DEVNULL
    )
    if known.returncode:
        pytest.skip("this clone has no history: fetch the commit %s" % BEFORE)
    made = Project(tmp_path_factory.mktemp("upgrade"), commit=BEFORE)
    made.small_inventory()
    made.environment["PYTHONPATH"] = str(made.path / "node")
    done = made.run("provision.yml", *SMALL)
    assert done.code == 0, done.output
    trained, run = made.train(
        *SMALL, kv="dist_gsync", num_epochs=2, savemodel=True, job_id="before"
    )
    assert trained.code == 0 and list((run / "checkpoints").iterdir()), trained.output
    started, _ = made.train(
        *SMALL,
        kv="dist_async",
        script=str(SOURCE / "tests" / "playbooks" / "scripts" / "faulty.py"),
        script_args=["dist_async", "nothing"],
        detach=True,
        job_id="of-last-version",
    )
    assert started.code == 0, started.output
    made.environment.clear()
    for old in made.path.iterdir():
        if old.name not in (".state", "runs", "inventory"):
            shutil.rmtree(str(old)) if old.is_dir() and not old.is_symlink() else old.unlink()
    made.copy_files()
    made.use_own_addresses()
    yield made
    made.run("stop.yml", *SMALL, "-e", "all=true")


@pytest.mark.soak
def test_an_old_cluster_and_its_jobs_are_taken_over(cluster):
    for playbook, words in (
        ("provision.yml", ["failed=0"]),
        ("status.yml", ["of-last-version", "running, detached", "before", "done"]),
        ("logs.yml -e job=of-last-version", ["step "]),
    ):
        done = cluster.run(*playbook.split(), *SMALL)
        assert done.code == 0 and all(word in done.output for word in words), done.output

    # Other places for the jobs, while one runs in the old place.
    moved = cluster.run("provision.yml", *SMALL, "-e", "mxcluster_job_dir=/nowhere/jobs")
    assert moved.code != 0 and not any(changes(moved.output).values()), moved.output
    for word in (
        "node1",
        "node2",
        "job of-last-version",
        "mxcluster_job_dir",
        "/nowhere/jobs",
        "stop.yml",
    ):
        assert word in moved.output, moved.output

    stopped = cluster.run("stop.yml", *SMALL, "-e", "job=of-last-version")
    assert stopped.code == 0 and "left      nothing" in stopped.output, stopped.output
    cluster.wait_for_nothing_left()

    resumed, run = cluster.train(*SMALL, resume="before", num_epochs=4, job_id="after")
    verdict = json.loads((run / "verdict.json").read_text())
    assert resumed.code == 0 and verdict["ok"] and verdict["kv"] == "dist_gsync", resumed.output
    assert "after epoch 2" in resumed.output, resumed.output
