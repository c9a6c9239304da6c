"""dist_gsync and dist_ssync against their definitions, with real processes and real MXNet."""

import json

import numpy as np
import pytest

from mxcluster import exitcodes
from tests.training.loopback import Job
from tests.training.replay import load, replay

MOMENTUM = {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.01}


def train(python, folder, scripts, frontend, kv, groups, steps=50, servers=1, settings=(), **job):
    """Runs small_training.py and returns (the job, what each worker saved)."""
    arguments = [frontend, kv, steps, folder / "worker", *settings]
    job = Job(python, folder, scripts / "small_training.py", kv, groups, servers, arguments=arguments, **job).succeed()
    return job, [load(folder / ("worker-%d.npz" % index)) for index in range(len(groups))]


def params(**values):
    return "params=" + json.dumps(values)


@pytest.mark.parametrize("frontend", ["module", "gluon"])
def test_one_group_of_all_equals_dist_sync(every_mxnet, tmp_path, scripts, frontend):
    """Equal seeds, 50 steps with momentum and weight decay: the weights are those of stock dist_sync to 1e-5."""
    settings = [params(**MOMENTUM)]
    if frontend == "module" or every_mxnet.version == "1.2.1":
        # From MXNet 1.5 stock Gluon loses the multipliers on its way to the servers; there is nothing to compare with.
        settings.append("mult=1")
    assert_equal_to_dist_sync(every_mxnet.python, tmp_path, scripts, frontend, settings)


@pytest.mark.parametrize("frontend", ["module", "gluon"])
def test_adam_and_a_schedule_equal_dist_sync(mxnet_new, tmp_path, scripts, frontend):
    assert_equal_to_dist_sync(mxnet_new.python, tmp_path, scripts, frontend,
                              [params(learning_rate=0.01), "optimizer=adam", "schedule=20"])


def assert_equal_to_dist_sync(python, folder, scripts, frontend, settings):
    runs = {kv: train(python, folder / kv, scripts, frontend, kv, [0, 0], settings=settings)[1]
            for kv in ("dist_sync", "dist_gsync")}
    for index in range(2):
        for name, stock, ours in zip(runs["dist_sync"][index]["names"], runs["dist_sync"][index]["weights"],
                                     runs["dist_gsync"][index]["weights"]):
            assert np.abs(stock - ours).max() <= 1e-5, (index, name, stock, ours)


def test_big_arrays_on_two_servers_equal_dist_sync(mxnet_new, tmp_path, scripts):
    """Arrays above the bound are split over the servers, and their clocks with them."""
    options = dict(servers=2, settings=[params(**MOMENTUM)], environment={"MXNET_KVSTORE_BIGARRAY_BOUND": "50"})
    _, stock = train(mxnet_new.python, tmp_path / "stock", scripts, "module", "dist_sync", [0, 0], **options)
    _, ours = train(mxnet_new.python, tmp_path / "ours", scripts, "module", "dist_gsync", [0, 0], **options)
    for a, b in zip(stock[0]["weights"], ours[0]["weights"]):
        assert np.abs(a - b).max() <= 1e-5


@pytest.mark.parametrize("frontend,groups,servers,fixed_y", [
    ("module", [0, 1, 2], 1, True), ("module", [0, 0, 1], 2, False), ("gluon", [0, 0, 1], 2, False)])
