"""Every fault ends the whole job, names its cause, and leaves nothing; the next job starts at once.

This file runs most faults once, with alternating kv-stores; `make soak` runs all combinations. A
fault that ends like another one, or that molecule also strikes with, is among the seldom ones.
"""

import itertools
import os

import pytest

from tests.often import seldom
from tests.playbooks.conftest import NET, small_disk
from tests.playbooks.faults import FAULTS, KVS, suffer

CASES = [
    (name, kv if kv in FAULTS[name].kvs else FAULTS[name].kvs[0])
    for name, kv in zip((name for name in FAULTS if not FAULTS[name].alike), itertools.cycle(KVS))
]
# A blocked worker is detected by the pushes of its own group.
CASES = list(dict.fromkeys([*CASES, ("key left out", "dist_gsync")]))
SELDOM = {
    ("worker killed", "dist_sync"),  # test_2_resume.py kills one, too
    ("scheduler held", "dist_gsync"),
    ("updater raises", "dist_sync"),
    ("worker never starts", "dist_gsync"),
    ("unequal batches", "dist_sync"),
    ("key left out", "dist_sync"),
    ("port taken", "dist_sync"),
    *(case for case in CASES if case[0] == "agent ended"),
}
assert SELDOM <= set(CASES) and len(SELDOM) == 8


@pytest.mark.parametrize(
    "name,kv",
    [seldom(*case) if case in SELDOM else case for case in CASES],
)
def test_a_fault_ends_the_job(project, name, kv):
    job = "fault-%d" % CASES.index((name, kv))
    suffer(project, name, kv, job)
    if name in ("worker hangs", "updater hangs"):
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
    assert "fatal: [node2]" in result.output, result.output
    project.wait_for_nothing_left()
