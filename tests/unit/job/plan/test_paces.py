"""The first batch sizes and the emulated slowness of the workers in a plan."""

import json

import pytest

from mxcluster import work_load
from mxcluster.errors import BadInput
from mxcluster.job.plan import paces, table
from mxcluster.model.checkpoint import CheckpointManifest, Progress
from mxcluster.model.host_variables import of_hosts
from mxcluster.model.job_knobs import Options
from mxcluster.model.plan import Balance
from tests.inventories.cases import changed, load, plan_of

BALANCED = {"kv": "dist_sync", "balance": "batch"}


def plan(hosts=None, name="local", checkpoint=None, **options):
    return plan_of(
        changed(load("good/" + name), {"options": options, "hosts": hosts or {}}),
        checkpoint=checkpoint,
    )


def manifest(sizes):
    return CheckpointManifest(files={}, epoch=1, servers=2, batch_sizes=sizes)


def argument(plan, worker, name):
    command = next(one for one in plan.processes if one.name == worker).command
    return json.loads(command[-1]).get(name)


def shares(plan):
    return [one.share for one in plan.processes if one.role == "worker"]


def test_the_first_sizes_are_equal():
    made = plan(**BALANCED)
    assert made.balance == Balance(sizes=[32] * 4, least=[1] * 4, most=[128] * 4)
    assert made.shares == plan(kv="dist_sync").shares
    for flag in ("batch_sizes", "batch_least", "batch_most"):
        assert argument(made, "worker-0", flag) is None  # the program's defaults
    assert argument(made, "worker-0", "balance") == "batch"
    assert (
        "batch sizes follow the workers' speeds (balance=batch), 128 samples a step; first sizes: "
        "32\n" in table(made)
    )


def test_a_worker_takes_at_most_its_maximum():
    made = plan({"node2": {"worker_batch_max": "16"}}, **BALANCED)
    assert made.balance.sizes == [38, 16, 37, 37]
    for worker in range(4):
        name = "worker-%d" % worker
        assert argument(made, name, "batch_sizes") == [38, 16, 37, 37]
        assert argument(made, name, "batch_most") == [128, 16, 128, 128]
    begin, end = shares(made)[1]
    assert end - begin == pytest.approx(16 / 128) and begin == shares(made)[0][1]
    assert "first sizes: 16 (worker 1), 37 (workers 2-3), 38 (worker 0)\n" in table(made)
    assert "batches per epoch: 12\n" in table(made)  # 1437 / 128, as with equal sizes


def test_a_maximum_that_leaves_samples_over_is_refused():
    hosts = {"node%d" % number: {"worker_batch_max": 31} for number in (1, 2, 3, 4)}
    with pytest.raises(BadInput, match="balance=batch with batch_size=32: .* at most 124: use a"):
        plan(hosts, **BALANCED)
    assert plan(hosts, kv="dist_sync").balance is None


def test_a_resumed_job_begins_with_the_sizes_of_its_checkpoint():
    made = plan(checkpoint=manifest([48, 40, 24, 16]), **BALANCED)
    assert made.balance.sizes == [48, 40, 24, 16]
    # Of another batch_size, in proportion.
    made = plan(checkpoint=manifest([48, 40, 24, 16]), batch_size="64", **BALANCED)
    assert made.balance.sizes == [96, 80, 48, 32]


def test_known_speeds_give_the_first_sizes_inside_each_group():
    """Workers 0 and 2 wait for each other, and 1 and 3: each pair has 64 samples."""
    options = Options(balance="batch", batch_size=32)
    found = paces.first_sizes(
        options,
        list("abcd"),
        of_hosts("abcd", {}),
        [[]] * 4,
        [[0, 2], [1, 3]],
        [300.0, 50.0, 100.0, 50.0],
    )
    assert found.sizes == [48, 32, 16, 32] and found.most == [64] * 4
    with pytest.raises(BadInput, match="in the group of worker 1: a step has 64 samples"):
        limits = of_hosts("abcd", {host: {"worker_batch_max": 31} for host in "bd"})
        paces.first_sizes(options, list("abcd"), limits, [[]] * 4, [[0, 2], [1, 3]])


def test_balanced_groups_keep_the_sum_and_their_part_of_the_data():
    hosts = {"node%d" % number: {"worker_group": "ab"[number % 2]} for number in (1, 2, 3, 4)}
    hosts["node2"]["worker_batch_max"] = 16
    made = plan(hosts, kv="dist_gsync", balance="batch")
    sets = made.together
    assert len(sets) == 2 and made.balance.sizes.count(16) == 1
    for members in sets:
        assert sum(made.balance.sizes[index] for index in members) == 64
        parts = [made.shares[index] for index in members]
        assert sum(end - begin for begin, end in parts) == pytest.approx(0.5)
    limited = made.balance.sizes.index(16)
    begin, end = made.shares[limited]
    assert end - begin == pytest.approx(16 / 128)
    # worker_batch_max counts, and 64 is the default of a worker in a group of two.
    assert argument(made, "worker-0", "batch_most").count(64) == 3
    assert "128 samples a step in all groups, constant in each group" in table(made)


def test_a_batch_is_never_too_small_for_gpus_of_unequal_speed():
    options = Options(balance="batch", batch_size=32)
    found = paces.first_sizes(
        options, ["a", "b"], of_hosts("ab", {}), [[9.0, 1.0], [1.0, 1.0]], [[0, 1]], [1.0, 99.0]
    )
    assert found.least == [5, 2] and found.sizes == [5, 59]
    for loads in ([9.0, 1.0], [1.0, 9.0], [1.0] * 8, [3.0, 2.0, 2.0, 1.0], [0.5]):
        least = work_load.least(loads)
        assert all(0 not in work_load.split(size, loads) for size in range(least, 500))
        assert least == 1 or 0 in work_load.split(least - 1, loads)


