"""Complete and torn checkpoints, and resuming from them."""

import json
import os

import pytest

from mxcluster import checkpoints
from mxcluster.errors import BadInput
from mxcluster.job import options
from mxcluster.job.plan import inputs, resume
from mxcluster.model.checkpoint import CheckpointManifest, ServerManifest
from mxcluster.model.inventory import Inventory
from mxcluster.model.job_knobs import Options
from mxcluster.model.knob import read
from tests.inventories.cases import load


def save(folder, epoch, servers=2, number=None, network="mlp", **more):
    """Write a checkpoint as the program and the servers do."""
    number = number or "id-%d" % epoch
    name = checkpoints.name_of(network, epoch)

    def put(ending, text):
        checkpoints.write(
            str(folder / (name + ending)), lambda path: open(path, "w").write(text) and None
        )
        return str(folder / (name + ending))

    for rank in range(servers):
        states = put(".server-%d.npz" % rank, "momentum")
        checkpoints.write_manifest(
            str(folder / ("%s.server-%d.json" % (name, rank))),
            [states],
            ServerManifest(files={}, id=number, rank=rank, servers=servers),
        )
    weights = put(".params", "weights")
    manifest = CheckpointManifest(files={}, id=number, epoch=epoch, servers=servers, **more)
    checkpoints.write_manifest(str(folder / (name + ".json")), [weights], manifest)


def test_a_file_is_synced_before_it_is_renamed(tmp_path, monkeypatch):
    """A power cut leaves no empty file under the final name."""
    done, fsync, replace = [], os.fsync, os.replace

    def synced(number):
        done.append(os.readlink("/proc/self/fd/%d" % number))
        fsync(number)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", lambda *names: (done.append(names), replace(*names)))
    path = str(tmp_path / "mlp-0001.params")
    checkpoints.write(path, lambda partial: open(partial, "w").write("weights") and None)
    assert done == [path + ".partial", (path + ".partial", path)]


def test_the_last_checkpoint_is_found_with_all_its_files(tmp_path):
    for epoch in (8, 9, 10):
        save(tmp_path, epoch)
    save(tmp_path, 99, network="mlp2")
    found, problems = checkpoints.last_complete(str(tmp_path), "mlp")
    assert (found.name, found.epoch, problems) == ("mlp-0010", 10, [])
    ends = {"json", "params", "server-0.json", "server-0.npz", "server-1.json", "server-1.npz"}
    assert {os.path.basename(path) for path in found.files} == {"mlp-0010." + end for end in ends}
    assert not list(tmp_path.glob("*.partial"))


@pytest.mark.parametrize(
    "harm,words",
    [
        (lambda at: (at / "mlp-0010.json").unlink(), "mlp-0010.json does not exist"),
        (lambda at: (at / "mlp-0010.json").write_text("{"), "mlp-0010.json is damaged"),
        (lambda at: (at / "mlp-0010.params").write_text("weight"), "differs from its digest or"),
        (lambda at: (at / "mlp-0010.server-1.npz").unlink(), "server-1.npz cannot be read"),
    ],
)
def test_a_torn_checkpoint_is_skipped(tmp_path, harm, words):
    save(tmp_path, 9)
    save(tmp_path, 10)
    harm(tmp_path)
    found, problems = checkpoints.last_complete(str(tmp_path), "mlp")
    assert found.name == "mlp-0009" and len(problems) == 1 and words in problems[0], problems


def test_parts_of_two_attempts_do_not_make_a_checkpoint(tmp_path):
    save(tmp_path, 3)
    part = (tmp_path / "mlp-0003.server-1.json").read_text()
    save(tmp_path, 3, number="another")
    (tmp_path / "mlp-0003.server-1.json").write_text(part)
    found, problems = checkpoints.last_complete(str(tmp_path), "mlp")
    assert found is None and "belong to different saves of this epoch" in problems[0]
    assert "mlp-0003.server-1.json and " in problems[0]


@pytest.mark.parametrize("digits", ["²²²²", "٠٠٠٩", "００１１"])
def test_digits_of_other_scripts_are_no_epoch(tmp_path, digits):
    save(tmp_path, 3)
    (tmp_path / ("mlp-%s.json" % digits)).write_text("{}")
    found, problems = checkpoints.last_complete(str(tmp_path), "mlp")
    assert found.name == "mlp-0003" and problems == []


