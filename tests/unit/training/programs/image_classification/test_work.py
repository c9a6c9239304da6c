import pytest

from mxcluster.errors import BadInput
from mxcluster.training.programs.image_classification import shard


def plan(kv, workers, samples=1437, batch_size=32, allocate=0, **environ):
    return [
        shard.from_env(
            dict(environ, MXCLUSTER_INDEX=str(index)), kv, workers, 0, samples, batch_size, allocate
        )
        for index in range(workers)
    ]


@pytest.fixture
def shares(tmp_path):
    (tmp_path / "data_sharding").write_text("0 0.35\n0.35 0.7\n0.7 0.85\n0.85 1\n")
    return {"allocate": 1, "MXCLUSTER_JOB_DIR": str(tmp_path), "MXCLUSTER_GROUPS": "0,0,1,1"}


def test_a_single_worker_has_all_samples():
    assert shard.from_env({}, "local", 1, 0, 100, 32, 1) == (0, 0, 100, 4, 28, 4)


def test_without_mxcluster_the_rank_decides():
    assert shard.from_env({}, "dist_sync", 2, 1, 100, 10, 0)[:4] == (1, 50, 100, 5)


@pytest.mark.parametrize("allocate", [0, 1])
def test_shares_cover_all_samples_once(shares, allocate):
    parts = plan("dist_gsync", 4, **dict(shares, allocate=allocate))
    assert [part.index for part in parts] == [0, 1, 2, 3]
    assert [number for part in parts for number in range(part.begin, part.end)] == list(
        range(1437)
    ), parts


def test_workers_of_a_group_have_equal_batches(shares):
    parts = plan("dist_gsync", 4, samples=1401, batch_size=70, **shares)
    assert [part.end - part.begin for part in parts] == [491, 490, 210, 210], parts
    assert [part.batches for part in parts] == [8, 8, 3, 3], parts
    assert [part.repeated for part in parts] == [69, 70, 0, 0], parts


def test_asynchronous_workers_have_batches_of_their_own_share(shares):
    parts = plan("dist_async", 4, samples=1401, batch_size=70, **shares)
    assert [part.batches for part in parts] == [8, 7, 3, 3], parts


@pytest.mark.parametrize("kv", ["dist_sync", "dist_device_sync", "dist_ssync"])
def test_synchronous_workers_have_equal_batches(shares, kv):
    assert {part.batches for part in plan(kv, 4, samples=1401, batch_size=70, **shares)} == {8}


def test_updates_of_an_epoch_are_the_same_for_all_workers(shares):
    # Pushes of an epoch: 8 + 8 + 3 + 3 and 8 + 7 + 3 + 3.
    assert {part.updates for part in plan("dist_gsync", 4, 1401, 70, **shares)} == {22 / 4}
    assert {part.updates for part in plan("dist_async", 4, 1401, 70, **shares)} == {21}


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
        shard.from_env(dict({"MXCLUSTER_INDEX": "0"}, **environ), "dist_gsync", 2, 0, 100, 10, 1)


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
    parts = [
        shard.of_sizes({"MXCLUSTER_INDEX": str(index)}, "dist_sync", 2, 0, 1437, [48, 16], False)
        for index in range(2)
    ]
    assert parts == [(0, 0, 1078, 23, 26, 23), (1, 1078, 1437, 23, 9, 23)]
    # As many batches and updates as with equal batches.
    assert {part[3:6:2] for part in plan("dist_sync", 2)} == {(23, 23)}


def test_equal_batch_sizes_give_the_equal_shares():
    for workers in (1, 2, 3, 7):
        for index in range(workers):
            environ = {"MXCLUSTER_INDEX": str(index)}
            assert (
                shard.of_sizes(environ, "dist_sync", workers, 0, 1437, [32] * workers, False)
                == plan("dist_sync", workers)[index]
            )


def test_an_index_outside_of_the_sizes_is_refused():
    with pytest.raises(BadInput, match="MXCLUSTER_INDEX=2, but the job has 2 workers"):
        shard.of_sizes({"MXCLUSTER_INDEX": "2"}, "dist_sync", 2, 0, 100, [4, 4], False)


def test_groups_divide_their_part_of_the_data_by_the_batch_sizes(tmp_path):
    """The plan's file gives the group {0, 2} three quarters of the data."""
    (tmp_path / "data_sharding").write_text("0 0.5\n0.75 0.875\n0.5 0.75\n0.875 1\n")
    environ = {"MXCLUSTER_JOB_DIR": str(tmp_path), "MXCLUSTER_GROUPS": "0,1,0,1"}
    works = [
        shard.of_sizes(
            dict(environ, MXCLUSTER_INDEX=str(index)),
            *("dist_gsync", 4, 0, 800, [48, 20, 16, 44], True),
        )
        for index in range(4)
    ]
    assert [(work.begin, work.end) for work in works] == [
        (0, 450),
        (600, 663),
        (450, 600),
        (663, 800),
    ]
    assert [work.batches for work in works] == [10, 4, 10, 4]
    assert {work.updates for work in works} == {7.0}  # rounds of four batches
