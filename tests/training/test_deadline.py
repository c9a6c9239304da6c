"""Steps that end at a common deadline, with real servers and a clock that only passes advance."""

import json
import shutil
import textwrap

import numpy as np
import pytest

from mxcluster import checkpoints, deadline, exit_codes
from tests.often import seldom
from tests.training import replay
from tests.training.conftest import newest_often
from tests.training.loopback import Job, program, run_alone
from tests.training.test_balance import difference, weights_of
from tests.training.test_program import Run
from tests.training.test_resume import states_of

# A sample takes 10 ms of the clock, times the slowdown.
PACED = {"balance": "deadline", "step_ms": 160, "batch_size": 16, "lr": 0.05, "least_batch": 2}
SGD = {"momentum": 0.9, "wd": 1e-4}


def start(python, folder, digits, knobs, slowdowns=(1, 1), groups=(), variables=None, **more):
    """Start the program, one worker for each slowdown. Return the Job.

    Args: `variables` {index of a worker: its further variables of deadline.py}.
    """
    arguments = dict(data_dir=digits, kv="dist_sync", savemodel=True, keep_checkpoints=9)
    arguments.update(PACED, **knobs)
    own = {
        index: dict({"SLOWDOWN": str(factor)}, **(variables or {}).get(index, {}))
        for index, factor in enumerate(slowdowns)
    }
    more.update(arguments=program(**arguments), worker_environment=own)
    return Job(
        python, folder, "deadline.py", arguments["kv"], groups or (0,) * len(slowdowns), **more
    )


def train(*args, **more):
    return start(*args, **more).succeed()


def logs_of(job, workers):
    return [json.loads((job.folder / ("told-%d.json" % i)).read_text()) for i in range(workers)]


def counts_of(log, members):
    """Return the samples of each of `members` in each step, array (steps, members)."""
    return np.array([[int(step[member][0]) for member in members] for step in log["told"]])


def final(environment, folder, job, workers):
    paths = [job.folder / ("weights-%d.params" % index) for index in range(workers)]
    return weights_of(environment, folder, *paths)


@newest_often
def test_small_batches_add_up_to_one_batch(every_mxnet, tmp_path, digits):
    """Four small batches of two samples a step train as dist_sync with batches of eight."""
    knobs = {"num_examples": 96, "num_epochs": 3, "batch_size": 8}
    job = train(every_mxnet.python, tmp_path / "job", digits, knobs)
    plain = dict(knobs, balance="none", step_ms=0)
    whole = train(every_mxnet.python, tmp_path / "whole", digits, plain)
    for log in logs_of(job, 2):
        assert counts_of(log, [0, 1]).tolist() == [[8, 8]] * 18
        assert [len(samples) for samples in log["passes"]] == [2] * 4 * 18
    found = [final(every_mxnet, tmp_path, one, 2) for one in (job, whole)]
    assert difference(found[0][0], found[0][1]) == 0
    assert difference(found[0][0], found[1][0]) < 1e-5
    momentum = [states_of(one.folder / "checkpoints", "mlp-0003") for one in (job, whole)]
    assert difference(*momentum) < 1e-5
    assert max(np.abs(values).max() for values in momentum[0].values()) > 1e-3


@pytest.mark.parametrize("every_mxnet", ["1.9.1", seldom("1.5.1"), "1.2.1"], indirect=True)
def test_gradients_of_several_passes_add_up(every_mxnet):
    """Also those of BatchNorm, which MXNet 1.2.1 and 1.5.1 lose with grad_req="add"."""
    done = run_alone(every_mxnet.python, "gradients.py")
    assert float(done.stdout) < 1e-5


