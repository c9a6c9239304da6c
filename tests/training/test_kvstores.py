"""dist_gsync and dist_ssync against their definitions, with real processes and real MXNet."""

import collections
import json
import os
import re
import subprocess
import time

import numpy as np
import pytest

from mxcluster import exitcodes
from tests.training.conftest import also_between
from tests.training.loopback import NODE_PACKAGE, Job
from tests.training.replay import OPTIMIZERS, explain, load, part

MOMENTUM = {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.01}


def train(python, folder, scripts, frontend, kv, groups, steps=50, servers=1, settings=(), **job):
    """Runs small_training.py and returns (the job, what each worker saved)."""
    arguments = [frontend, kv, steps, folder / "worker", *settings]
    job = Job(python, folder, scripts / "small_training.py", kv, groups, servers, arguments=arguments, **job).succeed()
    return job, [load(folder / ("worker-%d.npz" % index)) for index in range(len(groups))]


def params(**values):
    return "params=" + json.dumps(values)


@pytest.mark.parametrize("frontend", ["module", "gluon"])
def test_one_group_of_all_is_dist_sync(every_mxnet, tmp_path, scripts, frontend):
    """With momentum, weight decay, multipliers and arrays that are cut over two servers; and both are what is defined."""
    options = dict(servers=2, settings=[params(**MOMENTUM), "mult=1"], environment={"MXNET_KVSTORE_BIGARRAY_BOUND": "50"})
    runs = {kv: train(every_mxnet.python, tmp_path / kv, scripts, frontend, kv, [0, 0], **options)[1]
            for kv in ("dist_sync", "dist_gsync")}
    for stock, ours in zip(runs["dist_sync"], runs["dist_gsync"]):
        for name, one, other in zip(stock["names"], stock["weights"], ours["weights"]):
            assert np.abs(one - other).max() <= 1e-6, name
    for workers in runs.values():
        explain(workers, [0, 0], OPTIMIZERS["sgd"](**MOMENTUM), rescale=1.0 / 8 if frontend == "gluon" else 1.0 / 16,
                lr_mult=workers[0]["lr_mult"], wd_mult=workers[0]["wd_mult"], servers=2, bound=50)


# frontend, groups, servers, optimizer, its arguments, what Y divides, more settings
MERGES = [
    ("module", [0, 0, 1], 2, "sgd", MOMENTUM, "rate", ["schedule=10", "mult=1"]),
    ("gluon", [0, 1, 2], 1, "adam", {"learning_rate": 0.01, "wd": 0.05}, "rate", ["mult=1"]),
    ("module_object", [0, 1, 1], 1, "sgd", dict(MOMENTUM, clip_gradient=0.05), "rate", []),
    ("feedforward", [0, 0, 1], 1, "sgd", {"learning_rate": 0.1, "momentum": 0.5}, "gradient", []),
    ("plain", [0, 1, 1], 2, "rmsprop", {"learning_rate": 0.01, "wd": 0.05}, "rate", ["keys=string", "calls=lists"])]
MORE_MERGES = [
    ("module", [0, 1, 2], 1, "sgd", MOMENTUM, "one", []),
    ("plain", [0, 1], 2, "sgd", MOMENTUM, "gradient", ["keys=integer", "calls=each", "schedule=10"])]


@pytest.mark.parametrize("case", MERGES, ids=lambda case: "-".join((case[0], case[3], case[5])))
def test_every_merge_is_that_of_the_definition(every_mxnet, tmp_path, scripts, case):
    check_merges(every_mxnet.python, tmp_path, scripts, *case)


@pytest.mark.parametrize("case", MORE_MERGES, ids=lambda case: "-".join((case[0], case[3], case[5])))
def test_every_merge_is_that_of_the_definition_in_other_uses(mxnet_new, tmp_path, scripts, case):
    check_merges(mxnet_new.python, tmp_path, scripts, *case)


