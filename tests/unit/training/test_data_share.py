"""The share of a worker, as the helper for scripts gives it, and whether a script asked for it."""

import sys
import types

import pytest

from mxcluster import events, share
from mxcluster.errors import BadInput
from mxcluster.training import data_share

UNEQUAL = "0 0.5\n0.5 0.75\n0.75 1\n"
EQUAL = "0 0.25\n0.25 0.5\n0.5 0.75\n0.75 1\n"


@pytest.fixture
def worker(tmp_path, monkeypatch):
    """Return a function that makes this process a worker of a job with the file data_sharding."""
    monkeypatch.setattr(data_share._Asked, "is_true", False)
    monkeypatch.setattr(data_share._Asked, "has_warned", False)

    def become(index, shares=EQUAL, kv="dist_sync"):
        (tmp_path / "data_sharding").write_text(shares)
        groups = ",".join("0" * len(shares.splitlines()))
        for name, text in {
            "JOB_DIR": str(tmp_path),
            "INDEX": str(index),
            "GROUPS": groups,
            "KV": kv,
            "ROLE": "worker",
            "HOST": "node1",
        }.items():
            monkeypatch.setenv("MXCLUSTER_" + name, text)

    return become


def test_the_shares_of_all_workers_cover_the_data_once(worker):
    found = []
    for index in range(3):
        worker(index, UNEQUAL)
        assert (share.index(), share.num_workers()) == (index, 3)
        found.append(share.indices(101))
    assert [number for one in found for number in one] == list(range(101))
    assert [len(one) for one in found] == [51, 25, 25]


def test_a_worker_without_a_sample_is_told(worker):
    worker(3)
    with pytest.raises(BadInput, match="would get none of the 3 training samples"):
        share.indices(3)


def test_workers_that_wait_for_each_other_sample_as_many_batches(worker):
    lengths = set()
    for index in range(4):
        worker(index)
        sampler = share.Sampler(10, batch_size=2, seed=7)
        own, first, second = set(share.indices(10)), list(sampler), list(sampler)
        assert set(first) == set(second) == own and len(first) == len(sampler)
        lengths.add(len(sampler))
        again = share.Sampler(10, batch_size=2, seed=7)
        assert [list(again), list(again)] == [first, second], "the seed gives the order"
    assert lengths == {4}


def test_the_order_changes_with_the_epoch_or_stays(worker):
    worker(0)
    sampler = share.Sampler(400, batch_size=10)
    assert list(sampler) != list(sampler)
    sampler = share.Sampler(400, batch_size=10, shuffle=False)
    assert list(sampler) == list(sampler) == list(range(100))


def test_the_parts_of_an_iterator_are_the_workers(worker, tmp_path):
    worker(2)
    assert (share.num_parts(), share.part_index()) == (4, 2)
    assert not (tmp_path / events.FILE).exists()
    worker(2, UNEQUAL, "dist_async")
    assert [share.num_parts(), share.num_parts(), share.part_index()] == [3, 3, 2]
    [note] = [line.event for line in events.read(str(tmp_path / events.FILE))]
    assert "unequal shares" in note.text, "once"


def test_outside_of_a_job_there_is_one_worker(monkeypatch):
    for name in ("JOB_DIR", "INDEX", "GROUPS", "KV"):
        monkeypatch.delenv("MXCLUSTER_" + name, raising=False)
    assert (share.index(), share.num_parts(), share.indices(5)) == (0, 1, range(5))
    assert sorted(share.Sampler(5, batch_size=5)) == [0, 1, 2, 3, 4]


ASKS = {
    "data = data[kv.rank :: kv.num_workers]": True,
    "rank = kv.rank": True,
    "print('%d' % kv.rank)": True,
    "import os; share = os.environ['MXCLUSTER_SHARE']": True,
    "if kv.rank == 0: save()": False,
    "if not kv.rank: save()": False,
    "if 0 != kv.rank: pass": False,
    "batch = 32 * kv.num_workers": False,
    "if False: kv.rank == {[0]: 1}": True,  # a branch that never runs may be wrong
    "train(data)": False,
}


@pytest.mark.parametrize("text", ASKS)
def test_a_script_that_knows_its_rank_or_share_is_known(worker, monkeypatch, tmp_path, text):
    path = tmp_path / "files" / "mine.py"
    path.parent.mkdir()
    path.write_text(text)
    module = types.ModuleType("mine")
    module.__file__ = str(path)
    monkeypatch.setitem(sys.modules, "mine", module)
    assert data_share.was_asked_for(str(path.parent)) is ASKS[text]
    assert not data_share.was_asked_for(str(tmp_path / "fil")), "only modules of the script count"
    share.index()
    assert data_share.was_asked_for(str(path.parent))
