"""The rows about jobs on GPUs: kv-stores, GPUs of a worker, GPUs in use, faults and the profile."""

import json
import os
import signal

import pytest

from mxcluster.node import gpu_check, gpus
from tests.gpu import figures
from tests.gpu.cluster import BOX, EACH
from tests.gpu.gates import IDLE, LIBCUDA, MXNET, TWO
from tests.gpu.hold import held
from tests.waiting import until

# Eight epochs of the digits: every scheme is then far above the 0.1 of chance.
SMALL = {"network": "mlp", "num_epochs": 8, "batch_size": 32}
LEAST = 0.6  # accuracy
LONG = dict(SMALL, num_epochs=100000)
SPARE = 64  # MiB of a GPU that a driver may keep after the end of a program


def row(name, *needs):
    """Return the mark of a row about a job, which needs an MXNet and idle GPUs."""
    return pytest.mark.row(name, MXNET, IDLE, *needs)


def trains(cluster, seen, inventory, job, least=LEAST, **options):
    """Run a job, and return its run folder. Fail unless it has ended well and learned."""
    result, run = cluster.train(inventory, job, **dict(SMALL, **options))
    assert result.code == 0, figures.last_words(result.output)
    seen(figures.described(run))
    assert figures.accuracy(run) >= least, "accuracy %.3f" % figures.accuracy(run)
    return run


def gpus_of(run):
    """Return the GPUs of each worker of a run folder's plan."""
    return [one["gpus"] for one in figures.plan(run)]


def one_each(cluster):
    """Return the GPUs of the workers of the inventory `each`."""
    count = len(cluster.here.gpus)
    return [[number] if number < count else [] for number in range(min(4, max(2, count)))]


@pytest.mark.parametrize(
    "kv",
    [
        pytest.param(kv, marks=row("kv=%s, one worker on each GPU" % kv))
        for kv in ("dist_sync", "dist_async", "dist_gsync", "dist_ssync")
    ],
)
def test_each_scheme_trains(cluster, seen, kv):
    run = trains(cluster, seen, EACH, "gpu-" + kv, kv=kv)
    assert gpus_of(run) == one_each(cluster)


@row("a convolutional network (lenet): cuDNN")
def test_a_convolutional_network_trains(cluster, seen):
    trains(cluster, seen, EACH, "gpu-lenet", kv="dist_sync", network="lenet")


@pytest.mark.parametrize(
    "kv, options",
    [
        pytest.param("device", {}, marks=row("kv=device on two GPUs", TWO)),
        pytest.param("dist_device_sync", {}, marks=row("kv=dist_device_sync on two GPUs", TWO)),
        pytest.param(
            "device",
            {"compression": "2bit"},
            marks=row("compression=2bit between GPUs (kv=device)", TWO),
        ),
    ],
)
def test_gpus_of_one_worker_sum_their_gradients(cluster, seen, kv, options):
    job = "-".join(["gpu-two", kv, *options])
    run = trains(cluster, seen, BOX, job, kv=kv, gpus=[0, 1], **options)
    assert gpus_of(run) == [[0, 1]]


@row("GPUs of unequal speed share a batch (gpu_speeds)", TWO)
def test_uneven_gpus_share_a_batch(cluster, seen):
    speeds = [3] + [1] * (len(cluster.here.gpus) - 1)
    given = json.dumps({"gpu_speeds": speeds})
    (cluster.folders[BOX] / "host_vars").mkdir(exist_ok=True)
    path = cluster.folders[BOX] / "host_vars" / "box.json"
    path.write_text(given)
    try:
        run = trains(cluster, seen, BOX, "gpu-uneven", kv="dist_sync", gpus=[0, 1])
    finally:
        path.unlink()
    (worker,) = figures.plan(run)
    seen("work load %s" % worker["work_load"])
    assert worker["gpus"] == [0, 1] and worker["work_load"] == [3, 1]


@row("speed with and without cuDNN's autotuning")
def test_autotuning_changes_the_speed_alone(cluster, seen):
    measured = {"network": "resnet20", "measured": 20, "warm_up": 10, "batch_size": 32}
    speeds = {}
    for value in ("0", "1"):
        job = "gpu-autotune-" + value
        # The knob `env` replaces the variables of the inventory.
        env = dict(cluster.job_environment, MXNET_CUDNN_AUTOTUNE_DEFAULT=value)
        result, run = cluster.train(BOX, job, kv="dist_sync", gpus=[0], env=env, **measured)
        assert result.code == 0, figures.last_words(result.output)
        speeds[value] = figures.speed(run)
    seen("resnet20: %.0f samples/s without, %.0f with" % (speeds["0"], speeds["1"]))
    assert min(speeds.values()) > 0


def planned(cluster, job, **options):
    """Plan a job on the node with all GPUs, and return (exit status, output)."""
    given = dict(SMALL, kv="dist_sync", plan_only=True, job_id=job, **options)
    return cluster.run("train.yml", BOX, **given)


@row("gpus=auto, 0, [0], '', an absent number: the plan")
def test_the_forms_of_gpus(cluster, seen):
    count = len(cluster.here.gpus)
    every = ",".join(map(str, range(count)))
    forms = {"auto": every, "0": "0", "": "-", every: every}
    for number, (form, expected) in enumerate([*forms.items(), ([0], "0")]):
        result = planned(cluster, "gpu-form-%d" % number, gpus=form)
        assert result.code == 0, figures.last_words(result.output)
        (line,) = [line for line in result.output.splitlines() if line.startswith("worker ")]
        assert expected in line.split(), (form, line)
        seen("gpus=%r: %s" % (form, expected))
    refused = planned(cluster, "gpu-form-absent", gpus=[count])
    assert refused.code and "gpus=%d, but the node has" % count in refused.output
    seen("gpus=%d is refused" % count)


