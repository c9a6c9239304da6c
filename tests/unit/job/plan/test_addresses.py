import pytest

from mxcluster.job.plan.addresses import interface_of, network
from mxcluster.job.plan.addresses import locate as locate_node
from mxcluster.model.host_variables import of_host
from mxcluster.model.node_record import MachineFacts, Network
from mxcluster.model.plan import Place

RECORD = MachineFacts(
    address_of_default_route="10.0.0.5",
    interfaces={
        "lo": ["127.0.0.1/8"],
        "eth0": ["10.0.0.5/24"],
        "eth1": ["172.16.1.5/24", "172.16.2.5/24"],
        "ib0": ["192.168.9.5/16"],
        "ib0.7": [],
    },
)


def locate(host, variables, record, of_job=""):
    return locate_node(host, of_host(host, variables), record, of_job)


@pytest.mark.parametrize(
    "variables, of_job, address, interface",
    [
        ({}, "", "10.0.0.5", "eth0"),
        ({"cluster_network": "192.168.0.0/16"}, "", "192.168.9.5", "ib0"),
        ({"cluster_network": "172.16.2.77/24"}, "", "172.16.2.5", "eth1"),
        ({"node_address": "127.0.0.11"}, "", "127.0.0.11", "lo"),
        ({"node_address": "172.16.1.5", "dmlc_interface": "ib0"}, "", "192.168.9.5", "ib0"),
        # node_address selects one of an interface's addresses.
        ({"node_address": "127.0.0.11"}, "lo", "127.0.0.11", "lo"),
    ],
)
def test_precedence_of_the_variables_that_set_the_address(variables, of_job, address, interface):
    assert locate("node1", variables, RECORD, of_job) == Place(address=address, interface=interface)


def test_a_loopback_address_belongs_to_the_interface_with_its_network():
    assert interface_of("127.0.0.12", RECORD) == "lo"
    assert interface_of("127.0.0.12", Network(interfaces={"eth0": ["10.0.0.5/8"]})) is None
    assert (
        interface_of(
            "127.0.0.12", Network(interfaces={"lo": ["127.0.0.1/8"], "dummy0": ["127.0.0.12/32"]})
        )
        == "dummy0"
    )


def test_the_network_of_all_nodes_is_that_of_their_addresses():
    def found(*texts):
        places = {text: Place(address=text.split("/")[0], interface="eth0") for text in texts}
        return network(places, {text: Network(interfaces={"eth0": [text]}) for text in texts})

    assert found("10.0.0.1/24", "10.0.0.2/24") == "10.0.0.0/24"
    assert found("10.0.0.1/24", "10.0.1.2/24") == found("127.0.0.1/8", "127.0.0.2/8") == ""
