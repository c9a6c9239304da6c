"""Nodes with Python 3.11 and 3.13, and so with numpy 1 and 2, are provisioned side by side."""

import json

import pytest

from tests import needs
from tests.pythons import find_python
from tests.training.environments import NEWEST, copy_environment

# `make test` provisions nodes of either Python, but not side by side.
pytestmark = [needs.two_pythons, pytest.mark.soak]


@pytest.fixture(scope="module")
def mixed(project):
    """Return an inventory of two nodes. The second has a home of its own, with Python 3.13."""
    folder = project.small_inventory("mixed")
    python, state = find_python("3.13"), project.path / ".state" / "mixed"
    state.mkdir(parents=True)
    copy_environment(NEWEST, state / "env")
    (state / "node2").mkdir()
    copy_environment("1.9.1-numpy2", state / "node2" / "env")
    (folder / "host_vars").mkdir()
    (folder / "host_vars" / "node2.yml").write_text(
        'mxcluster_home: "{{ mxcluster_state_dir }}/node2"\nmxnet_python: %s\n' % python
    )
    result = project.run("-i", folder, "provision.yml")
    assert result.code == 0, result.output
    return folder


def test_each_node_has_the_numpy_of_its_python(project, mixed):
    records = [
        json.loads((project.path / ".state/mixed/nodes" / ("node%d.json" % number)).read_text())
        for number in (1, 2)
    ]
    assert [record["mxnet"] for record in records] == ["1.9.1", "1.9.1"]
    assert records[1]["python_version"].startswith("3.13."), records[1]
    assert [record["numpy"].split(".")[0] for record in records] == ["1", "2"], records


def test_a_job_with_both_trains(project, mixed):
    """Workers send optimizers as JSON, which each Python and numpy reads."""
    trained, run = project.train("-i", mixed, kv="dist_sync", num_epochs=2)
    assert trained.code == 0, trained.output
    lines = (run / "events.jsonl").read_text().splitlines()
    epochs = [event["host"] for event in map(json.loads, lines) if event["event"] == "epoch"]
    assert set(epochs) == {"node1", "node2"}, epochs
