"""The training program with real MXNet: results, events, checkpoints and refusals."""

import json
import os
import subprocess
import textwrap

import numpy as np
import pytest

from mxcluster.job import options
from mxcluster.job.plan import processes
from tests import recordio_files
from tests.often import seldom
from tests.plans import process_of
from tests.training.conftest import newest_often
from tests.training.loopback import NODE_PACKAGE, Job, program

# A process of a job imports MXNet in this way, also beside numpy 2.
IMPORT = "from mxcluster.node import mxnet_compat; mxnet_compat.import_mxnet()\n"
MAIN = (
    "import sys; from mxcluster.training.programs import main; "
    "sys.exit(main('image_classification', sys.argv[1:]))"
)


class Run:
    """A finished process: status, out (stdout), err, events (list of dict)."""

    def __init__(self, python, code, folder, arguments=()):
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "PYTHONPATH": str(NODE_PACKAGE),
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": "1",
            "MXCLUSTER_JOB_DIR": str(folder),
            "MXCLUSTER_INDEX": "0",
            "MXCLUSTER_ROLE": "worker",
            "MXCLUSTER_HOST": "node1",
        }
        done = subprocess.run(
            [str(python), "-W", "ignore", "-c", IMPORT + code, *map(str, arguments)],
            env=environment,
            cwd=str(folder),
            capture_output=True,
            text=True,
            timeout=600,
        )
        self.status, self.out, self.err = done.returncode, done.stdout, done.stderr
        path = folder / "events.jsonl"
        self.events = (
            [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        )

    def of(self, kind):
        return [event for event in self.events if event["event"] == kind]

    def succeeded(self):
        assert self.status == 0, "status %s\n%s\n%s" % (self.status, self.out, self.err)
        return self


def train(environment, folder, **arguments):
    folder.mkdir(exist_ok=True)
    return Run(environment.python, MAIN, folder, program(**arguments))


def test_digits_are_learnt(every_mxnet, tmp_path, digits):
    """With the batch size of four workers with 32 each, the accuracy reaches 0.95."""
    run = train(every_mxnet, tmp_path, data_dir=digits, batch_size=128, num_epochs=14).succeeded()
    (start,), epochs, (end,) = run.of("start"), run.of("epoch"), run.of("end")
    assert [start[name] for name in ("epochs", "batches", "samples_in_share", "repeated")] == [
        14,
        12,
        1437,
        99,
    ], start
    assert [epoch["epoch"] for epoch in epochs] == list(range(14))
    assert end["accuracy"] >= 0.95, run.out
    assert end["accuracy"] == epochs[-1]["accuracy"]
    assert end["samples"] == epochs[-1]["samples"] == 14 * 12 * 128
    lasts = [batch for batch in run.of("batch") if batch["batch"] == 11]
    assert [batch["step"] for batch in lasts] == [12 * number for number in range(1, 15)]
    assert lasts[-1]["done"] == 1 and lasts[-1]["loss"] < 0.3 < lasts[0]["loss"]
    assert all(
        0 <= batch["train_accuracy"] <= 1 and batch["samples_per_s"] > 0 for batch in lasts
    ), lasts


def test_unequal_gpus_share_a_batch_by_their_speeds(every_mxnet, tmp_path, digits):
    """Two devices of speeds 3 and 1 train to the weights of one device. CPUs stand in for GPUs."""
    run = Run(
        every_mxnet.python,
        textwrap.dedent("""
        import random, sys
        import mxnet as mx, numpy as np
        from mxnet.executor_manager import _split_input_slice
        from mxcluster import work_load
        from mxcluster.model.program_arguments import ProgramArguments
        from mxcluster.training.programs.image_classification import training

        def trained(contexts, speeds, kv):
            chosen = ProgramArguments(
                data_dir=sys.argv[1], num_epochs=3, num_examples=320, work_load=speeds, kv=kv
            )
            made = training.Training(chosen, contexts)
            made.run()
            parts = [part.stop - part.start for part in made.module._exec_group.slices]
            weights = made.module.get_params()[0]
            return parts, {name: array.asnumpy() for name, array in weights.items()}

        one = trained([mx.cpu(0)], [], "local")
        assert one[0] == [32]
        two = [mx.cpu(0), mx.cpu(1)]
        for kv, speeds, parts in (
            ("local", [3.0, 1.0], [24, 8]), ("device", [2.5, 1.0], [23, 9]), ("local", [], [16, 16])
        ):
            other = trained(two, speeds, kv)
            assert other[0] == parts, other[0]
            for name, weight in one[1].items():
                assert np.abs(weight - other[1][name]).max() <= 1e-5, (kv, speeds, name)
        chance, compared = random.Random(0), 0
        for _ in range(2000):
            batch = chance.randint(1, 40)
            loads = [chance.choice([1, 2, 3, 0.5, 10, 2.5]) for _ in range(chance.randint(1, 5))]
            found = work_load.split(batch, loads)
            try:
                theirs = [part.stop - part.start for part in _split_input_slice(batch, loads)]
            except ValueError:
                assert 0 in found, (batch, loads, found)
            else:
                assert theirs == found, (batch, loads)
                compared += 1
        assert compared > 1000
        """),
        tmp_path,
        [digits],
    ).succeeded()
    assert [end["accuracy"] for end in run.of("end")] == [run.of("end")[0]["accuracy"]] * 4


@pytest.mark.parametrize("policy,status,epochs", [("stop", 97, 0), ("continue", 0, 2)])
def test_a_loss_that_is_no_number_ends_the_training_or_not(
    mxnet_new, tmp_path, digits, policy, status, epochs
):
    run = train(mxnet_new, tmp_path, data_dir=digits, lr=1e6, num_epochs=2, on_nan=policy)
    assert (run.status, len(run.of("epoch"))) == (status, epochs), run.out + run.err
    assert ("-e on_nan=continue" in run.out) == (policy == "stop"), run.out


def test_every_network_takes_every_data_set(every_mxnet, tmp_path):
    """Each network accepts images of digits, CIFAR-10 and ImageNet; only shapes are checked."""
    run = Run(
        every_mxnet.python,
        textwrap.dedent("""
        import json
        from mxcluster.training.programs.image_classification import networks
        sides = {}
        for name in networks.names():
            net = networks.symbol(name, 10)
            shapes = ((1, 8), (3, 32), (3, 224))
            sides[name] = [networks.picture_side(name, net, *shape) for shape in shapes]
            assert net.infer_shape(data=(2, 3, 299, 299))[1] == [(2, 10)], name
        print(json.dumps(sides))
        """),
        tmp_path,
    ).succeeded()
    sides = json.loads(run.out)
    assert len(sides) == 38
    assert sides["mlp"] == sides["resnet20"] == sides["inception-bn-28-small"] == [8, 32, 224]
    assert sides["lenet"] == [28, 32, 224] and sides["resnet18_v1"] == [32, 32, 224]
    assert sides["alexnet"] == [64, 64, 224] and sides["inceptionv3"] == [299, 299, 299]


@pytest.mark.parametrize(
    "network",
    ["lenet", seldom("resnet20"), seldom("inception-bn-28-small"), seldom("mobilenet0.25")],
)
def test_networks_train_on_digits(mxnet_new, tmp_path, digits, network):
    knobs = {"network": network, "num_epochs": 2, "num_examples": 128, "lr": 0.02}
    run = train(mxnet_new, tmp_path, data_dir=digits, **knobs).succeeded()
    losses = [batch["loss"] for batch in run.of("batch") if batch["batch"] == 3]
    assert losses[1] < losses[0], run.out


COLORS = [(250, 10, 10), (10, 250, 10), (10, 10, 250), (240, 240, 240)]


@newest_often
def test_cifar10_files_train(every_mxnet, tmp_path):
    images = [recordio_files.jpeg(color) for color in COLORS]
    contents = [recordio_files.image(label, image) for label, image in enumerate(images)]
    recordio_files.write(tmp_path / "cifar10_train.rec", contents * 16)
    recordio_files.write(tmp_path / "test.rec", contents)
    knobs = {"data": "cifar10", "num_epochs": 6, "batch_size": 8, "lr": 0.005}
    run = train(every_mxnet, tmp_path / "job", data_dir=tmp_path, **knobs).succeeded()
    assert run.of("start")[0]["samples_in_share"] == 64, run.out
    assert run.of("end")[0]["accuracy"] == 1, run.out


def test_imagenet_files_are_read_as_mxnet_wrote_them(every_mxnet, tmp_path):
    """Records of MXNet's own writer are read, with images of any size, index and split magic."""
    for label, color in enumerate(COLORS):
        picture = recordio_files.jpeg(color, 300 + 50 * label, 280)
        (tmp_path / ("%d.jpg" % label)).write_bytes(picture)
    run = Run(
        every_mxnet.python,
        textwrap.dedent("""
        import json, sys
        import numpy as np, mxnet as mx
        from mxcluster.training.programs.image_classification import data
        from mxcluster.training.programs.image_classification.data import recordio
        magics = b"1234" + recordio.MAGIC * 2 + b"end"
        for part in ("train", "val"):
            writer = mx.recordio.MXIndexedRecordIO(part + ".idx", part + ".rec", "w")
            for label in range(4):
                encoded = open("%d.jpg" % label, "rb").read()
                header = mx.recordio.IRHeader(0, label, label, 0)
                writer.write_idx(label, mx.recordio.pack(header, encoded))
            writer.write_idx(4, magics)
            writer.close()
        train, validation = data.load("imagenet", ".")
        assert len(train) == 5 and recordio.Records("train.rec")[4] == magics
        colors = np.array(json.loads(sys.argv[1]))
        for source, rng in ((train, np.random.RandomState(0)), (validation, None)):
            images, labels = source.read([2, 0, 3, 1], 224, rng)
            assert images.shape == (4, 3, 224, 224) and labels.tolist() == [2, 0, 3, 1]
            seen = images * recordio.SPREAD + recordio.MEAN
            expected = colors[[2, 0, 3, 1]][:, :, None, None]
            assert np.abs(seen - expected).max() < 10, seen[:, :, 0, 0]
        try:
            recordio.Images("train.rec", 1000)._decode(b"no image", 3)
        except Exception as error:
            print(type(error).__name__, error)
        """),
        tmp_path,
        [json.dumps(COLORS)],
    ).succeeded()
    assert "BadInput train.rec: record 3 is not an image that MXNet can read" in run.out


def test_checkpoints_are_written_and_trained_further(mxnet_new, tmp_path, digits):
    common = {"data_dir": digits, "batch_size": 128, "savemodel": True}
    first = train(mxnet_new, tmp_path / "first", num_epochs=5, **common).succeeded()
    saved = tmp_path / "first" / "checkpoints"
    # The last three checkpoints, and the checkpoint that is held for a controller.
    assert sorted(path.name for path in saved.iterdir()) == [
        "mlp-%04d.%s" % (number, end)
        for number in (1, 3, 4, 5)
        for end in ("json", "params", "server-0.json", "server-0.npz")
    ] + ["mlp-symbol.json"]
    loaded = {"model_load_epoch": 5, "model_load_file": saved / "mlp-0005.params"}
    second = train(mxnet_new, tmp_path / "second", num_epochs=6, **loaded, **common).succeeded()
    assert [epoch["epoch"] for epoch in second.of("epoch")] == [5]
    accuracies = second.of("end")[0]["accuracy"], first.of("epoch")[1]["accuracy"]
    assert accuracies[0] > accuracies[1], (first.out, second.out)
    assert (tmp_path / "second" / "checkpoints" / "mlp-0006.params").exists()
    refused = train(mxnet_new, tmp_path / "third", data_dir=digits, network="lenet", **loaded)
    assert refused.status == 2, refused.err
    assert "does not fit this network and data set" in refused.err, refused.err


@pytest.mark.parametrize(
    "arguments,message",
    [
        ({"network": "resnet18"}, "'resnet18' is unknown (did you mean"),
        ({"num_examples": 1438}, "num_examples=1438: digits has only 1437 training samples"),
        ({"gpus": [0]}, "cannot use gpu(0) on this host"),
    ],
)
def test_bad_input_ends_with_status_2_and_one_line(mxnet_new, tmp_path, digits, arguments, message):
    run = train(mxnet_new, tmp_path, **dict({"data_dir": digits}, **arguments))
    errors = [
        line for line in run.err.splitlines() if line.startswith("image_classification: error: ")
    ]
    assert run.status == 2 and len(errors) == 1 and message in errors[0], run.err
    assert "Traceback" not in run.err, run.err


@pytest.mark.parametrize("kv", ["dist_gsync", seldom("dist_async")])
def test_a_job_with_unequal_shares(mxnet_new, tmp_path, digits, kv):
    """Each worker trains its share; after the last pull all have equal weights and accuracy."""
    script = tmp_path / "main.py"
    script.write_text(MAIN)
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "data_sharding").write_text("0 0.4\n0.4 0.8\n0.8 1\n")
    arguments = program(
        kv=kv, data_dir=digits, num_epochs=10, data_allocator=1, lr=0.02, lr_factor=0.9
    )
    job = Job(
        mxnet_new.python, tmp_path / "job", script, kv, (0, 0, 1), arguments=arguments
    ).succeed()
    starts = sorted(job.events("start"), key=lambda start: start["index"])
    assert [start["samples_in_share"] for start in starts] == [575, 575, 287], starts
    assert [start["batches"] for start in starts] == [18, 18, 9], starts
    ends = job.events("end")
    assert len(ends) == 3 and len({end["accuracy"] for end in ends}) == 1, ends
    assert ends[0]["accuracy"] >= 0.9, job.evidence()


