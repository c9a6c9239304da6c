"""Balanced batches with real servers: equal steps, sizes in proportion, each sample once."""

import json
import textwrap

import numpy as np
import pytest

from mxcluster import checkpoints
from tests.often import seldom
from tests.training.conftest import newest_often
from tests.training.loopback import Job, program
from tests.training.test_program import MAIN, Run
from tests.training.test_resume import states_of

EPOCHS = 5
PARTS = ("data", "compute", "remainder", "exchange", "push_pull", "quota")  # of a step
PACED = {"balance": "batch", "step_ms": 200, "num_epochs": EPOCHS, "lr": 0.02}


def train(python, folder, digits, arguments, kv="dist_sync", slowdowns=(1, 1), groups=(), **more):
    """Run the program with checkpoints, one worker for each slowdown."""
    common = {"data_dir": digits, "kv": kv, "savemodel": True, "keep_checkpoints": 9}
    more["arguments"] = program(**common, **arguments)
    slow = {index: {"SLOWDOWN": str(factor)} for index, factor in enumerate(slowdowns)}
    groups = groups or (0,) * len(slowdowns)
    job = Job(python, folder, "balanced.py", kv, groups, worker_environment=slow, **more)
    return job.succeed()


def samples_of(job, workers):
    """Return the samples of each worker, which are a list of batches for each epoch."""
    paths = [job.folder / ("samples-%d.jsonl" % index) for index in range(workers)]
    return [list(map(json.loads, path.open())) for path in paths]


def weights_of(environment, folder, *names):
    """Return {name: array} of .params files, joined, as MXNet reads them."""
    code = """
    import json, sys
    import mxnet as mx
    print(json.dumps([
        {name.split(":")[-1]: array.asnumpy().tolist() for name, array in mx.nd.load(path).items()}
        for path in sys.argv[1:]]))
    """
    run = Run(environment.python, textwrap.dedent(code), folder, names).succeeded()
    return [
        {name: np.array(values) for name, values in one.items()}
        for one in json.loads(run.out.splitlines()[-1])
    ]


def difference(one, other):
    assert set(one) == set(other) and one
    return max(np.abs(one[name] - other[name]).max() for name in one)


@newest_often
def test_unequal_batches_train_as_equal_ones(every_mxnet, tmp_path, digits):
    """An epoch of one step holds all samples, so every step has the same gradient in all jobs.

    Weights and momentum agree with those of equal batches, and of one process with the batch of
    all workers. Weight decay, momentum and the learning rate act on the sum alike.
    """
    common = {"num_examples": 96, "num_epochs": EPOCHS, "lr": 0.1}
    equal = train(every_mxnet.python, tmp_path / "equal", digits, common, slowdowns=(1,) * 3)
    # Steps of a millisecond would measure the load of this machine in place of the slowdowns.
    unequal = dict(common, balance="batch", step_ms=200)
    unequal.update(batch_sizes=[56, 30, 10], batch_least=[1, 2, 3])
    folder = tmp_path / "balanced"
    balanced = train(every_mxnet.python, folder, digits, unequal, slowdowns=(1, 1, 4))
    arguments = program(data_dir=digits, batch_size=96, savemodel=True, **common)
    alone = Run(every_mxnet.python, MAIN, tmp_path, arguments).succeeded()
    starts = sorted(balanced.events("start"), key=lambda start: start["index"])
    sizes = [(start["batch_size"], start["batches"]) for start in starts]
    assert sizes == [(56, 1), (30, 1), (10, 1)]
    # The sizes changed while the job ran: at speeds of 1, 1 and 1/4 to 43, 43 and 10 or so.
    assert balanced.events("balance") and not equal.events("balance"), balanced.evidence()
    name = "mlp-%04d" % EPOCHS
    found = weights_of(
        every_mxnet,
        tmp_path,
        *[folder / "checkpoints" / (name + ".params") for folder in (equal.folder, tmp_path)],
        *[balanced.folder / ("weights-%d.params" % index) for index in range(3)],
    )
    for weights in found[1:]:
        assert difference(found[0], weights) < 1e-5
    for weights in found[3:]:  # All workers end with the same weights, bit by bit.
        assert difference(found[2], weights) == 0
    momentum = [
        states_of(folder / "checkpoints", name)
        for folder in (equal.folder, balanced.folder, tmp_path)
    ]
    assert len(momentum[0]) == 6  # The key of the speeds is in no checkpoint.
    for states in momentum[1:]:
        assert difference(momentum[0], states) < 1e-5
    assert max(np.abs(values).max() for values in momentum[0].values()) > 1e-3
    assert alone.of("end")[0]["samples"] == EPOCHS * 96


