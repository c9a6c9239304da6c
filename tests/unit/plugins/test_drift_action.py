"""What the controller makes of what a node shows: why there is something to do on it, and what is remembered."""
import json
from unittest import mock

import pytest

from plugins.action import mxcluster_drift as plugin

SEEN = {"/etc/mxcluster/hosts": ["0100644", 0, 0, 12, "1.0", "1.0"]}
RECORD = {"gpus": 0}


@pytest.fixture
def node(tmp_path):
    """A node1 that has been provisioned, with what it shows and tells."""
    return Node(tmp_path)


class Node:
    """One whose answers are set."""

    def __init__(self, folder):
        self.folder, self.seen, self.record, self.check, self.asked = folder, dict(SEEN), dict(RECORD), False, []
        self.variables = {"mxnet_version": "1.9.1", "site": "x"}
        self.path, self.key = folder / "drift" / "node1.json", folder / "shared.pem"
        (folder / "nodes").mkdir()
        (folder / "nodes" / "node1.json").write_text(json.dumps(RECORD))
        self.remember()

    def act(self, **given):
        arguments = dict({
            "path": str(self.path), "records_dir": str(self.folder / "nodes"), "wanted": {}, "common": self.common(),
            "files": ["/etc/mxcluster/*"], "roots": ["/opt"], "user": "trainer", "user_files": ["~/.bashrc"],
            "python": "/env/bin/python", "controller_files": [str(self.key)]}, **given)
        action = plugin.ActionModule(mock.Mock(async_val=0, check_mode=self.check, args=arguments), mock.Mock(), mock.Mock(),
                                     None, None, None)
        action._execute_module, action.ask = self.shows, self.tells
        return action.run(task_vars={"inventory_hostname": "node1", "hostvars": {"node1": self.variables}})

    def shows(self, module_name, module_args, task_vars):
        self.asked.append(module_name)
        assert sorted(module_args) == ["files", "roots", "user", "user_files"]
        return {"seen": self.seen}

    def tells(self, asked, task_vars):
        self.asked.append(asked["command"])
        assert asked["request"] == {"known": RECORD}
        return {"record": self.record}

    def common(self):
        """What counts for all nodes."""
        arguments = {"command": "common", "records_dir": str(self.folder / "nodes"), "nodes": ["node1", "node2"], "wanted": {}}
        action = plugin.ActionModule(mock.Mock(async_val=0, check_mode=self.check, args=arguments), mock.Mock(), mock.Mock(),
                                     None, None, None)
        return action.run(task_vars={})["common"]

    def look(self, **given):
        return self.act(**given)

    def remember(self):
        assert self.act(command="remember").get("failed") is None


def test_a_node_as_it_was_left_is_left_alone(node):
    assert node.look()["why"] is None and node.path.exists()
    assert node.asked[-2:] == ["mxcluster_drift", "record"]


@pytest.mark.parametrize("change, why", [
    (lambda node: node.seen.update({"way to /opt": "/opt"}), "way to /opt is new"),
    (lambda node: node.seen.clear(), "/etc/mxcluster/hosts is gone"),
    (lambda node: node.record.update(gpus=1), "its record is of another time: gpus has changed"),
    (lambda node: node.variables.update(mxnet_version="1.5.1"), "something else is wanted of it"),
    (lambda node: node.key.write_text("another key of all nodes"), "something else is wanted of it")])
def test_what_differs_is_named_and_nothing_is_remembered_until_all_is_done(node, change, why, capsys):
    change(node)
    looked = node.look()
    assert why in looked["why"] and not node.path.exists()
    assert "has not been provisioned from here to the end" in node.look()["why"]  # a run that has failed in between
    node.remember()
    (node.folder / "nodes" / "node1.json").write_text(json.dumps(RECORD))
    assert (node.look()["why"] is None) == (why != "its record is of another time: gpus has changed")


def test_a_shared_key_that_is_gone_differs(node):
    node.key.write_text("the key of all nodes")
    node.remember()
    assert node.look()["why"] is None
    node.key.unlink()
    assert "something else is wanted of it" in node.look()["why"]


def test_variables_of_a_single_job_do_not_count(node):
    node.variables.update(train_job_lr=1.0, jobs_lines=5, site="y")
    assert node.look()["why"] is None


def test_check_mode_looks_and_remembers_nothing(node):
    node.check = True
    node.seen.clear()
    assert "is gone" in node.look()["why"] and node.path.exists()
    before = node.path.read_text()
    node.remember()
    assert node.path.read_text() == before


def test_what_counts_for_all_nodes_is_found_once(node):
    """The records of all, the sources of the project, and the names of the variables."""
    before = node.common()
    assert node.common() == before and "mxnet_version" in before["variables"] and "train_job_lr" not in before["variables"]
    (node.folder / "nodes" / "node2.json").write_text("{}")
    assert node.common()["digest"] != before["digest"] and node.common()["sources"] == before["sources"]
    assert "something else is wanted of it" in node.look()["why"]


def test_anyway_asks_nobody(node):
    del node.asked[:]
    assert node.look(anyway=True)["why"] == "it is asked for" and node.asked == [] and not node.path.exists()