def test_every_merge_is_that_of_the_definition(every_mxnet, tmp_path, scripts, frontend, groups, servers, fixed_y):
    """Y, scale and weights of all merges equal an independent replay; members of a group are bit-identical."""
    environment = {"MXCLUSTER_TRACE": "1", "MXCLUSTER_GSYNC_Y": "1" if fixed_y else ""}
    job, workers = train(every_mxnet.python, tmp_path, scripts, frontend, "dist_gsync", groups, 30, servers,
                         ["schedule=10", params(**MOMENTUM), "delay=0.02"], environment=environment)
    # Module divides by its batch of 8, Gluon's step(8) too, but means the batch of all W workers.
    rescale = (1.0 if frontend == "module" else len(groups)) / 8
    checked = 0
    for server in range(servers):
        merges = [event for event in job.events("merge") if event["index"] == server]
        initial = [_initial(workers, groups, p, merges, rescale) for p in range(len(workers[0]["names"]))]
        facts, snapshots = replay(
            merges, workers, groups, initial, rescale, 0.1, 0.9, 0.01,
            no_decay=[i for i, name in enumerate(workers[0]["names"]) if frontend == "module" and "bias" in name],
            fixed_y=fixed_y, lr_of_round=lambda n: 0.1 * 0.5 ** ((n - 1) // 10))
        for merge, (y, scale) in zip(merges, facts):
            assert (1 if fixed_y else merge["y"]) == y, merge
            assert merge["scale"] == pytest.approx(scale, rel=1e-6), merge
        for index, group in enumerate(groups):
            for step, after in enumerate(snapshots[group]):
                for p, expected in enumerate(after):
                    if expected is not None:
                        checked += 1
                        assert np.abs(workers[index]["history"][step][p] - expected).max() < 1e-4, (index, step, p)
    assert checked == len(groups) * 30 * len(workers[0]["names"])
    if not fixed_y:
        assert max(merge["y"] for merge in job.events("merge")) > 1, "the groups never met; nothing was tested"
        for step in range(30):
            for a, b in zip(workers[0]["history"][step], workers[1]["history"][step]):
                assert a.tobytes() == b.tobytes(), "members of a group differ after step %d" % step


def _initial(workers, groups, parameter, merges, rescale):
    """The weights before the first merge, from the first merge's result: w0 = (w1 + lr scale g) / (1 - lr wd)."""
    first = next((m for m in merges if m["parameter"] == parameter), None)
    if first is None:
        return np.zeros_like(workers[0]["weights"][parameter])
    members = [i for i, group in enumerate(groups) if group == first["group"]]
    total = sum(workers[i]["gradients"][0][parameter].astype("float64") for i in members)
    after = workers[members[0]]["history"][0][parameter].astype("float64")
    decay = 0.0 if rescale == 1.0 / 8 and "bias" in workers[0]["names"][parameter] else 0.01
    return (after + 0.1 * rescale / len(members) * total) / (1 - 0.1 * decay)


def test_a_slow_group_does_not_slow_the_other(mxnet_new, tmp_path, scripts):
    """A second group at a quarter of the speed leaves the first at least 0.9 of its own speed alone."""
    def seconds(folder, groups, pauses):
        _, workers = train(mxnet_new.python, folder, scripts, "module", "dist_gsync", groups, 20,
                           worker_environment={i: {"PAUSE": pause} for i, pause in enumerate(pauses)})
        return workers[0]["started"][-1] - workers[0]["started"][1]
    alone, beside = [], []
    # The machine has other work now and then, which slows one run; a group that waits for the other is slow in each.
    for attempt in range(3):
        alone.append(seconds(tmp_path / ("alone-%d" % attempt), [0, 0], ["0.1", "0.1"]))
        beside.append(seconds(tmp_path / ("beside-%d" % attempt), [0, 0, 1, 1], ["0.1", "0.1", "0.4", "0.4"]))
        if min(alone) / min(beside) >= 0.9:
            break
    assert min(alone) / min(beside) >= 0.9, (alone, beside)


def test_staleness_is_bounded_and_the_bound_is_reached(every_mxnet, tmp_path, scripts):
    """400 iterations of three workers with random delays; by the stores' clocks and by the wall clock."""
    bound = 2
    job, workers = train(every_mxnet.python, tmp_path, scripts, "module", "dist_ssync", [0, 0, 0], 400, 2,
                         ["delay=0.02"], staleness=bound, environment={"MXCLUSTER_TRACE": "1"})
    leads = [event["iteration"] - event["slowest"] for event in job.events("ssync")]
    # Four parameters, each of which counts as an iteration while the first step is learnt.
    assert len(leads) == 3 * (400 + 3) and max(leads) == bound, (len(leads), max(leads))
    # By the wall clock: when iteration t starts, the others have started t - bound at least, so that as many are complete.
    lead = 0
    for me in workers:
        for t, moment in enumerate(me["started"]):
            lead = max([lead] + [t - int(np.searchsorted(other["started"], moment, side="right")) for other in workers])
    assert 0 < lead <= bound, lead


def test_unequal_numbers_of_iterations_end(mxnet_new, tmp_path, scripts):
    """Under ssync a finished worker holds up nobody."""
    job = Job(mxnet_new.python, tmp_path, scripts / "unequal_steps.py", "dist_ssync", [0, 0], staleness=1).succeed(60)
    assert "worker 1 did 30 steps" in (tmp_path / "worker-1.log").read_text(), job.evidence()


@pytest.mark.parametrize("kv", ["dist_gsync", "dist_ssync"])
def test_what_cannot_be_trained_is_refused(every_mxnet, tmp_path, scripts, kv):
    """fp16, integer and sparse parameters, unknown names, mixed keys: the script checks each message."""
    job = Job(every_mxnet.python, tmp_path, scripts / "refusals.py", kv, [0], arguments=[kv]).succeed(60)
    assert "all refused" in (tmp_path / "worker-0.log").read_text(), job.evidence()


@pytest.mark.parametrize("kv", ["dist_sync", "dist_gsync"])
def test_an_optimizer_that_raises_on_the_server_ends_the_job(mxnet_new, tmp_path, scripts, kv):
    """MXNet itself would swallow the exception and go on without learning."""
    job = Job(mxnet_new.python, tmp_path, scripts / "small_training.py", kv, [0, 0],
              arguments=["module", kv, 5, tmp_path / "worker", params(momentum="much")])
    codes = job.wait(60)
    assert codes["server-0"] == 94 and set(codes.values()) <= {94, 91}, job.evidence()
    assert "the optimizer failed on the server" in (tmp_path / "server-0.log").read_text(), job.evidence()


def test_a_script_without_a_distributed_store_is_told_so(mxnet_new, tmp_path, scripts):
    job = Job(mxnet_new.python, tmp_path, scripts / "no_kvstore.py", "dist_sync", [0])
    assert job.wait(60, grace=0)["worker-0"] == exitcodes.NO_KVSTORE, job.evidence()
    assert "ended without making a distributed kv-store" in (tmp_path / "worker-0.log").read_text(), job.evidence()