def test_sizes_follow_the_speeds_of_measured_batches(mxnet_new, tmp_path, digits):
    """A job with `measured` has no validation. It reports its sizes and the parts of its steps."""
    knobs = dict(PACED, num_examples=140, batch_size=14, warm_up=5, measured=12, measure_waits=True)
    job = train(mxnet_new.python, tmp_path / "job", digits, knobs, slowdowns=(1, 3))
    sizes = job.events("balance")[-1]["sizes"]
    assert np.abs(np.array(sizes) - [21, 7]).max() <= 1, sizes
    assert job.events("epoch") == []
    for index, size in enumerate(sizes):
        (measured,), (waits,), (end,), parts = (
            [event for event in job.events(kind) if event["index"] == index]
            for kind in ("measured", "waits", "end", "step_times")
        )
        assert abs(measured["batch_size"] - size) <= 1 and parts[-1]["steps"] == 17
        assert parts[-1]["samples"] > 17 * size if index else parts[-1]["samples"] < 17 * size
        # Only the pull at the end of an epoch is in no batch.
        assert 0.99 * waits["seconds"] <= sum(parts[-1][name] for name in PARTS) <= end["seconds"]
        assert parts[-1]["compute"] > parts[0]["compute"] > 0


def test_sizes_follow_the_speeds_and_each_sample_comes_once(mxnet_new, tmp_path, digits):
    """Speeds of 1, 1 and 1/3 give sizes of 3/7, 3/7 and 1/7 of a step; the steps get faster."""
    knobs = dict(PACED, num_examples=200, batch_size=14)
    job = train(mxnet_new.python, tmp_path / "job", digits, knobs, slowdowns=(1, 1, 3))
    sizes = [[14, 14, 14]] + [event["sizes"] for event in job.events("balance")]
    assert sizes[1:] and all(sum(each) == 42 for each in sizes)
    assert np.abs(np.array(sizes[-1]) - [18, 18, 6]).max() <= 1, sizes
    speeds = job.events("balance")[0]["speeds"]
    assert speeds[0] / speeds[2] == pytest.approx(3, rel=0.15), speeds
    assert job.events("balance")[0]["epoch"] == 1 and len(job.events("balance")) <= 2
    # Every epoch has all samples, each in the share of one worker, in 5 batches of each.
    written = samples_of(job, 3)
    for epoch in range(EPOCHS):
        shares = [set(np.ravel(written[index][epoch])) for index in range(3)]
        assert set.union(*shares) == set(range(200))
        assert sum(map(len, shares)) == 200
        assert {len(written[index][epoch]) for index in range(3)} == {5}
    # A worker's events tell its size.
    for index in range(3):
        own = [event["batch_size"] for event in job.events("epoch") if event["index"] == index]
        assert own[0] == 14 and own[-1] == sizes[-1][index]
        last = [event for event in job.events("batch") if event["index"] == index][-1]
        assert last["batch_size"] == sizes[-1][index] and last["done"] == 1
    # 600 ms a step before, and 200 x 18 / 14 = 257 ms after.
    seconds = [event["seconds"] for event in job.events("epoch") if event["index"] == 0]
    assert min(seconds[1:]) < 0.7 * seconds[0], seconds
    found = weights_of(
        mxnet_new, tmp_path, *[job.folder / ("weights-%d.params" % index) for index in range(3)]
    )
    assert difference(found[0], found[1]) == difference(found[0], found[2]) == 0
    # The checkpoint after an epoch has the sizes of the next one.
    manifest = checkpoints.read(str(job.folder / "checkpoints"), "mlp-0001").manifest
    assert manifest.batch_sizes == sizes[1] and manifest.batch_size == 14


