"""dist_gsync and dist_ssync conform to their definitions, with real processes and real MXNet."""

import collections
import json
import math
import re
import shutil
import time

import numpy as np
import pytest

from mxcluster import exit_codes
from tests import machine
from tests.often import seldom
from tests.training.conftest import by_turns, newest_often
from tests.training.loopback import SCRIPTS, Job, log_of, run_alone
from tests.training.replay import OPTIMIZERS, NoOrder, compressed, explain, load, part
from tests.waiting import until

MOMENTUM = {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.01}
SPLIT = {"MXNET_KVSTORE_BIGARRAY_BOUND": "50"}  # arrays are split over two servers


def train(python, folder, frontend, kv, groups, steps=50, servers=1, settings=(), **job):
    """Run small_training.py; return (the job, the log of each worker)."""
    arguments = [frontend, kv, steps, folder / "worker", *settings]
    job = Job(
        python, folder, "small_training.py", kv, groups, servers, arguments=arguments, **job
    ).succeed()
    return job, [load(folder / ("worker-%d.npz" % index)) for index in range(len(groups))]


def params(**values):
    return "params=" + json.dumps(values)


@by_turns("kv, frontend", ("dist_sync", "module"), ("dist_gsync", "gluon"))
def test_one_group_of_all_is_dist_sync(every_mxnet, tmp_path, kv, frontend):
    """dist_sync, and dist_gsync with one group, conform to the same definition.

    The case has momentum, weight decay, multipliers and arrays that are split over two servers.
    """
    job = {"servers": 2, "settings": [params(**MOMENTUM), "mult=1"], "environment": SPLIT}
    _, workers = train(every_mxnet.python, tmp_path, frontend, kv, [0, 0], **job)
    rescale = 1.0 / 8 if frontend == "gluon" else 1.0 / 16
    mult = {name: workers[0][name] for name in ("lr_mult", "wd_mult")}
    explain(workers, [0, 0], OPTIMIZERS["sgd"](**MOMENTUM), rescale, servers=2, bound=50, **mult)


DECAY, SCHEDULE = {"learning_rate": 0.01, "wd": 0.05}, ["schedule=10"]
# frontend, groups, servers, optimizer, its arguments, quantity that Y divides, more settings
MERGES = [
    ("module", [0, 0, 1], 2, "sgd", MOMENTUM, "rate", [*SCHEDULE, "mult=1"]),
    ("gluon", [0, 1, 2], 1, "adam", DECAY, "rate", ["mult=1"]),
    ("module_object", [0, 1, 1], 1, "sgd", dict(MOMENTUM, clip_gradient=0.05), "rate", []),
    ("feedforward", [0, 0, 1], 1, "sgd", {"learning_rate": 0.1, "momentum": 0.5}, "gradient", []),
    ("plain", [0, 1, 1], 2, "rmsprop", DECAY, "rate", ["keys=string", "calls=lists"]),
    ("module", [0, 1, 2], 1, "sgd", MOMENTUM, "one", []),
    ("plain", [0, 1], 2, "sgd", MOMENTUM, "gradient", ["keys=integer", "calls=each", *SCHEDULE]),
]


@by_turns("frontend, groups, servers, optimizer, arguments, y, settings", *MERGES)
def test_every_merge_is_that_of_the_definition(
    every_mxnet, tmp_path, frontend, groups, servers, optimizer, arguments, y, settings
):
    case = frontend, groups, servers, optimizer, arguments, y, settings
    check_merges(every_mxnet.python, tmp_path, *case)


# A small network has small gradients, so a large lambda shows.
LATE_MERGES = [
    ("module", [0, 0, 1], 2, "sgd", MOMENTUM, "rate", [*SCHEDULE, "mult=1"], 100, 2),
    ("gluon", [0, 1, 2], 1, "adam", DECAY, "rate", [], 20, 3),
    ("module_object", [0, 1], 1, "sgd", dict(MOMENTUM, clip_gradient=0.2), "gradient", [], 100, 0),
]


