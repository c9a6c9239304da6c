"""The controller's decision on a node's drift, and the state that it stores."""

import json
from unittest import mock

import pytest

from plugins.action import mxcluster_drift as plugin

SEEN = {"/etc/mxcluster/hosts": ["0100644", 0, 0, 12, "1.0", "1.0"]}
RECORD = {"host": "node1", "job_dir": "/jobs", "data_dir": "/data", "gpus": 0}
LAYOUT = {"mxcluster_env_dir": "/env", "mxcluster_job_dir": "/jobs", "mxcluster_user": "trainer"}


@pytest.fixture
def node(tmp_path):
    """Return a provisioned node1 with the facts and the record that it reports."""
    return Node(tmp_path)


class Node:
    """A simulated node."""

    def __init__(self, folder):
        self.folder, self.seen, self.record, self.check = folder, dict(SEEN), dict(RECORD), False
        self.layout, self.jobs = dict(LAYOUT), []
        self.variables = {"mxnet_version": "1.9.1", "site": "x"}
        self.path, self.key = folder / "drift" / "node1.json", folder / "shared.pem"
        (folder / "nodes").mkdir()
        (folder / "nodes" / "node1.json").write_text(json.dumps(RECORD))
        self.remember()

    def act(self, **given):
        arguments = {"command": "look", "path": str(self.path), "common": self.common()}
        arguments.update(records_dir=str(self.folder / "nodes"), wanted={}, layout=self.layout)
        arguments.update(files=["/etc/mxcluster/*"], roots=["/opt"], python="/env/bin/python")
        arguments.update(user="trainer", user_files=["~/.bashrc"], controller_files=[str(self.key)])
        variables = {"inventory_hostname": "node1", "hostvars": {"node1": self.variables}}
        return self.action(dict(arguments, **given)).run(task_vars=variables)

    def action(self, arguments):
        task = mock.Mock(async_val=0, check_mode=self.check, args=arguments)
        action = plugin.ActionModule(task, mock.Mock(), mock.Mock(), None, None, None)
        action._execute_module, action.ask = self.run_module, self.ask
        return action

    def run_module(self, module_name, module_args, task_vars):
        assert sorted(module_args) == ["files", "roots", "user", "user_files"]
        return {"seen": self.seen}

    def ask(self, python, request, task_vars):
        if request.KIND == "jobs":
            assert request.jobs_dir == "/jobs" and python == "/env/bin/python"
            return {"jobs": self.jobs}
        assert request.arguments.known.encode().items() >= RECORD.items()
        return {"record": self.record}

    def common(self):
        """Return the values that are common to all nodes."""
        arguments = {"command": "common", "nodes": ["node1", "node2"], "wanted": {}}
        arguments["records_dir"] = str(self.folder / "nodes")
        return self.action(arguments).run(task_vars={})["common"]

    def remember(self):
        assert self.act(command="remember").get("failed") is None


@pytest.mark.parametrize(
    "change, why",
    [
        (lambda node: node.seen.update({"way to /opt": "/opt"}), "way to /opt is new"),
        (lambda node: node.seen.clear(), "/etc/mxcluster/hosts is gone"),
        (lambda node: node.record.update(gpus=1), "node record is out of date: gpus has changed"),
        (
            lambda node: node.variables.update(mxnet_version="1.5.1"),
            "the node's settings have changed since the last provisioning: mxnet_version",
        ),
    ],
)
def test_a_change_is_named_and_nothing_is_stored_until_the_end(node, change, why, capsys):
    change(node)
    looked = node.act()
    assert why in looked["why"] and not json.loads(node.path.read_text())["digests"]
    # A run that has failed in between.
    assert "provision.yml has never completed for this node on" in node.act()["why"]
    node.remember()
    (node.folder / "nodes" / "node1.json").write_text(json.dumps(RECORD))
    assert (node.act()["why"] is None) == ("node record" not in why)


def test_a_missing_shared_key_is_a_change(node):
    node.key.write_text("the key of all nodes")
    node.remember()
    assert node.act()["why"] is None
    node.key.unlink()
    assert "the node's settings have changed" in node.act()["why"]


def test_check_mode_looks_and_stores_nothing(node):
    node.check = True
    node.seen.clear()
    assert "is gone" in node.act()["why"] and node.path.exists()
    before = node.path.read_text()
    node.remember()
    assert node.path.read_text() == before


@pytest.mark.slow
def test_the_common_digest_covers_records_sources_and_variables(node):
    """The records of all nodes, the project's sources, and the names of the variables.

    The record of another node changes only the cluster files and SSH files of this node.
    """
    before = node.common()
    assert node.common() == before and "mxnet_version" in before["variables"]
    assert "train_job_lr" not in before["variables"]
    (node.folder / "nodes" / "node2.json").write_text("{}")
    after = node.common()
    assert after["cluster"] != before["cluster"]
    assert dict(after, cluster=None) == dict(before, cluster=None)
    told = node.act()
    assert told["why"] is None
    assert told["why_files"] == "the node records changed since the last provisioning"
    node.remember()
    assert node.act()["why_files"] is None


def test_a_changed_node_goes_through_all_roles_when_the_cluster_has_changed_too(node):
    """The state keeps its digests until then only if other nodes alone have changed."""
    (node.folder / "nodes" / "node2.json").write_text("{}")
    node.act()
    assert json.loads(node.path.read_text())["digests"]
    node.seen.clear()
    told = node.act()
    assert "is gone" in told["why"] and told["why_files"] is None
    assert not json.loads(node.path.read_text())["digests"]


@pytest.mark.parametrize("state", ["running", "ended"])
def test_the_layout_changes_only_without_a_running_job(node, state):
    node.jobs = [{"job": "long", "state": state}]
    node.layout["mxcluster_job_dir"] = "/data/jobs"
    before = node.path.read_text()
    told = node.act(anyway=True)
    assert told.get("failed", False) == (state == "running")
    assert (node.path.read_text() == before) == (state == "running")
    if state == "running":
        assert all(word in told["msg"] for word in ("node1", "long", "/jobs", "/data/jobs"))


def test_an_interrupted_provisioning_keeps_the_layout(node):
    node.seen.clear()
    node.act()
    node.jobs = [{"job": "long", "state": "running"}]
    node.layout["mxcluster_job_dir"] = "/data/jobs"
    assert "long" in node.act()["msg"]
