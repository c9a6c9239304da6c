"""Checkpoints that the controller fetches during a job: cuts, wrong content, and retention."""

import base64
import json
import os

import pytest

from mxcluster import checkpoints
from mxcluster.agent import checkpoint_transfer
from mxcluster.agent.folder import JobFolder
from mxcluster.job.report import checkpoint_arrivals
from mxcluster.model.checkpoint import CheckpointManifest, Offer
from mxcluster.model.protocol import Piece
from tests.plans import part_json
from tests.unit.test_checkpoints import save

PLAN = {"options": {"network": "mlp"}}


def piece(folder, name, offset, most):
    """Return a node's answer to a request for a piece."""
    return checkpoint_transfer.piece(
        Piece(job_dir=folder.path, file=name, offset=offset, most=most)
    )


class Node:
    """A node's job folder and the controller's requests to it.

    `asked` lists the requested files and offsets; the connection is lost after `cut` requests.
    """

    def __init__(self, folder, target, host="node1", kept=3):
        self.folder, self.asked, self.cut = JobFolder(str(folder)), [], None
        (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
        (folder / "plan.json").write_text(
            json.dumps(part_json({"name": "w", "role": "worker"}, job="j", host=host, lease=10))
        )
        self.arrivals = checkpoint_arrivals.Arrivals(str(target), host, kept, self.ask, PLAN)

    def ask(self, name, offset, most):
        if self.cut is not None and len(self.asked) >= self.cut:
            return None
        self.asked.append((name, offset))
        return base64.b64decode(piece(self.folder, name, offset, min(most, 4)).data)

    def bring(self, seconds=5.0):
        took = self.arrivals.taken()
        if took:
            checkpoint_transfer.take(self.folder, took)
        self.arrivals.bring(checkpoint_transfer.offered(self.folder) or Offer(), seconds)


@pytest.fixture
def target(tmp_path):
    return tmp_path / "runs" / "j" / "checkpoints"


@pytest.fixture
def node(tmp_path, target):
    return Node(tmp_path / "node1", target)


def hold(node, epoch, servers=1):
    save(node, epoch, servers=servers)
    return checkpoints.hold(str(node.parent), "mlp-%04d" % epoch)


def whole(target):
    return sorted(int(path.name[4:8]) for path in target.glob("mlp-????.json"))


def test_checkpoints_are_fetched_in_order_and_the_last_ones_are_kept(node, target, tmp_path):
    there = tmp_path / "node1" / "checkpoints"
    for epoch in range(1, 8):
        assert hold(there, epoch) == "mlp-%04d" % epoch
        node.bring()
        node.bring()  # the next poll confirms the checkpoint
        assert checkpoints.read(str(target), "mlp-%04d" % epoch).epoch == epoch
    assert whole(target) == [5, 6, 7] and len(list(target.glob("mlp-*"))) == 3 * 4
    assert json.loads((target.parent / "plan.json").read_text()) == PLAN
    checkpoint_arrivals.settle(str(target), 2)
    assert whole(target) == [6, 7] and not (target / checkpoint_arrivals.FOLDER).exists()


def test_the_best_checkpoint_stays_on_the_controller(tmp_path, target):
    there, node = tmp_path / "node1" / "checkpoints", Node(tmp_path / "node1", target, kept=1)
    node.arrivals.keeps_best = True
    for epoch, accuracy in enumerate([0.2, 0.9, 0.5, 0.6], 1):
        save(there, epoch, servers=1, accuracy=accuracy)
        checkpoints.hold(str(there.parent), "mlp-%04d" % epoch)
        node.bring()
        node.bring()
    assert whole(target) == [2, 4]
    checkpoint_arrivals.settle(str(target), 1, keeps_best=True)
    assert whole(target) == [2, 4]
    checkpoint_arrivals.settle(str(target), 1)
    assert whole(target) == [4]


def test_a_held_checkpoint_is_kept_until_the_controller_has_it(node, target, tmp_path):
    there = tmp_path / "node1" / "checkpoints"
    assert [hold(there, epoch) for epoch in (1, 2, 3)] == ["mlp-0001"] * 3
    checkpoints.forget(str(there), "mlp", 2, ["mlp-0001"])
    assert whole(there) == [1, 3]
    node.bring()
    assert node.arrivals.taken() == "mlp-0001" and whole(target) == [1], (
        "no other checkpoint may be fetched meanwhile"
    )
    node.bring()
    assert hold(there, 4) == "mlp-0004"


def test_a_cut_transfer_is_resumed(node, target, tmp_path):
    hold(tmp_path / "node1" / "checkpoints", 1)
    for node.cut in (1, 2, 3):
        node.bring()
        assert node.arrivals.taken() == ""
    node.cut = None
    again = Node(tmp_path / "node1", target)  # another controller process
    again.bring()
    assert again.arrivals.taken() == "mlp-0001"
    asked = node.asked + again.asked
    assert len(asked) == len(set(asked)), "no piece is transferred twice"


def test_a_wait_without_time_left_fetches_nothing(node, target, tmp_path):
    hold(tmp_path / "node1" / "checkpoints", 1)
    node.bring(seconds=0)
    assert node.asked == [] and not whole(target)


def test_parts_of_several_nodes_make_one_checkpoint(node, target, tmp_path):
    other = Node(tmp_path / "node2", target, "node2")
    there, elsewhere = tmp_path / "node1" / "checkpoints", tmp_path / "node2" / "checkpoints"
    hold(there, 1, servers=2)
    for ending in ("json", "npz"):
        (there / ("mlp-0001.server-1." + ending)).rename(
            elsewhere / ("mlp-0001.server-1." + ending)
        )
    other.bring()
    assert not list(target.glob("mlp-*")), "no node has offered a checkpoint yet"
    node.bring()
    assert node.arrivals.taken() == "" and whole(target) == [1]
    other.bring()
    assert other.arrivals.taken() == node.arrivals.taken() == "mlp-0001"


def test_content_with_a_wrong_digest_is_fetched_again(node, target, tmp_path):
    hold(tmp_path / "node1" / "checkpoints", 1)
    transit = target / checkpoint_arrivals.FOLDER / "node1"
    transit.mkdir(parents=True)
    (transit / "mlp-0001.params").write_text(
        "wrong"
    )  # of an earlier attempt; the node has another file
    node.bring()
    assert not whole(target)
    node.bring()
    assert node.arrivals.taken() == "mlp-0001"


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '{"files": {"mlp-0001.params": {"bytes": "x"}}}',
        '{"files": {"../../x": {"sha256": "", "bytes": 1}}}',
    ],
)
def test_an_invalid_manifest_fetches_nothing(node, target, text):
    assert checkpoint_arrivals.files_of("mlp-0001.json", text) is None
    node.arrivals.bring(Offer(held="mlp-0001", parts={"mlp-0001.json": text}), 5)
    assert node.asked == [] and not list(target.glob("mlp-*"))


