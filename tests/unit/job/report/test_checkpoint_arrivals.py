"""Checkpoints that come while the job runs: what is cut off, what is wrong, and what stays."""
import base64
import json
import os

import pytest

from mxcluster import checkpoints
from mxcluster.agent import parts
from mxcluster.agent.folder import JobFolder
from mxcluster.report import arrivals
from tests.unit.test_checkpoints import save

PLAN = {"options": {"network": "mlp"}}


class Node:
    """A node's job folder, asked as the module does; `asked` for which files, `cut` after how many pieces."""

    def __init__(self, folder, target, host="node1", kept=3):
        self.folder, self.asked, self.cut = JobFolder(str(folder)), [], None
        (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
        (folder / "plan.json").write_text(json.dumps({"job": "j", "host": host, "processes": [
            {"name": "w", "role": "worker", "index": 0, "command": [], "env": {}}], "lease": 10}))
        self.arrivals = arrivals.Arrivals(str(target), host, kept, self.ask, PLAN)

    def ask(self, name, offset, most):
        if self.cut is not None and len(self.asked) >= self.cut:
            return None
        self.asked.append((name, offset))
        return base64.b64decode(parts.piece(self.folder, name, offset, min(most, 4))["data"])

    def bring(self, seconds=5.0):
        took = self.arrivals.taken()
        if took:
            parts.take(self.folder, took)
        self.arrivals.bring(parts.offered(self.folder), seconds)


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


def test_one_comes_after_the_other_and_the_last_ones_stay(node, target, tmp_path):
    there = tmp_path / "node1" / "checkpoints"
    for epoch in range(1, 8):
        assert hold(there, epoch) == "mlp-%04d" % epoch
        node.bring()
        node.bring()  # the next poll says that it has come
        assert checkpoints.read(str(target), "mlp-%04d" % epoch).epoch == epoch
    assert whole(target) == [5, 6, 7] and len(list(target.glob("mlp-*"))) == 3 * 4
    assert json.loads((target.parent / "plan.json").read_text()) == PLAN
    arrivals.settle(str(target), "mlp", 2)
    assert whole(target) == [6, 7] and not (target / arrivals.FOLDER).exists()


def test_what_is_held_is_not_forgotten_until_it_has_come(node, target, tmp_path):
    there = tmp_path / "node1" / "checkpoints"
    assert [hold(there, epoch) for epoch in (1, 2, 3)] == ["mlp-0001"] * 3
    checkpoints.forget(str(there), "mlp", 2, "mlp-0001")
    assert whole(there) == [1, 3]
    node.bring()
    assert node.arrivals.taken() == "mlp-0001" and whole(target) == [1], "and nothing else is brought meanwhile"
    node.bring()
    assert hold(there, 4) == "mlp-0004"


def test_what_was_cut_off_goes_on_where_it_was(node, target, tmp_path):
    hold(tmp_path / "node1" / "checkpoints", 1)
    for node.cut in (1, 2, 3):
        node.bring()
        assert node.arrivals.taken() == ""
    node.cut = None
    again = Node(tmp_path / "node1", target)  # another controller process
    again.bring()
    assert again.arrivals.taken() == "mlp-0001"
    asked = node.asked + again.asked
    assert len(asked) == len(set(asked)), "nothing came twice"


def test_a_slow_line_gives_way_to_the_next_wait(node, target, tmp_path):
    hold(tmp_path / "node1" / "checkpoints", 1)
    node.bring(seconds=0)
    assert node.asked == [] and not whole(target)


def test_parts_of_several_nodes_make_one(node, target, tmp_path):
    other = Node(tmp_path / "node2", target, "node2")
    there, elsewhere = tmp_path / "node1" / "checkpoints", tmp_path / "node2" / "checkpoints"
    hold(there, 1, servers=2)
    for ending in ("json", "npz"):
        (there / ("mlp-0001.server-1." + ending)).rename(elsewhere / ("mlp-0001.server-1." + ending))
    other.bring()
    assert not list(target.glob("mlp-*")), "nobody has said yet which one is wanted"
    node.bring()
    assert node.arrivals.taken() == "" and whole(target) == [1]
    other.bring()
    assert other.arrivals.taken() == node.arrivals.taken() == "mlp-0001"


def test_what_came_otherwise_than_it_was_written_is_asked_for_again(node, target, tmp_path):
    hold(tmp_path / "node1" / "checkpoints", 1)
    transit = target / arrivals.FOLDER / "node1"
    transit.mkdir(parents=True)
    (transit / "mlp-0001.params").write_text("wrong")  # of an attempt before, which the node has made anew
    node.bring()
    assert not whole(target)
    node.bring()
    assert node.arrivals.taken() == "mlp-0001"


@pytest.mark.parametrize("text", ["{", "[]", '{"files": 3}', '{"files": {"mlp-0001.params": {"bytes": "x"}}}',
                                  '{"files": {"../../x": {"sha256": "", "bytes": 1}}}',
                                  '{"files": {"mlp-0002.params": {"sha256": "", "bytes": 1}}}'])
def test_a_manifest_that_makes_no_sense_brings_nothing(node, target, text):
    assert arrivals.files_of("mlp-0001.json", text) is None
    node.arrivals.bring({"held": "mlp-0001", "parts": {"mlp-0001.json": text}}, 5)
    assert node.asked == [] and not list(target.glob("mlp-*"))


@pytest.mark.parametrize("held", ["../../x-0001", "/etc/x-0001", "x-1", 3, None, "mlp-0001\n"])
def test_names_lead_nowhere_else(node, target, tmp_path, held):
    node.arrivals.bring({"held": held, "parts": {"%s.json" % held: '{"files": {}}'}}, 5)
    assert node.asked == [] and not target.exists()


def test_a_node_hands_out_nothing_but_files_of_checkpoints(node, tmp_path):
    there = tmp_path / "node1" / "checkpoints"
    (tmp_path / "secret").write_text("secret")
    os.symlink(str(tmp_path / "secret"), str(there / "mlp-0001.params"))
    os.mkfifo(str(there / "mlp-0002.params"))
    for name, words in (("mlp-0001.params", "cannot be read"), ("mlp-0002.params", "not a regular file"),
                        ("../plan.json", "no file of a checkpoint"), ("mlp-0003.params", "cannot be read")):
        with pytest.raises(parts.BadInput, match=words):
            parts.piece(node.folder, name, 0, 10)


def test_a_piece_renews_the_lease(node, tmp_path):
    hold(tmp_path / "node1" / "checkpoints", 1)
    node.folder.begin_lease()
    os.utime(node.folder.file("lease"), (1, 1))
    parts.piece(node.folder, "mlp-0001.params", 0, 10)
    assert node.folder.lease_mtime() > 1