@pytest.mark.parametrize(
    "kv,groups,slowdowns",
    [("dist_sync", (0, 0, 0), (1, 1, 3)), ("dist_gsync", (0, 1, 0, 1), (1, 2, 3, 1))],
)
def test_a_replay_of_the_counts_explains_the_weights(
    mxnet_new, tmp_path, digits, kv, groups, slowdowns
):
    """Each update is the mean over all samples of the workers that wait for each other."""
    knobs = {"kv": kv, "num_examples": 1024, "num_epochs": 2, "batch_size": 64, "step_ms": 640}
    job = train(
        *(mxnet_new.python, tmp_path / "job", digits, knobs, slowdowns, groups),
        environment={"LOG_WEIGHTS": "1"},
    )
    sets = [[i for i, group in enumerate(groups) if group == one] for one in sorted(set(groups))]
    told, logs = logs_of(job, len(groups)), []
    for index, group in enumerate(groups):
        members, log = sets[group], replay.load(job.folder / ("log-%d.npz" % index))
        counts = counts_of(told[index], members)
        assert counts.min() < counts.max()
        # The size of the small batches follows the first speeds, from 64 / 16 on.
        sizes = [len(samples) for samples in told[index]["passes"]]
        assert sizes[0] == 4 and 4 not in sizes[-8:]
        log["gradients"] = [
            [array * (64.0 * len(members) / sum(of_step)) for array in gradients]
            for gradients, of_step in zip(log["gradients"], counts)
        ]
        logs.append(log)
    found = replay.explain(
        *(logs, groups, replay.Sgd(0.05, **SGD), 1 / (64 * len(groups))),
        y="rate",
        lr_mult=logs[0]["lr_mult"],
        wd_mult=logs[0]["wd_mult"],
        tolerance=1e-5,
    )
    assert len(found) == 6 and all(len(one.merges) >= 10 for one in found)
    # Only worker 0 of a job without groups knows all workers.
    manifest = checkpoints.read(str(job.folder / "checkpoints"), "mlp-0001").manifest
    assert (manifest.progress is None) == (manifest.batch_sizes is None) == (len(sets) > 1)


def test_an_epoch_ends_with_its_samples_and_each_shard_is_walked_in_turn(
    mxnet_new, tmp_path, digits
):
    """Speeds of 1, 1 and 1/4: T fits the planned samples, and shards fit the speeds."""
    knobs = {"num_examples": 240, "num_epochs": 3, "least_batch": 1}
    slow = {"REPORT_S": "0.5"}
    job = train(mxnet_new.python, tmp_path / "job", digits, knobs, (1, 1, 4), environment=slow)
    logs, changes = logs_of(job, 3), job.events("balance")
    counts = counts_of(logs[0], [0, 1, 2])
    for log in logs:
        assert log["told"] == logs[0]["told"], "all workers know the same numbers"
    # The first step has the planned samples. Then all workers take about 48 / 2.25 x 10 ms.
    assert counts[0].tolist() == [16, 16, 16] and abs(counts[1:] - [21, 21, 5]).max() <= 1
    ends = [event for event in job.events("epoch") if event["index"] == 0]
    assert [event["batch_size"] for event in ends] == [16, changes[0]["sizes"][0]] + [
        changes[-1]["sizes"][0]
    ]
    assert {event["repeated"] for event in job.events("start")} == {0}
    # An epoch ends at the step at which the counted samples reach its samples.
    steps, epoch = [0, 0, 0], 0
    counted = 0
    for number in counts.sum(axis=1):
        counted, steps[epoch] = counted + number, steps[epoch] + 1
        if counted >= 240:
            counted, epoch = 0, epoch + 1
    assert (counted, epoch) == (0, 3)
    assert [change["epoch"] for change in changes] == [1]
    assert changes[0]["sizes"] == [22, 21, 5] and changes[0]["small"] == [1, 1, 1]
    # New shards begin a new pass. Each pass has each sample of the shard once.
    shards = {0: [(0, 80), (80, 160), (160, 240)], 1: [(0, 110), (110, 215), (215, 240)]}
    for index, log in enumerate(logs):
        trained, done = np.ravel(log["passes"]).tolist(), 0
        for cut, of_cut in ((0, counts[: steps[0], index]), (1, counts[steps[0] :, index])):
            begin, end = shards[cut][index]
            part, done = trained[done : done + sum(of_cut)], done + sum(of_cut)
            for first in range(0, len(part), end - begin):
                of_pass = part[first : first + end - begin]
                assert len(set(of_pass)) == len(of_pass)
                assert set(of_pass) <= set(range(begin, end))
        assert done == len(trained)
    # The checkpoint after the first epoch has T, speeds, and the places in the new shards.
    manifest = checkpoints.read(str(job.folder / "checkpoints"), "mlp-0001").manifest
    assert manifest.batch_sizes == [22, 21, 5] and manifest.progress.samples == 240
    assert manifest.progress.seconds == changes[0]["deadline_s"] == pytest.approx(48 / 225)
    assert manifest.progress.speeds == pytest.approx([100, 100, 25])
    assert list(manifest.progress.positions) == [0, 0, 0]
    assert set(manifest.progress.passes) <= {1, 2}
    parts = [event for event in job.events("step_times") if event["index"] == 2][-1]
    assert parts["steps"] == len(counts)
    # By the script's clock only passes and reports take time. Each step of an epoch but the first
    # one begins after the report of another step, which is no computation.
    taken = sum(step["seconds"] for step in logs[2]["steps"])
    assert parts["compute"] == pytest.approx(taken)
    assert parts["data"] == pytest.approx(0.5 * (len(counts) - 3))


