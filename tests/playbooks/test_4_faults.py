"""Every fault ends the whole job, names its cause, and leaves nothing; the next job starts at once.

Here each fault once, and each scheme with a worker, a server and the scheduler killed; `make soak` has all of them with all.
"""

import itertools

import pytest

from tests.playbooks.faults import FAULTS, KVS, suffer

KILLED = ("worker killed", "server killed", "scheduler killed")


def once(names):
    """Each fault with one scheme, the schemes in turns."""
    for name, kv in zip(names, itertools.cycle(KVS)):
        yield name, kv if kv in FAULTS[name].kvs else FAULTS[name].kvs[0]


CASES = [(name, kv) for name in KILLED for kv in KVS] + list(once(name for name in FAULTS if name not in KILLED))


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