GROUPED = {"kv": "dist_gsync", "groups": (0, 1, 0, 1)}  # members are no neighbours


def test_unequal_batches_have_the_sum_of_equal_ones_in_each_group(mxnet_new, tmp_path, digits):
    """An epoch of one step holds all samples of a group; all groups begin with equal weights."""
    sums = []
    alike = {"num_examples": 96, "batch_size": 24, "num_epochs": 1, "lr": 1e-9}
    for name, sizes in (("equal", [24] * 4), ("unequal", [40, 12, 8, 36])):
        knobs = dict(alike, balance="batch", batch_sizes=sizes)
        more = dict(GROUPED, slowdowns=(1,) * 4, environment={"MXCLUSTER_TRACE": "1"})
        job = train(mxnet_new.python, tmp_path / name, digits, knobs, **more)
        sums.append({(one["group"], one["parameter"]): one["sum"] for one in job.events("merge")})
        starts = sorted(job.events("start"), key=lambda start: start["index"])
        assert [one["batch_size"] for one in starts] == sizes
        assert [one["batches"] for one in starts] == [1] * 4
    equal, unequal = sums
    assert len(equal) == 12 and set(equal) == set(unequal)  # 6 parameters of 2 groups
    assert all(abs(equal[one] - unequal[one]) < 1e-3 for one in equal), sums
    assert max(abs(total) for total in equal.values()) > 0.1


def test_sizes_follow_the_speeds_inside_each_group(mxnet_new, tmp_path, digits):
    """The slow worker gets a smaller batch, its mate a larger one; the other group goes on."""
    knobs = dict(PACED, num_examples=240, batch_size=12)
    more = dict(GROUPED, slowdowns=(1, 1, 3, 1))
    job = train(mxnet_new.python, tmp_path / "job", digits, knobs, **more)
    changes = job.events("balance")
    assert changes and {one["index"] for one in changes} == {0}, changes
    assert all(one["workers"] == [0, 2] and sum(one["sizes"]) == 24 for one in changes)
    assert np.abs(np.array(changes[-1]["sizes"]) - [18, 6]).max() <= 1, changes
    assert changes[0]["speeds"][0] / changes[0]["speeds"][1] == pytest.approx(3, rel=0.2)
    # Every epoch has all samples once: 120 of each group, in 5 batches.
    written = samples_of(job, 4)
    for epoch in range(EPOCHS):
        shares = [set(np.ravel(written[index][epoch])) for index in range(4)]
        assert set.union(*shares) == set(range(240)) and sum(map(len, shares)) == 240
        assert shares[0] | shares[2] == set(range(120))
        assert {len(written[index][epoch]) for index in range(4)} == {5}
    # 600 ms a step before, and 200 x 18 / 12 = 300 ms after.
    seconds = {(event["index"], event["epoch"]): event["seconds"] for event in job.events("epoch")}
    assert min(seconds[0, epoch] for epoch in range(1, EPOCHS)) < 0.7 * seconds[0, 0], seconds
    manifest = checkpoints.read(str(job.folder / "checkpoints"), "mlp-0001").manifest
    assert manifest.batch_sizes is None


def exchange(environment, folder, kv, groups, bound, result):
    """Run assigned_key.py, which writes the exchanged numbers to the file `result`."""
    more = {"environment": {"MXNET_KVSTORE_BIGARRAY_BOUND": str(bound)}}
    more["arguments"] = [kv, 2, result]
    Job(environment.python, folder, "assigned_key.py", kv, groups, servers=2, **more).succeed()


def pair(index, step):
    """Return the two numbers of a worker of assigned_key.py."""
    number = float(np.float32(1.1 * (index + 1) + 100 * step))
    return [number, -number]