@pytest.mark.parametrize("held", ["../../x-0001", "mlp-0001\n"])
def test_an_invalid_name_leaves_the_folder_unchanged(node, target, tmp_path, held):
    node.arrivals.bring(Offer(held=held, parts={"%s.json" % held: '{"files": {}}'}), 5)
    assert node.asked == [] and not target.exists()


def test_a_node_sends_only_files_of_checkpoints(node, tmp_path):
    there = tmp_path / "node1" / "checkpoints"
    (tmp_path / "secret").write_text("secret")
    os.symlink(str(tmp_path / "secret"), str(there / "mlp-0001.params"))
    os.mkfifo(str(there / "mlp-0002.params"))
    for name, words in (
        ("mlp-0001.params", "not a regular file"),
        ("mlp-0002.params", "not a regular file"),
        ("../plan.json", "is not the name of a checkpoint file: use a file name from"),
        ("mlp-0003.params", "cannot read the checkpoint file"),
    ):
        with pytest.raises(checkpoint_transfer.BadInput, match=words):
            piece(node.folder, name, 0, 10)


def test_a_piece_renews_the_lease(node, tmp_path):
    hold(tmp_path / "node1" / "checkpoints", 1)
    node.folder.begin_lease()
    os.utime(node.folder.file("lease"), (1, 1))
    piece(node.folder, "mlp-0001.params", 0, 10)
    assert node.folder.lease_mtime() > 1


def save_files(folder, worker, number, **files):
    """Make a checkpoint of a script's files, as the keeper on a node does."""
    name = checkpoints.name_of(worker, number)
    (folder / name).mkdir()
    for path, text in files.items():
        (folder / name / path).write_text(text)
    found = {
        "%s/%s" % (name, path): checkpoints.digest(str(folder / name / path)) for path in files
    }
    manifest = CheckpointManifest(id="id", network=worker, epoch=number, servers=0, files=found)
    checkpoints.write_digests(str(folder / (name + ".json")), manifest)
    return checkpoints.hold(str(folder.parent), name)


def test_the_files_of_a_script_come_and_an_equal_file_comes_once(node, target, tmp_path):
    there = tmp_path / "node1" / "checkpoints"
    assert save_files(there, "worker-2", 1, weights="wwww", step="1") == "worker-2-0001"
    node.bring()
    node.bring()  # the next poll confirms the checkpoint
    assert save_files(there, "worker-2", 2, weights="wwww", step="2") == "worker-2-0002"
    node.bring()
    assert [name for name, _ in node.asked] == [
        "worker-2-0001/step",
        "worker-2-0001/weights",
        "worker-2-0002/step",
    ]
    checkpoint, problems = checkpoints.last_complete(str(target), "worker-2")
    assert checkpoint.name == "worker-2-0002" and not problems
    assert (target / "worker-2-0002" / "weights").read_text() == "wwww"
    checkpoint_arrivals.settle(str(target), 1)
    assert sorted(path.name for path in target.iterdir()) == ["worker-2-0002", "worker-2-0002.json"]
    assert (target / "worker-2-0002" / "weights").read_text() == "wwww", "no link to a lost file"


def test_a_damaged_file_here_is_not_used_for_the_next_checkpoint(node, target, tmp_path):
    there = tmp_path / "node1" / "checkpoints"
    save_files(there, "worker-0", 1, weights="wwww")
    node.bring()
    node.bring()
    (target / "worker-0-0001" / "weights").write_text("xxxx")
    save_files(there, "worker-0", 2, weights="wwww")
    node.bring()
    node.bring()
    assert (target / "worker-0-0002" / "weights").read_text() == "wwww"


def test_the_first_worker_of_a_script_that_saves_makes_the_checkpoints(node, target, tmp_path):
    other = Node(tmp_path / "node2", target, host="node2")
    save_files(tmp_path / "node1" / "checkpoints", "worker-1", 1, step="1")
    save_files(tmp_path / "node2" / "checkpoints", "worker-0", 1, step="1")
    node.bring()
    other.bring()
    assert checkpoints.workers(str(target)) == ["worker-1"] and not other.asked


@pytest.mark.parametrize(
    "name",
    ["../x", "worker-0-0002/x", "worker-0-0001/../x", "worker-0-0001/.x", "worker-0-0001//x", "/x"],
)
def test_a_manifest_of_a_script_names_files_of_its_own_folder_only(name):
    files = {name: {"sha256": "0" * 64, "bytes": 1}}
    text = json.dumps({"files": files, "epoch": 1, "servers": 0})
    assert checkpoint_arrivals.files_of("worker-0-0001.json", text) is None