@pytest.mark.parametrize(
    "content", ['{"files": {}, "servers": Infinity}', '{"files": {"../x": {}}}', "[" * 200000]
)
def test_a_hostile_manifest_is_damaged(tmp_path, content):
    save(tmp_path, 3)
    (tmp_path / "mlp-0003.json").write_text(content)
    found, problems = checkpoints.last_complete(str(tmp_path), "mlp")
    assert found is None and "mlp-0003.json is damaged" in problems[0]


def test_old_checkpoints_are_deleted(tmp_path):
    for epoch in range(1, 6):
        save(tmp_path, epoch)
    save(tmp_path, 1, network="mlp-0001")
    checkpoints.forget(str(tmp_path), "mlp", 3)
    assert sorted(path.name for path in tmp_path.glob("mlp-*.params")) == [
        "mlp-0001-0001.params",
        "mlp-0004.params",
        "mlp-0005.params",
    ]
    assert len(list(tmp_path.glob("mlp-0004*"))) == 6


@pytest.mark.parametrize(
    "accuracies, kept, names",
    [
        ([0.7, 0.9, 0.8, 0.6], 1, [2, 4]),
        ([0.7, 0.9, 0.9, 0.6], 1, [3, 4]),
        ([0.7, 0.6, 0.8, 0.9], 2, [3, 4]),
        ([None, None, None], 1, [3]),
        ([0.9, None, None], 1, [1, 3]),
        ([0.1], 1, [1]),
        ([0.9, 0.1], 3, [1, 2]),
    ],
)
def test_the_best_checkpoint_stays_beside_the_last_ones(tmp_path, accuracies, kept, names):
    for number, accuracy in enumerate(accuracies):
        save(tmp_path, number + 1, accuracy=accuracy)
    checkpoints.keep(str(tmp_path), "mlp", kept, keeps_best=True)
    assert sorted(path.name for path in tmp_path.glob("mlp-????.json")) == [
        "mlp-%04d.json" % name for name in names
    ]
    assert len(list(tmp_path.glob("mlp-*"))) == 6 * len(names), "whole checkpoints"


def test_a_torn_checkpoint_is_never_the_best(tmp_path):
    """A file of it is missing, so it cannot take the place of a whole one."""
    for epoch, accuracy in ((1, 0.8), (2, 0.9), (3, 0.7)):
        save(tmp_path, epoch, accuracy=accuracy)
    (tmp_path / "mlp-0002.server-1.npz").unlink()
    assert checkpoints.best(str(tmp_path), "mlp") == "mlp-0001"
    checkpoints.keep(str(tmp_path), "mlp", 1, keeps_best=True)
    assert checkpoints.is_there(str(tmp_path), "mlp-0001")
    assert checkpoints.best(str(tmp_path / "none"), "mlp") == ""


@pytest.mark.parametrize("accuracy", ["NaN", "1.5", "-1", '"0.9"'])
def test_an_accuracy_out_of_range_is_damage(tmp_path, accuracy):
    save(tmp_path, 1, accuracy=0.5)
    path = tmp_path / "mlp-0001.json"
    path.write_text(path.read_text().replace("0.5", accuracy))
    assert not checkpoints.is_there(str(tmp_path), "mlp-0001")
    assert checkpoints.best(str(tmp_path), "mlp") == ""


OLD = {"kv": "dist_ssync", "staleness": 5, "network": "mlp", "lr": 0.1, "seed": 7}
OLD.update(num_epochs=12, savemodel=True, num_workers=2, batch_size=64, script="", resume="older")


def resumed(runs, **given):
    """Return (options, Checkpoint, notes) of a job that resumes the job "cut" by default."""
    found, checkpoint, notes = resume.resumed(
        read(Options, dict({"resume": "cut"}, **given)), str(runs)
    )
    return options.checked(found), checkpoint, notes


@pytest.fixture
def runs(tmp_path):
    (tmp_path / "cut" / "checkpoints").mkdir(parents=True)
    (tmp_path / "cut" / "plan.json").write_text(
        json.dumps({"options": dict(Options().encode(), **OLD)})
    )
    return tmp_path


def test_a_resumed_job_inherits_the_training_options(runs):
    save(runs / "cut" / "checkpoints", 4)
    save(runs / "cut" / "checkpoints", 5)
    (runs / "cut" / "checkpoints" / "mlp-0005.params").write_text("torn")
    merged, found, notes = resumed(runs, lr="0.01", num_servers="3", num_workers=0)
    assert (found.epoch, merged.model_load_epoch, merged.model_load_job) == (4, 4, "cut")
    assert [
        vars(merged)[name]
        for name in ("kv", "staleness", "lr", "seed", "num_epochs", "batch_size", "savemodel")
    ] == ["dist_ssync", 5, 0.01, 7, 12, 64, True]
    # The number of workers and servers is not inherited.
    assert (merged.num_workers, merged.num_servers) == (0, 3)
    assert "after epoch 4" in notes[0] and "skipped: " in notes[1]
    assert "mlp-0005.params differs from its digest or size" in notes[1]
    other = resumed(runs, kv="dist_gsync")[0]
    assert (other.kv, other.staleness) == ("dist_gsync", None)