@newest_often
def test_a_group_exchanges_numbers_among_its_members(every_mxnet, tmp_path):
    """Also where the key is cut into pieces on several hosts."""
    result = tmp_path / "result.json"
    exchange(every_mxnet, tmp_path / "job", "dist_gsync", (0, 1, 0), 2, result)
    exchanged = json.loads(result.read_text())["exchanged"]
    assert exchanged == [[pair(0, step), [0.0, 0.0], pair(2, step)] for step in range(3)]


@newest_often
@pytest.mark.parametrize("bound", [seldom(1000000), 2])
def test_workers_exchange_numbers_beside_updates(every_mxnet, tmp_path, bound):
    """Also where ps-lite cuts the key into pieces on several servers."""
    result = tmp_path / "result.json"
    exchange(every_mxnet, tmp_path / "job", "dist_sync", (0, 0, 0), bound, result)
    content = json.loads(result.read_text())
    expected = [[pair(index, step) for index in range(3)] for step in range(3)]
    assert content["exchanged"] == expected
    weight, velocity = 1.0, 0.0
    for _ in range(3):  # The optimizer's steps are those without the exchange.
        velocity = 0.9 * velocity - 0.5 * (6 + 0.1 * weight)
        weight += velocity
    assert np.allclose(content["b"], weight, rtol=1e-5)


def test_a_wrong_key_for_the_exchange_is_refused(mxnet_new, tmp_path):
    arguments = ["dist_sync", 3, tmp_path / "none"]
    folder = tmp_path / "job"
    job = Job(mxnet_new.python, folder, "assigned_key.py", "dist_sync", arguments=arguments)
    codes = job.wait(grace=0)
    assert 1 in (codes["worker-0"], codes["worker-1"]), job.evidence()
    assert "a key that is not a parameter of the network" in job.evidence()


@newest_often
def test_losses_that_divide_by_the_batch_are_refused(every_mxnet, tmp_path):
    code = """
    import mxnet as mx
    from mxcluster.training.programs.image_classification import networks
    for name in networks.names():
        networks.check_loss(networks.symbol(name, 10))
    data = mx.sym.Variable("data")
    for loss in (
        mx.sym.SoftmaxOutput(data, name="soft", normalization="batch"),
        mx.sym.SoftmaxOutput(data, name="soft", normalization="valid"),
        mx.sym.LinearRegressionOutput(data, name="linear"),
        mx.sym.MakeLoss(mx.sym.SoftmaxOutput(data, name="soft"), name="made"),
    ):
        try:
            networks.check_loss(loss)
        except Exception as error:
            print(error)
    networks.check_loss(mx.sym.SoftmaxOutput(data, name="soft", normalization="null"))
    """
    run = Run(every_mxnet.python, textwrap.dedent(code), tmp_path).succeeded()
    losses = [line.split("the loss ")[1] for line in run.out.splitlines() if "the loss" in line]
    assert [line.split(" may not be")[0] for line in losses] == [
        "soft (SoftmaxOutput, normalization=batch)",
        "soft (SoftmaxOutput, normalization=valid)",
        "linear (LinearRegressionOutput)",
        "made (MakeLoss)",
    ]


@pytest.mark.parametrize(
    "arguments,message",
    [
        ({"batch_sizes": [48, 17]}, "48/17 add up to 65, but a step has 64 samples"),
        ({"batch_least": [1, 1, 1]}, "batch_least (1/1/1) are for 3 workers"),
    ],
)
def test_sizes_that_do_not_fit_the_job_are_refused(mxnet_new, tmp_path, digits, arguments, message):
    words = program(data_dir=digits, kv="dist_sync", balance="batch", **arguments)
    job = Job(mxnet_new.python, tmp_path / "job", "balanced.py", "dist_sync", arguments=words)
    codes = job.wait(grace=0)
    assert 2 in (codes["worker-0"], codes["worker-1"]), job.evidence()
    assert message in job.evidence(), job.evidence()