@row("gpus='': a worker on the CPU of a machine with GPUs")
def test_a_worker_leaves_the_gpus_alone(cluster, seen):
    run = trains(cluster, seen, BOX, "gpu-none", kv="dist_sync", gpus="")
    assert gpus_of(run) == [[]]


@row("workers_per_host=2: two workers share the GPUs of a host", TWO)
def test_two_workers_share_the_gpus(cluster, seen):
    more = ("-e", json.dumps({"workers_per_host": 2}))
    result = cluster.run(
        "train.yml", BOX, *more, **dict(SMALL, kv="dist_gsync", job_id="gpu-halves")
    )
    assert result.code == 0, figures.last_words(result.output)
    run = cluster.project.path / "runs" / "gpu-halves"
    seen(figures.described(run))
    assert sorted(sum(gpus_of(run), [])) == list(range(len(cluster.here.gpus)))


def user(cluster):
    """Hold GPU 0 with another program while a block runs."""
    folder = cluster.cuda or "/nonexistent"
    environment = dict(gpu_check.variables(folder), CUDA_VISIBLE_DEVICES=cluster.here.gpus[0].uuid)
    return held(environment)


@row("a GPU that another program uses is refused, and gpus=auto leaves it out", LIBCUDA)
def test_a_used_gpu_is_left_out(cluster, seen):
    with user(cluster) as process:
        until(gpus.busy, 30, "nvidia-smi names no program (another PID namespace?)")
        result, _ = cluster.train(BOX, "gpu-used", kv="dist_sync", gpus=[0], **SMALL)
        assert result.code and "(pid %d)" % process.pid in result.output, figures.last_words(
            result.output
        )
        seen("gpus=0 is refused")
        if len(cluster.here.gpus) > 1:
            run = trains(cluster, seen, BOX, "gpu-others", kv="dist_sync")
            assert gpus_of(run) == [list(range(1, len(cluster.here.gpus)))]


@row("wait_for_room waits until another program leaves a GPU", LIBCUDA)
def test_a_job_waits_for_a_gpu(cluster, seen):
    options = dict(SMALL, kv="dist_sync", gpus=[0], wait_for_room="1h", job_id="gpu-waits")
    tickets = cluster.jobs_of("box") / ".tickets"

    def reasons():
        found = [json.loads(path.read_text()) for path in tickets.glob("gpu-waits.json")]
        return [line for ticket in found for line in ticket["reasons"]]

    with user(cluster):
        until(gpus.busy, 30, "nvidia-smi names no program (another PID namespace?)")
        process = cluster.start("train.yml", BOX, **options)
        told = cluster.project.until(process, reasons)
        seen(told[0])
        assert "GPU 0 is in use by " in told[0]
    result = cluster.finish(process)
    assert result.code == 0, figures.last_words(result.output)


@row("a killed worker: the job ends, and the memory of its GPU is free")
def test_a_killed_worker_frees_its_gpu(cluster, seen):
    before = memory()
    process = cluster.start("train.yml", BOX, kv="dist_sync", gpus=[0], job_id="gpu-killed", **LONG)
    log = cluster.jobs_of("box") / "gpu-killed" / "events.jsonl"
    cluster.project.until(process, lambda: log.exists() and '"batch"' in log.read_text())
    during = memory()
    assert not cluster.here.real or during > before + SPARE, "nvidia-smi shows no memory of the job"
    os.kill(cluster.pid("box", "gpu-killed", "worker"), signal.SIGKILL)
    result = cluster.finish(process)
    assert result.code and "worker-0" in result.output, figures.last_words(result.output)
    until(lambda: memory() <= before + SPARE, 60, memory)
    seen("GPU 0: %d MiB before, %d MiB during, %d MiB after" % (before, during, memory()))
    assert gpus.busy() == {}


def memory():
    """Return the used memory of GPU 0 in MiB, as nvidia-smi tells it."""
    return int(gpus.ask("--query-gpu=memory.used")[0][0].split()[0])


@row("profile.yml with one worker on each GPU")
def test_the_profile_measures_the_workers(cluster, seen):
    found = profile(cluster, EACH, "gpu-profile")
    speeds = [worker["together"]["samples_per_s"] for worker in found["workers"]]
    seen("samples/s together: %s; groups %s" % (shown(speeds), found["groups"]))
    assert len(speeds) == len(one_each(cluster)) and min(speeds) > 0


@row("profile.yml measures each GPU of a worker", TWO)
def test_the_profile_measures_each_gpu(cluster, seen):
    (worker,) = profile(cluster, BOX, "gpu-profile-box")["workers"]
    seen("samples/s of GPUs %s: %s" % (worker["gpus"], shown(worker["gpu_speeds"])))
    assert worker["gpus"] == list(range(len(cluster.here.gpus)))
    assert min(worker["gpu_speeds"]) > 0


def profile(cluster, inventory, job):
    """Run profile.yml, and return the profile as JSON."""
    result = cluster.run("profile.yml", inventory, job_id=job, network="mlp")
    assert result.code == 0, figures.last_words(result.output)
    return json.loads((cluster.project.path / "runs" / job / "profile.json").read_text())


def shown(speeds):
    """Return speeds as text."""
    return ", ".join("%.0f" % speed for speed in speeds)