def test_a_resumed_job_goes_on_where_its_checkpoint_ends(mxnet_new, tmp_path, digits):
    """T, speeds, passes and positions are those of a job without an interruption."""
    knobs = {"num_examples": 200, "num_epochs": 4}
    whole = train(mxnet_new.python, tmp_path / "whole", digits, knobs, slowdowns=(1, 2))
    saved = whole.folder / "checkpoints"
    manifest = checkpoints.read(str(saved), "mlp-0002").manifest
    shutil.copytree(str(saved), str(tmp_path / "job" / "resume"))
    knobs = dict(
        knobs,
        model_load_epoch=2,
        model_load_file=tmp_path / "job" / "resume" / "mlp-0002.params",
        batch_sizes=list(manifest.batch_sizes),
        progress=manifest.progress.encode(),
    )
    again = train(
        *(mxnet_new.python, tmp_path / "job", digits, knobs, (1, 2)),
        environment={"MXCLUSTER_RESUME": "mlp-0002"},
    )
    for before, after in zip(logs_of(whole, 2), logs_of(again, 2)):
        count = len(after["told"])
        assert 0 < count < len(before["told"])
        first = [step["deadline"] for step in (before["steps"][-count], after["steps"][0])]
        assert first[0] == first[1] is not None
        assert counts_of(before, [0, 1])[-count:].tolist() == counts_of(after, [0, 1]).tolist()
        assert before["passes"][-len(after["passes"]) :] == after["passes"]
    found = [final(mxnet_new, tmp_path, job, 2)[0] for job in (whole, again)]
    assert difference(*found) < 1e-5


def test_a_worker_that_is_slowed_tenfold_costs_one_small_batch(mxnet_new, tmp_path, digits):
    """For 5 s of its clock. The deadline ends its steps, after which it goes on as before."""
    knobs = {"num_examples": 1400, "num_epochs": 1, "batch_size": 64, "step_ms": 640}
    slow = {1: {"SLOW_PHASE": "2.0,7.0,10"}}
    job = train(mxnet_new.python, tmp_path / "job", digits, knobs, variables=slow)
    log = logs_of(job, 2)[1]
    counts, steps = counts_of(log, [0, 1])[:, 1], log["steps"]
    small = 4 * 0.01
    inside = [
        number
        for number, step in enumerate(steps)
        if 2.0 < step["begin"] and step["begin"] + step["seconds"] < 7.0
    ]
    assert len(inside) >= 4 and counts[inside[1:]].max() <= 16
    for step in steps[1:]:
        in_phase = 2.0 < step["begin"] + step["seconds"] and step["begin"] < 7.0
        longest = small * (10 if in_phase else 1)
        assert step["seconds"] <= step["deadline"] + longest + 1e-6, step
    assert counts[inside[-1] + 3 :].min() >= 48, counts


POINTS = ("before the count", "after the count", "before the pull", "before the update")


@pytest.mark.parametrize("point", [POINTS[1], *map(seldom, (*POINTS, "after the update"))])
def test_a_death_in_the_exchange_ends_the_job(mxnet_new, tmp_path, digits, point):
    """All other processes miss the heartbeats of the worker, as without an exchange."""
    knobs = {"num_examples": 240, "num_epochs": 99}
    slow = {1: {"DIES_AT": "3," + point}}
    job = start(mxnet_new.python, tmp_path / "job", digits, knobs, variables=slow, heartbeat=5)
    codes = job.wait(grace=120)
    assert codes.pop("worker-1") == -9, job.evidence()
    assert set(codes.values()) == {exit_codes.PEER_DIED}, job.evidence()


def test_networks_with_batch_norm_are_known_by_name(mxnet_new, tmp_path):
    """The plan has the name of a network only."""
    code = """
    from mxcluster.model.job_knobs import has_batch_norm
    from mxcluster.training.programs.image_classification import gradients, networks
    for name in networks.names():
        if bool(gradients.of_batch_norm(networks.symbol(name, 10))) != has_batch_norm(name):
            print("wrong:", name)
    print(len(networks.names()), "networks")
    """
    run = Run(mxnet_new.python, textwrap.dedent(code), tmp_path).succeeded()
    assert "wrong:" not in run.out and int(run.out.splitlines()[-1].split()[0]) > 20, run.out


def test_the_program_warns_of_small_batches_for_batch_norm(mxnet_new, tmp_path, digits):
    knobs = {"num_examples": 32, "num_epochs": 1, "network": "resnet20", "step_ms": 0}
    job = train(mxnet_new.python, tmp_path / "job", digits, knobs)
    notes = [event["text"] for event in job.events("note")]
    assert len([text for text in notes if "BatchNorm" in text]) == 2, notes
    assert deadline.FEW == 8 and "least_batch=8" in notes[0]