@newest_often
@pytest.mark.parametrize("case", LATE_MERGES, ids=lambda case: "-".join((case[0], case[3])))
def test_late_merges_are_compensated_or_dropped(every_mxnet, tmp_path, case):
    found = check_merges(every_mxnet.python, tmp_path, *case)
    assert case[-1] == 0 or any(slice.dropped for slice in found), "no update was late"


def check_merges(python, folder, *case):
    """Train, and assert that some order of merges explains the logs and the servers' events.

    Args: `case` a case of MERGES or LATE_MERGES. Returns the Explained of each slice.
    """
    frontend, groups, servers, optimizer, arguments, y, settings, *late = case
    compensation, max_y = late or (0, 0)
    steps = 30
    environment = {
        **SPLIT,
        "MXCLUSTER_GSYNC_Y": y,
        # For some of the integer keys, or of the layers.
        "MXCLUSTER_PLACEMENT": "1*2,0*4" if frontend == "plain" and servers == 2 else "",
        "MXCLUSTER_GSYNC_COMPENSATION": repr(float(compensation)),
        "MXCLUSTER_GSYNC_MAX_Y": str(max_y),
    }
    settings = ["optimizer=" + optimizer, params(**arguments), "delay=0.02", *settings]
    scheme = frontend, "dist_gsync", groups, steps, servers, settings
    job, workers = train(python, folder, *scheme, environment=environment)
    more = {"servers": servers, "bound": 50, "compensation": compensation, "max_y": max_y}
    more.update((name, workers[0][name]) for name in ("lr_mult", "wd_mult"))
    if SCHEDULE[0] in settings:
        rate = arguments["learning_rate"]
        more["lr_of_round"] = lambda number: rate * 0.5 ** ((number - 1) // 10)
    rescale = 1.0 / 8 if frontend == "gluon" else 1.0 / (8 * len(groups))
    divided = {"y": "gradient", "fixed_y": True} if y == "one" else {"y": y}
    found = explain(workers, groups, OPTIMIZERS[optimizer](**arguments), rescale, **divided, **more)
    histogram, dropped = collections.Counter(), 0
    last = {event["index"]: event for event in job.events("gsync")}
    for event in last.values():
        histogram.update({int(y): count for y, count in event["y"].items()})
        dropped += sum(event["dropped"].values())
    assert (
        sum(histogram.values()) + dropped
        == sum(len(slice.merges) for slice in found)
        == len(set(groups)) * steps * len(found)
    )
    assert max(histogram) > 1, "the groups never interleaved: the test is void"
    if not any(slice.ambiguous for slice in found) and y != "one":
        assert histogram == collections.Counter(y for slice in found for y in slice.ys)
    return found


# kv, groups, frontend. From MXNet 1.7 on Module and Trainer of MXNet alone cannot compress.
COMPRESSIONS = [
    ("dist_sync", [0, 0], "module"),
    seldom(("dist_device_sync", [0, 0], "module")),
    seldom(("dist_sync", [0, 0], "gluon")),
    ("dist_gsync", [0, 0], "module"),
    ("dist_gsync", [0, 0, 1], "module"),
    ("dist_gsync", [0, 0, 1], "gluon"),
    ("dist_gsync", [0, 1], "plain"),
]


@newest_often
@pytest.mark.parametrize("case", COMPRESSIONS, ids=lambda case: "-".join(map(str, case)))
def test_compressed_gradients_are_merged_as_defined(every_mxnet, tmp_path, case):
    """The servers merge multiples of the threshold, and the rest is left over for the next step.

    Arrays are split over two servers.
    """
    kv, groups, frontend = case
    threshold, bound = 0.25, 50
    settings = [params(**MOMENTUM), "delay=0.02", "compress=%g" % threshold]
    scheme = frontend, kv, groups, 30, 2, settings
    _, workers = train(every_mxnet.python, tmp_path, *scheme, environment=SPLIT)
    sent = [compressed(worker, threshold) for worker in workers]
    assert all(np.abs(step[0]).max() == threshold for step in sent[0]["gradients"]), "void"
    grouped = len(set(groups)) > 1
    more = dict(
        rescale=1.0 / 8 if frontend == "gluon" else 1.0 / (8 * len(groups)),
        y="rate",
        lr_mult=workers[0]["lr_mult"],
        wd_mult=workers[0]["wd_mult"],
        # With one group MXNet cuts arrays, in units of 16 numbers; all cuts have the same order.
        **(dict(servers=2, bound=bound) if grouped else {}),
    )
    explain(sent, groups, OPTIMIZERS["sgd"](**MOMENTUM), **more)
    with pytest.raises(NoOrder):
        explain(workers, groups, OPTIMIZERS["sgd"](**MOMENTUM), **more)


@newest_often
def test_every_compressed_update_is_there_once(every_mxnet, tmp_path):
    """Under dist_async too the servers give the optimizer multiples of the threshold."""
    settings = [params(learning_rate=0.05, wd=0), "delay=0.02", "final=1", "compress=0.25"]
    scheme = "module", "dist_async", [0, 0, 0], 40, 2, settings
    _, workers = train(every_mxnet.python, tmp_path, *scheme, environment=SPLIT)
    check_sums(workers, [compressed(worker, 0.25) for worker in workers])


def check_sums(workers, sent):
    """Check that the last weights are the first ones minus all gradients that were `sent`."""
    for place, name in enumerate(workers[0]["names"]):
        pushed = sum(
            step[place].astype("float64") for worker in sent for step in worker["gradients"]
        )
        expected = workers[0]["initial"][place] - 0.05 / 8 * workers[0]["lr_mult"][place] * pushed
        for worker in workers:
            error = np.abs(worker["final"][place] - expected).max()
            assert error <= 1e-5 * np.abs(expected).max() + 1e-7, name


@newest_often
def test_y_divides_what_every_optimizer_feels(every_mxnet):
    """Three interleaved groups move a weight as far as one group.

    Adaptive optimizers cancel a smaller gradient, so Y divides their rate.
    """
    found = result_of(every_mxnet, "distances.py")
    for name, moved in found.items():
        assert 0.9 <= moved["rate"] / moved["one group"] <= (1.35 if "momentum" in name else 1.1), (
            name,
            moved,
        )
    for name in ("adam", "rmsprop", "signum", "sgd, clip_gradient 0.1"):
        assert found[name]["gradient"] / found[name]["one group"] > 2, (name, found[name])
    assert found["sgd"]["gradient"] == pytest.approx(found["sgd"]["rate"], rel=1e-5)


def test_every_optimizer_of_mxnet(every_mxnet):
    """Shared by two groups, an optimizer gives MXNet's result or is refused for Python state."""
    found = result_of(every_mxnet, "every_optimizer.py")
    assert {"sgd", "nag", "adam", "rmsprop", "adagrad", "adadelta", "ftrl", "signum"} <= set(
        found["same"]
    ), found
    assert "nadam" in found["refused"] and not found["other"], found


def test_a_second_optimizer_comes_to_one_group_first(every_mxnet):
    """A second optimizer has new states, and does not reuse those of the first."""
    found = result_of(every_mxnet, "second_optimizer.py")
    assert found["found"] == pytest.approx(found["expected"], abs=1e-6), found


def test_a_schedule_is_shown_rounds_of_all_stale_workers(every_mxnet):
    """A schedule counts rounds, as under dist_sync; by pushes the rate would fall sooner."""
    found = result_of(every_mxnet, "stale_schedule.py")
    assert found["found"] == pytest.approx(found["expected"], abs=1e-6), found
    assert "mlp-0001 was requested before an optimizer" in found["refused"], found["refused"]


def result_of(environment, script):
    """Run a script without a job; return the JSON of its last output line."""
    return json.loads(run_alone(environment.python, script).stdout.splitlines()[-1])


def test_a_slow_group_does_not_slow_the_other(mxnet_new, tmp_path):
    """With a second group at a quarter of its speed, a group keeps 0.9 of its own speed."""

    def seconds(folder, groups, pauses):
        own = {i: {"PAUSE": pause} for i, pause in enumerate(pauses)}
        scheme = "module", "dist_gsync", groups, 20
        _, workers = train(mxnet_new.python, folder, *scheme, worker_environment=own)
        return workers[0]["started"][-1] - workers[0]["started"][1]

    alone, beside = [], []
    # Other load on the machine slows single runs, and lengthens the work between two pauses. A
    # group that waits for another takes four times as long in every run.
    for attempt in range(3):
        alone.append(seconds(tmp_path / ("alone-%d" % attempt), [0, 0], ["0.1", "0.1"]))
        folder = tmp_path / ("beside-%d" % attempt)
        with machine.Stopwatch() as watch:
            beside.append(seconds(folder, [0, 0, 1, 1], ["0.1", "0.1", "0.4", "0.4"]))
        lost = min(beside) - min(alone)
        if lost <= min(alone) * (1 / 0.9 - 1) * watch.slowness:
            return
    raise AssertionError((alone, beside, watch.slowness))


@newest_often
def test_staleness_is_bounded_and_the_bound_is_reached(every_mxnet, tmp_path):
    """In 200 iterations with random delays the staleness reaches its bound and never exceeds it.

    The check uses the stores' clocks and the machine's clock.
    """
    bound = 2
    scheme = "module", "dist_ssync", [0, 0, 0], 200, 2, ["delay=0.02"]
    more = {"staleness": bound, "environment": {"MXCLUSTER_TRACE": "1"}}
    job, workers = train(every_mxnet.python, tmp_path, *scheme, **more)
    leads = [event["iteration"] - event["slowest"] for event in job.events("ssync")]
    assert len(leads) == 3 * 200 and max(leads) == bound, (len(leads), max(leads))
    assert 0 < lead([worker["started"] for worker in workers]) <= bound


def lead(started):
    """Return the largest lead of one worker over another in iterations, by the machine's clock.

    `started[i][t]` is the time when worker i began iteration t. When iteration t starts, the others
    have started at least iteration t - staleness, so as many are complete.
    """
    return max(
        t - int(np.searchsorted(other, moment, side="right"))
        for mine in started
        for t, moment in enumerate(mine)
        for other in started
    )


@newest_often
def test_staleness_is_bounded_where_first_steps_have_different_keys(every_mxnet, tmp_path):
    """A pull of the first step does not count as an iteration.

    Once it did, and a worker with more keys was further ahead.
    """
    job = Job(
        every_mxnet.python, tmp_path, "first_steps.py", "dist_ssync", [0, 0], 2, staleness=1
    ).succeed()
    started = [
        json.loads(log_of(tmp_path, "worker-%d" % index).splitlines()[-1]) for index in (0, 1)
    ]
    assert 0 < lead(started) <= 1, job.evidence()


@by_turns(
    "frontend, settings, placement",
    ("module", ["mult=1"], ""),
    ("feedforward", [], "1*2,0*1"),
    ("gluon", ["mult=1", "freeze=20"], "1*4"),
)
def test_every_stale_update_is_there_once(every_mxnet, tmp_path, frontend, settings, placement):
    """Without momentum and decay, the weights are the sum of all gradients in any order."""
    settings = [params(learning_rate=0.05, wd=0), "delay=0.02", "final=1", *settings]
    scheme = frontend, "dist_ssync", [0, 0, 0], 40, 2, settings
    more = {"staleness": 2, "environment": dict(SPLIT, MXCLUSTER_PLACEMENT=placement)}
    _, workers = train(every_mxnet.python, tmp_path, *scheme, **more)
    check_sums(workers, workers)
    if frontend != "feedforward":  # feedforward calls neither Trainer.step nor Module.update
        assert lead([worker["started"] for worker in workers]) <= 2


def test_a_layer_that_is_frozen_during_training(every_mxnet, tmp_path):
    """Later pulls do not overwrite the gradient of a frozen layer.

    Once they did, and the worker pushed the result as a gradient.
    """
    groups, steps, frozen_at = [0, 0, 1], 30, 15
    settings = [params(**MOMENTUM), "delay=0.02", "freeze=%d" % frozen_at]
    scheme = "gluon", "dist_gsync", groups, steps, 2, settings
    _, workers = train(every_mxnet.python, tmp_path, *scheme, environment=SPLIT)
    frozen = workers[0]["names"].index("fc1_weight")
    others = [place for place in range(4) if place != frozen]
    for parameters, trained in ((others, steps), ([frozen], frozen_at)):
        logs = [part(worker, parameters, trained) for worker in workers]
        sgd = OPTIMIZERS["sgd"](**MOMENTUM)
        explain(logs, groups, sgd, rescale=1.0 / 8, y="rate", servers=2, bound=50)
    for worker in workers:
        assert all(
            np.array_equal(pulled[frozen], worker["history"][frozen_at - 1][frozen])
            for pulled in worker["history"][frozen_at:]
        )


def test_unequal_numbers_of_iterations_end(mxnet_new, tmp_path):
    """Under dist_ssync a finished worker does not block others."""
    job = Job(
        mxnet_new.python, tmp_path, "unequal_steps.py", "dist_ssync", [0, 0], staleness=1
    ).succeed()
    assert "worker 1 did 30 steps" in log_of(tmp_path, "worker-1"), job.evidence()


@pytest.mark.parametrize(
    "kv, groups, bound",
    [
        seldom("dist_gsync", [0, 0, 1], 1000),
        ("dist_gsync", [0, 0, 1], 2),
        ("dist_ssync", [0, 0], 1000),
    ],
)
def test_uses_that_training_programs_do_not_make(every_mxnet, tmp_path, kv, groups, bound):
    """Unusual calls give correct weights: fewer keys, other orders, late keys, ...

    The script checks each weight. With a bound of 2 each array of two numbers is split over two
    servers.
    """
    more = {"arguments": [kv], "environment": {"MXNET_KVSTORE_BIGARRAY_BOUND": str(bound)}}
    job = Job(every_mxnet.python, tmp_path, "uses.py", kv, groups, 2, staleness=1, **more).succeed()
    for index in range(len(groups)):
        text = log_of(tmp_path, "worker-%d" % index)
        assert "all uses are right" in text, job.evidence()
        assert ("set the learning rate to 0.25 on a worker, but the servers keep 0.1" in text) == (
            index < 2
        ), text


# MXNet 1.2.1 has no arrays of numpy: this case has an even number, and so the newest MXNet.
@by_turns(
    "kv, which",
    ("dist_ssync", "modules"),
    ("dist_gsync", "modules"),
    ("dist_gsync", "sparse"),
    ("dist_ssync", "sparse"),
    ("dist_ssync", "name"),
    ("dist_gsync", "name"),
    ("dist_gsync", "numpy"),
    ("dist_sync", "rank_0"),
    ("dist_gsync", "rank_0"),
)
def test_more_uses(every_mxnet, tmp_path, kv, which):
    more = {"arguments": [kv, which], "environment": {"MXNET_KVSTORE_BIGARRAY_BOUND": "4"}}
    job = Job(every_mxnet.python, tmp_path, "more_uses.py", kv, [0, 1], 2, **more).succeed()
    assert "right" in log_of(tmp_path, "worker-0"), job.evidence()


DISAGREE = {
    "names": r"key number 0 is '[ab]' on worker-[012], but '[ab]' on worker-[012]",
    "rescale_grad": r"the optimizer of worker-[012] has rescale_grad=0.2?5, but the optimizer "
    r"of worker-[012] has 0.2?5",
    "lr_mult": r"has lr_mult=\{0: (0.5|2.0)\}, but the optimizer of worker-[012] has \{0: ",
    "schedule": r"has lr_scheduler.step=[57], but the optimizer of worker-[012] has [57]",
    "class": r"has .*=.*, but the optimizer of worker-[012] has ",
}
STORES = {"dist_gsync": [0, 0, 1], "dist_ssync": [0, 0]}
OFTEN = [("rescale_grad", "dist_ssync")]


@pytest.mark.parametrize(
    "what, kv",
    [(what, kv) if (what, kv) in OFTEN else seldom(what, kv) for what in DISAGREE for kv in STORES],
)
def test_workers_that_do_not_agree_end_the_job(mxnet_new, tmp_path, what, kv):
    job = Job(
        mxnet_new.python, tmp_path, "disagree.py", kv, STORES[kv], arguments=[kv, what], heartbeat=5
    )
    with machine.Stopwatch() as watch:
        until(job.has_failed, seconds=300, evidence=job.evidence)
    times = re.findall("sent at ([0-9.]+)", job.evidence())
    taken = time.monotonic() - max(map(float, times), default=-math.inf)
    assert taken < 10 * watch.slowness, (taken, watch.slowness, job.evidence())
    codes = job.wait(grace=120)  # without an agent, the others end by missing heartbeats
    assert exit_codes.UPDATER_FAILED in codes.values() and "still running" not in codes.values(), (
        job.evidence()
    )
    assert re.search(DISAGREE[what], job.evidence()), job.evidence()


def test_servers_whose_ranks_are_not_those_of_the_plan_end_the_job(mxnet_new, tmp_path):
    """Servers with swapped ranks would merge gradients of the other group."""
    more = {"arguments": ["dist_gsync"], "environment": {"MXCLUSTER_SERVER_RANKS": "1,0"}}
    job = Job(mxnet_new.python, tmp_path, "uses.py", "dist_gsync", [0, 0, 1], **more)
    assert exit_codes.UPDATER_FAILED in job.wait(grace=0).values(), job.evidence()
    words = "ps-lite gave server-[01] the rank [01] in place of the planned rank [01]"
    assert re.search(words, job.evidence()), job.evidence()


@newest_often
@pytest.mark.parametrize("kv, groups", [("dist_gsync", [0, 1]), ("dist_ssync", [0, 1])])
def test_what_cannot_be_trained_is_refused(every_mxnet, tmp_path, kv, groups):
    """fp16, integer and sparse parameters, unknown names and mixed keys are refused.

    The script checks each message."""
    job = Job(every_mxnet.python, tmp_path, "refusals.py", kv, groups, arguments=[kv]).succeed()
    assert "all refused" in log_of(tmp_path, "worker-0"), job.evidence()


@pytest.mark.parametrize("kv", [seldom("dist_sync"), "dist_gsync"])
def test_an_optimizer_that_raises_on_the_server_ends_the_job(mxnet_new, tmp_path, kv):
    """MXNet itself would ignore the exception and continue without training."""
    arguments = ["module", kv, 5, tmp_path / "worker", params(momentum="much")]
    more = {"arguments": arguments, "heartbeat": 5}
    job = Job(mxnet_new.python, tmp_path, "small_training.py", kv, [0, 1], **more)
    codes = job.wait(grace=120)
    assert 94 in codes.values() and set(codes.values()) <= {94, 91}, job.evidence()
    assert "the optimizer failed on the server" in job.evidence(), job.evidence()


def test_a_server_process_whose_mate_has_failed_says_so(mxnet_new, tmp_path):
    """Only the server with the exception is the cause; its mate on the host ends as its peer."""
    (tmp_path / "script").mkdir()
    for name in ("one_fails.py", "fails_on_server_1.py"):
        shutil.copy(str(SCRIPTS / name), str(tmp_path / "script"))
    script, classes = tmp_path / "script" / "one_fails.py", "fails_on_server_1:Failing"
    more = {"arguments": ["dist_gsync"], "environment": {"MXCLUSTER_SERVER_CLASSES": classes}}
    job = Job(mxnet_new.python, tmp_path, script, "dist_gsync", [0, 1], **more)
    servers = [job.processes[name] for name in ("server-0", "server-1")]
    until(lambda: all(server.poll() for server in servers), evidence=job.evidence)
    codes = [server.poll() for server in servers]
    assert codes == [exit_codes.PEER_DIED, exit_codes.UPDATER_FAILED], job.evidence()
    log = log_of(tmp_path, "server-0")
    assert "another server process of this host died during an update of parameter 3" in log, log
