"""The oldest supported node, with Python 3.6 and MXNet 1.2.1, works through all playbooks."""

import json
import shutil

import pytest

from tests.pythons import find_python

pytestmark = pytest.mark.soak  # molecule/el7 has such nodes


@pytest.fixture(scope="session")
def old_nodes(project):
    """Return an inventory provisioned with MXNet 1.2.1."""
    folder = project.path / "inventory" / "old"
    shutil.copytree(str(project.path / "inventory" / "local"), str(folder))
    text = (folder / "group_vars" / "all.yml").read_text()
    (folder / "group_vars" / "all.yml").write_text(
        text.replace(
            'mxnet_python: "{{ ansible_playbook_python }}"', "mxnet_python: " + find_python("3.6")
        ).replace('mxnet_version: "1.9.1"', 'mxnet_version: "1.2.1"')
    )
    result = project.run("-i", folder, "provision.yml")
    assert result.code == 0, result.output
    return folder


def test_its_records_say_so(project, old_nodes):
    record = json.loads((project.path / ".state" / "old" / "nodes" / "node1.json").read_text())
    assert record["mxnet"] == "1.2.1" and record["python_version"].startswith("3.6."), record


@pytest.mark.parametrize("kv", ["dist_gsync", "dist_async"])
def test_it_trains(project, old_nodes, kv):
    result, run = project.train("-i", old_nodes, kv=kv, num_epochs=15)
    assert result.code == 0, result.output
    assert json.loads((run / "verdict.json").read_text())["accuracy"] >= 0.95, result.output