@newest_often
@pytest.mark.parametrize("kv, groups", [seldom("dist_sync", (0, 0)), ("dist_gsync", (0, 0, 1))])
def test_a_job_learns_with_2_bits_for_each_number(every_mxnet, tmp_path, digits, kv, groups):
    """Arrays of 1000 numbers are split over both servers, as their parts of a checkpoint show."""
    script = tmp_path / "main.py"
    script.write_text(MAIN)
    # The noise of 2 bits is in proportion to the rate. A falling rate lets the weights settle.
    chosen = {"kv": kv, "lr": 0.02, "lr_factor": 0.8, "compression": "2bit"}
    chosen["compression_threshold"] = 5
    chosen.update(savemodel=True, num_epochs=12)
    arguments = processes.program_arguments(process_of(), options.cast(chosen), str(digits), None)
    job = Job(
        every_mxnet.python,
        tmp_path / "job",
        script,
        kv,
        groups,
        servers=2,
        arguments=arguments.command_line(),
        environment={"MXNET_KVSTORE_BIGARRAY_BOUND": "1000", "MXCLUSTER_COMPRESSION": "2bit"},
    ).succeed()
    ends = job.events("end")
    assert len(ends) == len(groups) and ends[0]["accuracy"] >= 0.9, job.evidence()
    sizes = []
    for rank in (0, 1):
        path = tmp_path / "job" / "checkpoints" / ("mlp-0012.server-%d.npz" % rank)
        with np.load(str(path)) as file:
            sizes.append({key: int(file[key]) for key in file.files if key.startswith("size_")})
    split = {key: (sizes[0][key], sizes[1][key]) for key in set(sizes[0]) & set(sizes[1])}
    assert split == {"size_0": (4096, 4096), "size_2": (4096, 4096)}, sizes


