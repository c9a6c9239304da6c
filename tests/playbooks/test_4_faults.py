"""Every fault ends the whole job, names its cause, and leaves nothing; the next job starts at once.

Here each fault once, the schemes in turns, and two with dist_gsync; `make soak` has all of them with all.
"""

import itertools

import pytest

from tests.playbooks.faults import FAULTS, KVS, suffer

CASES = [(name, kv if kv in FAULTS[name].kvs else FAULTS[name].kvs[0]) for name, kv in zip(FAULTS, itertools.cycle(KVS))]
# The servers of dist_gsync share what they hold, and a worker for whom others wait is noticed in its group alone.
CASES += [(name, "dist_gsync") for name in ("server killed", "unequal batches", "key left out")]
CASES = list(dict.fromkeys(CASES))


@pytest.mark.parametrize("name,kv", CASES)
def test_a_fault_ends_the_job(project, name, kv):
    job = "fault-%d" % CASES.index((name, kv))
    suffer(project, name, kv, job)
    if name in ("worker hangs", "updater hangs"):
        for path in (project.path / "runs" / job / "nodes").glob("*/*-[01].log"):
            assert "most recent call first" in path.read_text(), "no stack trace in %s" % path


def test_the_same_nodes_train_again(project):
    result, _ = project.train(kv="dist_gsync", num_epochs=2, job_id="after-all-faults")
    assert result.code == 0, result.output