DEADLINE = {"kv": "dist_sync", "balance": "deadline", "batch_size": 32}
PROGRESS = Progress(
    samples=1437,
    seconds=0.25,
    speeds=[200.0, 100.0, 100.0, 100.0],
    passes=[3, 2, 2, 2],
    positions=[5, 0, 7, 9],
)


def of_deadline(batch_size=32):
    return manifest([50, 26, 26, 26]).replaced(progress=PROGRESS, batch_size=batch_size)


def test_the_plan_shows_the_small_batches_of_a_deadline():
    made = plan({"node2": {"worker_batch_max": 16}}, **DEADLINE)
    assert made.balance == Balance(
        sizes=[32] * 4, least=[1] * 4, most=[128, 16, 128, 128], progress=None
    )
    assert argument(made, "worker-0", "batch_sizes") is None
    assert argument(made, "worker-0", "batch_least") is None
    text = table(made)
    assert (
        "workers step by a common deadline (balance=deadline), about 128 samples a step\n"
        "first samples a step: 32; of a small batch: 2\n" in text
    )
    assert "planned steps per epoch: 12\n" in text and "repeated" not in text
    made = plan({"node2": {"worker_batch_max": 16}}, least_batch=8, **DEADLINE)
    assert made.balance.least == [8] * 4 and "of a small batch: 8\n" in table(made)
    assert argument(made, "worker-0", "batch_least") is None, "the program's default"
    with pytest.raises(BadInput, match="node2: worker_batch_max=4 is below the least size 8 of a"):
        plan({"node2": {"worker_batch_max": 4}}, least_batch=8, **DEADLINE)


def test_small_batches_are_too_small_for_batch_norm():
    words = "warning: BatchNorm of resnet20 takes mean and variance of small batches of 2 samples"
    assert words in table(plan(network="resnet20", **DEADLINE))
    assert words not in table(plan(network="mlp", **DEADLINE))
    assert "warning" not in table(plan(network="resnet20", least_batch=8, **DEADLINE))
    assert "warning" not in table(plan(network="resnet20", kv="dist_sync"))


def test_known_speeds_give_the_first_small_batches_of_a_deadline():
    found = paces.first_sizes(
        Options(balance="deadline", batch_size=64),
        list("ab"),
        of_hosts("ab", {"a": {"worker_batch_max": 5}}),
        [[], [1.0, 1.0]],
        [[0, 1]],
        [300.0, 20.0],
    )
    # worker_batch_max limits a small batch, and not the samples of a step.
    assert found.sizes == [120, 8] and found.least == [1, 2]
    assert paces.small_sizes(found) == [5, 2]


def test_a_resumed_job_goes_on_with_the_deadline_of_its_checkpoint():
    made = plan(checkpoint=of_deadline(), **DEADLINE)
    assert made.balance.sizes == [50, 26, 26, 26] and made.balance.progress == PROGRESS
    assert argument(made, "worker-3", "progress") == PROGRESS.encode()
    assert "(balance=deadline, 0.25 s at first)" in table(made)


@pytest.mark.parametrize(
    "given,wanted",
    [
        ({"num_workers": 3}, None),
        ({"balance": "batch"}, None),
        (
            {"batch_size": 64},
            PROGRESS.replaced(seconds=None, passes=[4, 2, 3, 3], positions=[0, 0, 0, 0]),
        ),
    ],
)
def test_another_job_does_not_go_on_with_the_deadline(given, wanted):
    """Another number of workers starts afresh. Another batch_size keeps the speeds only."""
    made = plan(checkpoint=of_deadline(), **dict(DEADLINE, **given))
    assert made.balance.progress == wanted


def test_a_slow_host_slows_its_workers_down():
    made = plan({"node2": {"slowdown": "2.5"}}, step_ms="200")
    assert made.slowdowns == [1, 2.5, 1, 1]
    assert [argument(made, "worker-%d" % i, "slowdown") for i in range(4)] == [
        None,
        2.5,
        None,
        None,
    ]
    assert argument(made, "worker-0", "step_ms") == 200.0
    assert (
        "\nemulated slowness: the program slows down worker 1 by the factor 2.5 and 32 samples "
        "take at least 200 ms times the worker's factor. Times and speeds do not describe the "
        "real machines\n" in table(made)
    )
    assert paces.emulated(plan()) == ""
    assert paces.emulated(plan(step_ms="50")) == (
        "emulated slowness: 32 samples take at least 50 ms. Times and speeds do not describe the "
        "real machines"
    )


def test_a_slow_host_refuses_a_script():
    with pytest.raises(BadInput, match="node2: slowdown=3 has no effect on a script, because"):
        plan({"node2": {"slowdown": 3}}, script="/mine/train.py")
    with pytest.raises(BadInput, match="node2: slowdown_changes=1,2 has no effect on a script"):
        plan({"node2": {"slowdown_changes": [1, 2]}}, script="/mine/train.py")


def test_the_emulated_speed_of_a_host_may_change():
    hosts = {
        "node1": {"slowdown_changes": "1,2"},
        "node3": {"slowdown": 2, "slowdown_changes": [2, 1], "slowdown_every": 5},
    }
    made = plan(hosts, step_ms="200")
    assert argument(made, "worker-2", "slowdown_changes") == [2.0, 1.0]
    assert argument(made, "worker-2", "slowdown_every") == 5.0
    assert argument(made, "worker-1", "slowdown_changes") is None
    assert (
        "the program slows down worker 0 by the factors 1 and 2 in turn, each for 10 s, worker 2 "
        "by the factors 4 and 2 in turn, each for 5 s and 32 samples take" in table(made)
    )
    assert plan().changes == [], "a plan without changes stays small"
