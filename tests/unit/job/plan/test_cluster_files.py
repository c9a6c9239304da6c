"""make_cluster_files: the files of the whole cluster, made of the nodes' addresses."""

import pytest

from mxcluster.errors import BadInput
from mxcluster.job import options
from mxcluster.job.plan import make_cluster_files
from mxcluster.model.inventory import Inventory
from mxcluster.model.node_record import MachineFacts
from mxcluster.model.plan import Place

RECORDS = {
    host: MachineFacts(
        interfaces={
            "lo": ["127.0.0.1/8"],
            "eth0": ["10.1.0.%d/24" % n],
            "eth1": ["10.2.0.%d/24" % n],
        },
        address_of_default_route="10.1.0.%d" % n,
    )
    for n, host in enumerate("abc", 1)
}
GROUPS = {"scheduler": ["a"], "servers": ["a"], "workers": ["a", "b", "c"]}


def of(hosts=None, groups=None, records=None, files=None, **given):
    return make_cluster_files(
        options.cast(given),
        Inventory(groups=dict(GROUPS, **groups or {}), hosts=hosts or {}, forks=5),
        records or RECORDS,
        files or {},
    )


def test_all_nodes_and_shares_by_weight():
    found = of(
        {
            "a": {"worker_group": "x"},
            "b": {"worker_group": "y", "worker_share": 2},
            "c": {"worker_group": "x"},
        }
    )
    assert found.nodes["b"] == Place(address="10.1.0.2", interface="eth0") and list(
        found.nodes
    ) == ["a", "b", "c"]
    assert found.files == {
        "hosts": "10.1.0.1\n10.1.0.2\n10.1.0.3\n",
        "groups": "10.1.0.1 10.1.0.3\n10.1.0.2\n",
        "data_sharding": "0.0 0.25\n0.25 0.75\n0.75 1.0\n",
    }


@pytest.mark.parametrize(
    "hosts, says",
    [
        (
            {"b": {"node_address": "10.1.0.1"}},
            "b: no interface of the node holds the address 10.1.0.1",
        ),
        (
            {"a": {"cluster_network": "10.0.0.0/8"}},
            "a: cluster_network=10.0.0.0/8 must hold exactly one of the node's addresses, but "
            "holds 10.1.0.1 and 10.2.0.1",
        ),
    ],
)
def test_an_unusable_address_is_refused(hosts, says):
    with pytest.raises(BadInput, match=says):
        of(hosts)


def test_two_names_for_one_machine_are_refused():
    with pytest.raises(BadInput, match="a and twin have the same address 10.1.0.1"):
        of(groups={"workers": ["a", "twin"]}, records=dict(RECORDS, twin=RECORDS["a"]))


def test_files_of_the_user_take_precedence():
    found = of(
        files={
            "hosts": "10.1.0.2\n10.1.0.3\n",
            "groups": "10.1.0.3 10.1.0.2\n",
            "data_sharding": "0 0.1\n0.1 1\n",
        }
    )
    assert found.files == {
        "hosts": "10.1.0.2\n10.1.0.3\n",
        "groups": "10.1.0.2 10.1.0.3\n",
        "data_sharding": "0.0 0.1\n0.1 1.0\n",
    }