def check_merges(python, folder, scripts, frontend, groups, servers, optimizer, arguments, y, settings):
    """The workers' logs are explained by merges in some order; what the servers tell of them is the same."""
    steps, bound = 30, 50
    job, workers = train(python, folder, scripts, frontend, "dist_gsync", groups, steps, servers,
                         ["optimizer=" + optimizer, params(**arguments), "delay=0.02", *settings],
                         environment={"MXCLUSTER_GSYNC_Y": y, "MXNET_KVSTORE_BIGARRAY_BOUND": str(bound)})
    rate = arguments["learning_rate"]
    found = explain(workers, groups, OPTIMIZERS[optimizer](**arguments),
                    rescale=1.0 / 8 if frontend == "gluon" else 1.0 / (8 * len(groups)),
                    y="gradient" if y == "one" else y, fixed_y=y == "one",
                    lr_of_round=(lambda number: rate * 0.5 ** ((number - 1) // 10)) if "schedule=10" in settings else None,
                    lr_mult=workers[0]["lr_mult"], wd_mult=workers[0]["wd_mult"], servers=servers, bound=bound)
    told = collections.Counter()
    last = {event["index"]: event for event in job.events("gsync")}
    for event in last.values():
        told.update({int(y): count for y, count in event["y"].items()})
    assert sum(told.values()) == sum(len(slice.merges) for slice in found) == len(set(groups)) * steps * len(found)
    assert max(told) > 1, "the groups never met; nothing was tested"
    if not any(slice.ambiguous for slice in found) and y != "one":
        assert told == collections.Counter(y for slice in found for y in slice.ys)


def test_y_divides_what_every_optimizer_feels(every_mxnet, scripts):
    """Three groups in lock-step move a weight as far as one group; adaptive optimizers do not feel a smaller gradient."""
    found = run_alone(every_mxnet.python, scripts / "distances.py")
    for name, moved in found.items():
        assert 0.9 <= moved["rate"] / moved["one group"] <= (1.35 if "momentum" in name else 1.1), (name, moved)
    for name in ("adam", "rmsprop", "signum", "sgd, clip_gradient 0.1"):
        assert found[name]["gradient"] / found[name]["one group"] > 2, (name, found[name])
    assert found["sgd"]["gradient"] == pytest.approx(found["sgd"]["rate"], rel=1e-5)


def test_every_optimizer_of_mxnet(every_mxnet, scripts):
    """Shared by two groups it does what it does alone, or it is refused by what it keeps in Python."""
    found = run_alone(every_mxnet.python, scripts / "every_optimizer.py")
    assert {"sgd", "nag", "adam", "rmsprop", "adagrad", "adadelta", "ftrl", "signum"} <= set(found["same"]), found
    assert "nadam" in found["refused"] and not found["other"], found


def test_a_second_optimizer_comes_to_one_group_first(every_mxnet, scripts):
    """Its states are new, and those of the first are not taken for it."""
    found = run_alone(every_mxnet.python, scripts / "second_optimizer.py")
    assert found["found"] == pytest.approx(found["expected"], abs=1e-6), found


def test_a_schedule_is_shown_rounds_of_all_stale_workers(every_mxnet, scripts):
    """Not their pushes, or the rate would fall sooner, by the number of workers, than under dist_sync."""
    found = run_alone(every_mxnet.python, scripts / "stale_schedule.py")
    assert found["found"] == pytest.approx(found["expected"], abs=1e-6), found


def run_alone(python, script):
    """What a script prints in JSON on its last line; it runs without a job."""
    done = subprocess.run([str(python), "-W", "ignore", str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env=dict(os.environ, PYTHONPATH=str(NODE_PACKAGE)), universal_newlines=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


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
    assert len(leads) == 3 * 400 and max(leads) == bound, (len(leads), max(leads))
    assert 0 < lead([worker["started"] for worker in workers]) <= bound


def lead(started):
    """By how many iterations one was ahead of another, by the wall clock; `started[i][t]` is when worker i began iteration t.

    When iteration t starts, the others have started t - staleness at least, so that as many are complete.
    """
    return max(t - int(np.searchsorted(other, moment, side="right"))
               for mine in started for t, moment in enumerate(mine) for other in started)


def test_staleness_is_bounded_where_first_steps_have_different_keys(every_mxnet, tmp_path, scripts):
    """A pull of the first step was once taken for an iteration: who pulled more keys was further ahead."""
    job = Job(every_mxnet.python, tmp_path, scripts / "first_steps.py", "dist_ssync", [0, 0], 2, staleness=1).succeed(60)
    started = [json.loads((tmp_path / ("worker-%d.log" % index)).read_text().splitlines()[-1]) for index in (0, 1)]
    assert 0 < lead(started) <= 1, job.evidence()


@pytest.mark.parametrize("frontend, settings", [("module", ["mult=1"]), ("feedforward", []), ("gluon", ["mult=1", "freeze=20"])])
def test_every_stale_update_is_there_once(every_mxnet, tmp_path, scripts, frontend, settings):
    """Without momentum and decay the weights are the sum of all gradients, whoever came first."""
    _, workers = train(every_mxnet.python, tmp_path, scripts, frontend, "dist_ssync", [0, 0, 0], 40, 2,
                       [params(learning_rate=0.05, wd=0), "delay=0.02", "final=1", *settings], staleness=2,
                       environment={"MXNET_KVSTORE_BIGARRAY_BOUND": "50"})
    for place, name in enumerate(workers[0]["names"]):
        pushed = sum(step[place].astype("float64") for worker in workers for step in worker["gradients"])
        expected = workers[0]["initial"][place] - 0.05 / 8 * workers[0]["lr_mult"][place] * pushed
        for worker in workers:
            assert np.abs(worker["final"][place] - expected).max() <= 1e-5 * np.abs(expected).max() + 1e-7, name
    if frontend != "feedforward":  # which calls neither Trainer.step nor Module.update
        assert lead([worker["started"] for worker in workers]) <= 2


def test_a_layer_that_is_frozen_during_training(every_mxnet, tmp_path, scripts):
    """What is pulled later would once land in the gradient, and be pushed as one."""
    groups, steps, frozen_at = [0, 0, 1], 30, 15
    _, workers = train(every_mxnet.python, tmp_path, scripts, "gluon", "dist_gsync", groups, steps, 2,
                       [params(**MOMENTUM), "delay=0.02", "freeze=%d" % frozen_at],
                       environment={"MXNET_KVSTORE_BIGARRAY_BOUND": "50"})
    frozen = workers[0]["names"].index("fc1_weight")
    others = [place for place in range(4) if place != frozen]
    for parameters, until in ((others, steps), ([frozen], frozen_at)):
        explain([part(worker, parameters, until) for worker in workers], groups, OPTIMIZERS["sgd"](**MOMENTUM), rescale=1.0 / 8,
                y="rate", servers=2, bound=50)
    for worker in workers:
        assert all(np.array_equal(pulled[frozen], worker["history"][frozen_at - 1][frozen])
                   for pulled in worker["history"][frozen_at:])


def test_unequal_numbers_of_iterations_end(mxnet_new, tmp_path, scripts):
    """Under ssync a finished worker holds up nobody."""
    job = Job(mxnet_new.python, tmp_path, scripts / "unequal_steps.py", "dist_ssync", [0, 0], staleness=1).succeed(60)
    assert "worker 1 did 30 steps" in (tmp_path / "worker-1.log").read_text(), job.evidence()


@also_between
@pytest.mark.parametrize("kv, groups, bound", [("dist_gsync", [0, 0, 1], 1000), ("dist_gsync", [0, 0, 1], 2),
                                               ("dist_ssync", [0, 0], 1000)])
def test_uses_that_training_programs_do_not_make(every_mxnet, tmp_path, scripts, kv, groups, bound):
    """Fewer keys in a step, other orders, key by key, late keys, a second optimizer, ...: the script checks each weight.

    With a bound of 2 each array, which has two numbers, is cut over the two servers.
    """
    job = Job(every_mxnet.python, tmp_path, scripts / "uses.py", kv, groups, servers=2, staleness=1, arguments=[kv],
              environment={"MXNET_KVSTORE_BIGARRAY_BOUND": str(bound)}).succeed(60)
    for index in range(len(groups)):
        text = (tmp_path / ("worker-%d.log" % index)).read_text()
        assert "all uses are right" in text, job.evidence()
        assert ("the learning rate was set to 0.25 on a worker; the servers go on with 0.1" in text) == (index < 2), text


@pytest.mark.parametrize("kv", ["dist_gsync", "dist_ssync"])
@pytest.mark.parametrize("which", ["name", "modules", "sparse", "numpy"])
def test_more_uses(every_mxnet, tmp_path, scripts, kv, which):
    job = Job(every_mxnet.python, tmp_path, scripts / "more_uses.py", kv, [0, 1], servers=2, arguments=[kv, which],
              environment={"MXNET_KVSTORE_BIGARRAY_BOUND": "4"}).succeed(60)
    assert "right" in (tmp_path / "worker-0.log").read_text(), job.evidence()


DISAGREE = {
    "names": r"the key 0 of worker-[012] is '[ab]', and of worker-[012] '[ab]'",
    "rescale_grad": r"the optimizer of worker-[012] has rescale_grad=0.2?5, and that of worker-[012] 0.2?5",
    "lr_mult": r"has lr_mult=\{0: (0.5|2.0)\}, and that of worker-[012] \{0: ",
    "schedule": r"has lr_scheduler.step=[57], and that of worker-[012] [57]",
    "class": r"has .*=.*, and that of worker-[012] "}
STORES = {"dist_gsync": [0, 0, 1], "dist_ssync": [0, 0]}
OFTEN = [("names", "dist_gsync"), ("schedule", "dist_gsync"), ("rescale_grad", "dist_ssync")]


@pytest.mark.parametrize("what, kv", [pytest.param(what, kv, marks=[pytest.mark.soak] * ((what, kv) not in OFTEN))
                                      for what in DISAGREE for kv in STORES])
def test_workers_that_do_not_agree_end_the_job(mxnet_new, tmp_path, scripts, what, kv):
    job = Job(mxnet_new.python, tmp_path, scripts / "disagree.py", kv, STORES[kv], arguments=[kv, what])
    while not any(process.poll() for process in job.processes.values()):
        time.sleep(0.1)
    last = max(float(moment) for moment in re.findall("told at ([0-9.]+)", job.evidence()))
    assert time.time() - last < 10, job.evidence()
    codes = job.wait(60)  # an agent would end the others at once; here they miss each other's heartbeats
    assert exitcodes.UPDATER_FAILED in codes.values() and "still running" not in codes.values(), job.evidence()
    assert re.search(DISAGREE[what], job.evidence()), job.evidence()


def test_servers_whose_ranks_are_not_those_of_the_plan_end_the_job(mxnet_new, tmp_path, scripts):
    """Each would merge what belongs to the other's group."""
    job = Job(mxnet_new.python, tmp_path, scripts / "uses.py", "dist_gsync", [0, 0, 1], arguments=["dist_gsync"],
              environment={"MXCLUSTER_SERVER_RANKS": "1,0"})
    assert exitcodes.UPDATER_FAILED in job.wait(60).values(), job.evidence()
    assert re.search("ps-lite gave server-[01] the rank [01], and the plan says [01]", job.evidence()), job.evidence()


@pytest.mark.parametrize("kv, groups", [("dist_gsync", [0, 1]), ("dist_ssync", [0, 1])])
def test_what_cannot_be_trained_is_refused(every_mxnet, tmp_path, scripts, kv, groups):
    """fp16, integer and sparse parameters, unknown names, mixed keys: the script checks each message."""
    job = Job(every_mxnet.python, tmp_path, scripts / "refusals.py", kv, groups, arguments=[kv]).succeed(60)
    assert "all refused" in (tmp_path / "worker-0.log").read_text(), job.evidence()


@pytest.mark.parametrize("kv", ["dist_sync", "dist_gsync"])
def test_an_optimizer_that_raises_on_the_server_ends_the_job(mxnet_new, tmp_path, scripts, kv):
    """MXNet itself would swallow the exception and go on without learning."""
    job = Job(mxnet_new.python, tmp_path, scripts / "small_training.py", kv, [0, 1],
              arguments=["module", kv, 5, tmp_path / "worker", params(momentum="much")])
    codes = job.wait(60)
    assert 94 in codes.values() and set(codes.values()) <= {94, 91}, job.evidence()
    assert "the optimizer failed on the server" in job.evidence(), job.evidence()


def test_a_script_without_a_distributed_store_is_told_so(mxnet_new, tmp_path, scripts):
    job = Job(mxnet_new.python, tmp_path, scripts / "no_kvstore.py", "dist_sync", [0])
    assert job.wait(60, grace=0)["worker-0"] == exitcodes.NO_KVSTORE, job.evidence()
    assert "ended without making a distributed kv-store" in (tmp_path / "worker-0.log").read_text(), job.evidence()
