"""Every fault ends the whole job, names its cause, and leaves nothing.

This file runs a fault of each kind: a process is killed, hangs, or waits for ever, and a disk is
full. A diverging loss ends a job of tests/training/test_program.py, and molecule has faults of
whole nodes. The soak runs each fault with each scheme.
"""

import os

import pytest

from tests.playbooks.conftest import NET, small_disk
from tests.playbooks.faults import FAULTS, suffer

CASES = (
    ("server killed in an update", "dist_gsync"),
    ("agent killed", "dist_ssync"),
    ("worker hangs", "dist_ssync"),
    ("key left out", "dist_gsync"),  # a blocked worker shows in the pushes of its own group
    ("disk full", "dist_ssync"),
)


@pytest.mark.parametrize("name, kv", CASES)
def test_a_fault_ends_the_job(project, name, kv):
    assert kv in FAULTS[name].kvs
    job = "fault-%d" % CASES.index((name, kv))
    suffer(project, name, kv, job)
    if name == "worker hangs":
        for path in (project.path / "runs" / job / "nodes").glob("*/*-[01].log"):
            assert "most recent call first" in path.read_text(), "no stack trace in %s" % path


def test_a_disk_that_is_full_at_the_start_is_named(project, tmp_path):
    """node2 has the space that a job needs at least, but none for eight copies of the script."""
    (tmp_path / "large.py").write_text("raise SystemExit('no worker may start')")
    (tmp_path / "large.bin").write_bytes(os.urandom(15 << 20))
    many = {NET + ".12": NET + ".12\n          workers_per_host: 8"}
    folder = project.path / ".state" / "local" / "jobs" / "node2"
    with small_disk(folder):
        result, run = project.train(
            *("-i", project.inventory("many", **many)),
            script=str(tmp_path / "large.py"),
            job_id="full-at-start",
        )
        assert not (folder / "full-at-start").exists(), "files of the job keep the disk full"
    named = "/jobs/node2/full-at-start: No space left on device: the disk is full, so make room"
    assert result.code == 2 and named in result.output, result.output
    assert "fatal: [node2]: FAILED!" in result.output, result.output
    project.wait_for_nothing_left()
