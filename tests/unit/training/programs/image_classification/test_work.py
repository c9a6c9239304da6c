import pytest

from mxcluster.errors import BadInput
from mxcluster.training.programs.image_classification import shard


def plan(kv, workers, samples=1437, batch_size=32, allocate=0, **environ):
    return [
        made.of_batch_size(batch_size) for made in shards(kv, workers, samples, allocate, **environ)
    ]


def shards(kv, workers, samples, allocate=0, **environ):
    return [
        shard.Shards(dict(environ, MXCLUSTER_INDEX=str(index)), kv, workers, 0, samples, allocate)
        for index in range(workers)
    ]


@pytest.fixture
def unequal(tmp_path):
    (tmp_path / "data_sharding").write_text("0 0.35\n0.35 0.7\n0.7 0.85\n0.85 1\n")
    return {"allocate": 1, "MXCLUSTER_JOB_DIR": str(tmp_path), "MXCLUSTER_GROUPS": "0,0,1,1"}


def test_a_single_worker_has_all_samples():
    assert shard.Shards({}, "local", 1, 0, 100, 1).of_batch_size(32) == (0, 100, 4, 28, 4)


def test_without_mxcluster_the_rank_decides():
    made = shard.Shards({}, "dist_sync", 2, 1, 100, 0)
    assert made.index == 1 and made.of_batch_size(10)[:3] == (50, 100, 5)


@pytest.mark.parametrize("allocate", [0, 1])
def test_shares_cover_all_samples_once(unequal, allocate):
    parts = plan("dist_gsync", 4, **dict(unequal, allocate=allocate))
    assert [number for part in parts for number in range(part.begin, part.end)] == list(
        range(1437)
    ), parts


def test_workers_of_a_group_have_equal_batches(unequal):
    parts = plan("dist_gsync", 4, samples=1401, batch_size=70, **unequal)
    assert [part.end - part.begin for part in parts] == [491, 490, 210, 210], parts
    assert [part.batches for part in parts] == [8, 8, 3, 3], parts
    assert [part.repeated for part in parts] == [69, 70, 0, 0], parts


def test_asynchronous_workers_have_batches_of_their_own_share(unequal):
    parts = plan("dist_async", 4, samples=1401, batch_size=70, **unequal)
    assert [part.batches for part in parts] == [8, 7, 3, 3], parts


@pytest.mark.parametrize("kv", ["dist_sync", "dist_device_sync", "dist_ssync"])
def test_synchronous_workers_have_equal_batches(unequal, kv):
    assert {part.batches for part in plan(kv, 4, samples=1401, batch_size=70, **unequal)} == {8}


def test_updates_of_an_epoch_are_the_same_for_all_workers(unequal):
    # Pushes of an epoch: 8 + 8 + 3 + 3 and 8 + 7 + 3 + 3.
    assert {part.updates for part in plan("dist_gsync", 4, 1401, 70, **unequal)} == {22 / 4}
    assert {part.updates for part in plan("dist_async", 4, 1401, 70, **unequal)} == {21}


@pytest.mark.parametrize(
    "environ,message",
    [
        ({"MXCLUSTER_INDEX": "2"}, "MXCLUSTER_INDEX=2, but the job has 2 workers"),
        (
            {"MXCLUSTER_GROUPS": "0,0,1"},
            "MXCLUSTER_GROUPS='0,0,1' names the groups of 3 workers, but the job has 2",
        ),
        (
            {"MXCLUSTER_JOB_DIR": "/nowhere"},
            "/nowhere/data_sharding, but reading failed: No such file",
        ),
    ],
)
def test_inconsistent_variables_are_refused(environ, message):
    with pytest.raises(BadInput, match=message):
        shard.Shards(dict({"MXCLUSTER_INDEX": "0"}, **environ), "dist_gsync", 2, 0, 100, 1)


@pytest.mark.parametrize(
    "updates,every,first,epochs,expected",
    [
        (10, 1.0, 0, 4, (0, [10, 20, 30, 40])),
        (10, 1.0, 2, 4, (2, [10, 20])),  # resumed after two epochs, so two drops are over
        (10, 1.5, 2, 5, (1, [10, 25])),  # at epochs 1.5, 3 and 4.5
        (2.5, 1.0, 0, 4, (0, [3, 5, 8, 10])),  # rounded, but never the same number twice
        (1, 1.0, 0, 3, (0, [1, 2, 3])),
        (10, 9.0, 0, 4, (0, [])),
    ],
)
def test_lr_drops_by_epoch_and_interval(updates, every, first, epochs, expected):
    assert shard.lr_drops(updates, every, first, epochs) == expected


def test_lr_drops_strictly_increase():
    for updates in (1, 2.5, 7, 11.25):
        for every in (1 / updates, 1.3 / updates, 1.5):
            drops = shard.lr_drops(updates, every, 0, 30)[1]
            assert all(a < b for a, b in zip(drops, drops[1:])), (updates, every, drops)


def test_lr_cannot_drop_more_often_than_once_per_update():
    with pytest.raises(
        BadInput,
        match="lr_factor_epoch=0.05 is shorter than one update of the weights .an epoch has 12 ",
    ):
        shard.lr_drops(12, 0.05, 0, 20)


def test_shares_follow_the_batch_sizes():
    parts = [made.of_sizes([48, 16]) for made in shards("dist_sync", 2, 1437)]
    assert parts == [(0, 1078, 23, 26, 23), (1078, 1437, 23, 9, 23)]
    # As many batches and updates as with equal batches.
    assert {part[2:5:2] for part in plan("dist_sync", 2)} == {(23, 23)}


def test_equal_batch_sizes_give_the_equal_shares():
    for workers in (1, 2, 7):
        parts = [made.of_sizes([32] * workers) for made in shards("dist_sync", workers, 1437)]
        assert parts == plan("dist_sync", workers)


def test_groups_divide_their_part_of_the_data_by_the_batch_sizes(tmp_path):
    """The plan's file gives the group {0, 2} three quarters of the data."""
    (tmp_path / "data_sharding").write_text("0 0.5\n0.75 0.875\n0.5 0.75\n0.875 1\n")
    environ = {"MXCLUSTER_JOB_DIR": str(tmp_path), "MXCLUSTER_GROUPS": "0,1,0,1"}
    works = [made.of_sizes([48, 20, 16, 44]) for made in shards("dist_gsync", 4, 800, 1, **environ)]
    ranges = [(work.begin, work.end) for work in works]
    assert ranges == [(0, 450), (600, 663), (450, 600), (663, 800)]
    assert [work.batches for work in works] == [10, 4, 10, 4]
    assert {work.updates for work in works} == {7.0}  # rounds of four batches
