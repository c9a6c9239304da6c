"""A network fault between nodes, without a fault of ssh, is reported with the pairs of nodes.

`make test` runs one of the faults, this file two, and the soak all of them.
"""

import pytest

from tests.often import seldom
from tests.playbooks.faults import NETWORK, suffer
from tests.playbooks.wires import Wires


@pytest.fixture(scope="module")
def wires(project):
    made = Wires(project)
    yield made
    made.close()


@pytest.mark.parametrize(
    "name, kv",
    [("network cut", "dist_gsync"), seldom("network cut from worker to server", "dist_sync")],
)
def test_a_network_that_fails_is_named(project, wires, name, kv):
    try:
        suffer(project, name, kv, name.replace(" ", "-"), NETWORK, wires)
    finally:
        wires.mend()