def test_a_measurement_trains_its_batches_and_no_epochs(every_mxnet, tmp_path):
    """1 + 12 batches of an epoch of 5: there are three epochs, and no validation."""
    knobs = {"data": "synthetic", "num_examples": 80, "batch_size": 16}
    measures = {"warm_up": 1, "measured": 12, "measure_waits": True}
    run = train(every_mxnet, tmp_path, **knobs, **measures).succeeded()
    (measured,), (waits,), (machine,) = run.of("measured"), run.of("waits"), run.of("machine")
    assert (measured["batches"], measured["warm_up"], measured["batch_size"]) == (12, 1, 16)
    assert 0 < measured["p10_s"] <= measured["median_s"] <= measured["p90_s"] < 5
    assert measured["samples_per_s"] == pytest.approx(12 * 16 / measured["seconds"], rel=1e-3)
    assert measured["median_s"] * 6 < measured["seconds"] < waits["seconds"]
    assert 0 < waits["waited_s"] < waits["seconds"]
    assert machine["mxnet"].startswith(every_mxnet.version) and machine["cores"] >= 1
    (end,) = run.of("end")
    assert end["samples"] == 13 * 16 and "accuracy" not in end and not run.of("epoch")
    last = run.of("batch")[-1]
    assert (last["step"], last["epoch"], last["batch"], last["done"]) == (13, 2, 2, 1.0)


def test_evaluations_are_of_the_weights_during_the_training(mxnet_new, tmp_path, digits):
    """With an evaluation at the end of each epoch, the accuracies are those of the epochs.

    The copies change nothing: both trainings end with the same accuracy.
    """
    knobs = {"data_dir": digits, "batch_size": 128, "num_epochs": 3, "momentum": 0.5}
    plain = train(mxnet_new, tmp_path / "plain", **knobs).succeeded()
    run = train(mxnet_new, tmp_path / "run", evaluations=3, **knobs).succeeded()
    found = run.of("evaluation")
    epochs = [epoch["accuracy"] for epoch in plain.of("epoch")]
    assert len(set(epochs)) == 3 and [one["accuracy"] for one in found] == epochs
    assert [one["samples"] for one in found] == [12 * 128 * number for number in (1, 2, 3)]
    assert not any("accuracy" in epoch for epoch in run.of("epoch"))
    (end,), (other,) = run.of("end"), plain.of("end")
    assert end["accuracy"] == other["accuracy"] == epochs[-1]
    assert all(one["time"] <= end["time"] for one in found), "the time is that of the pull"