def test_a_resumed_job_plans_with_the_batch_sizes_of_its_checkpoint(runs):
    """From the manifest in runs/ to the arguments of the workers."""
    old = dict(Options().encode(), kv="dist_sync", balance="batch", savemodel=True)
    (runs / "cut" / "plan.json").write_text(json.dumps({"options": old}))
    save(runs / "cut" / "checkpoints", 4, batch_sizes=[48, 40, 24, 16], workers=4)
    case = load("good/local")
    (runs / "nodes").mkdir()
    for host, record in case["records"].items():
        record.update(schema=2, host=host, job_dir="/jobs", data_dir="/data")
        (runs / "nodes" / (host + ".json")).write_text(json.dumps(record))
    inventory = Inventory(groups=case["groups"], hosts=case["hosts"], forks=9)

    def planned(**given):
        folders = inputs.Folders(str(runs / "nodes"), str(runs), str(runs))
        return inputs.plan_job(dict(given, resume="cut"), inventory, folders).plan

    plan = planned()
    assert plan.balance.sizes == [48, 40, 24, 16]
    arguments = json.loads(plan.processes[-1].command[-1])
    assert arguments["batch_sizes"] == [48, 40, 24, 16]
    assert planned(num_workers="2").balance.sizes == [32, 32]


@pytest.mark.parametrize(
    "given,words",
    [
        ({"resume": "gone"}, "resume=gone: .*/gone has no plan.json: name a job in "),
        ({"resume": "../cut"}, "the id of a job in runs/"),
        ({"resume": "cut", "model_load_epoch": "3"}, "model_load_epoch=3 is refused with resume"),
        ({"resume": "cut", "network": "lenet"}, "no complete checkpoint of lenet"),
    ],
)
def test_a_job_that_cannot_be_resumed_is_refused(runs, given, words):
    with pytest.raises(BadInput, match=words):
        resumed(runs, **given)


def test_a_resumed_job_of_another_network_names_the_network(runs):
    save(runs / "cut" / "checkpoints", 12)
    with pytest.raises(BadInput, match="of lenet .* There are checkpoints of mlp: leave network"):
        resumed(runs, network="lenet")


def test_resuming_a_finished_job_needs_more_epochs(runs):
    save(runs / "cut" / "checkpoints", 12)
    with pytest.raises(BadInput, match="already trained 12 epochs.* such as -e num_epochs=24"):
        resumed(runs)
    assert resumed(runs, num_epochs="14")[0].model_load_epoch == 12


def test_a_job_without_a_checkpoint_resumes_from_its_predecessors(runs):
    (runs / "older" / "checkpoints").mkdir(parents=True)
    cycle = {"options": {"resume": "cut"}}  # must end
    (runs / "older" / "plan.json").write_text(json.dumps(cycle))
    assert resume.find_checkpoint("cut", str(runs), Options()) == (None, [], ["cut", "older"])
    save(runs / "older" / "checkpoints", 4)
    merged, found, notes = resumed(runs)
    assert (merged.model_load_job, merged.model_load_epoch, found.epoch) == ("older", 4, 4)
    assert str(runs / "older" / "checkpoints" / "mlp-0004") in notes[0]


@pytest.mark.parametrize(
    "content",
    ["{", "null", "{}", "[" * 100000, "\xff", '{"options": null}', '{"options": "x"}']
    + [
        json.dumps({"options": dict(OLD, **wrong)})
        for wrong in ({"kv": "dist_x"}, {"lr": {}}, {"resume": "../older"}, {"staleness": -1})
    ],
)
def test_a_damaged_plan_of_a_resumed_job_is_named(runs, content):
    save(runs / "cut" / "checkpoints", 4)
    (runs / "cut" / "plan.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(BadInput, match="resume=cut: .*/cut/plan.json is damaged .*restore or"):
        resumed(runs)


def test_a_damaged_plan_of_a_predecessor_is_named(runs):
    (runs / "older").mkdir()
    (runs / "older" / "plan.json").write_text('{"options": []}')
    with pytest.raises(BadInput, match="no complete checkpoint(?s:.*)/older/plan.json is damaged"):
        resumed(runs)
