"""Fixtures for the tests of the scenario `default`."""

import pytest


@pytest.fixture(scope="session")
def provisioned(cluster):
    """Provision the nodes, unless earlier tests have done so. `make soak` skips those tests."""
    if not (cluster.state / "nodes" / "node1.json").exists():
        result = cluster.play("provision.yml")
        assert result.code == 0, result.output
