"""Conversion of Ansible's facts to the interfaces of a node record."""

from plugins.filter.mxcluster_interfaces import mxcluster_interfaces

FACTS = {
    "interfaces": ["lo", "eth0", "br-data", "eth0:1", "down0"],
    "lo": {"device": "lo", "ipv4": {"address": "127.0.0.1", "netmask": "255.0.0.0"}},
    "eth0": {
        "device": "eth0",
        "ipv4": {"address": "10.0.0.5", "netmask": "255.255.255.0"},
        "ipv4_secondaries": [{"address": "10.0.0.6", "netmask": "255.255.255.0"}],
    },
    "eth0_1": {"device": "eth0:1", "ipv4": {"address": "10.0.0.6", "netmask": "255.255.255.0"}},
    "br_data": {"device": "br-data", "ipv4": {"address": "10.9.0.5", "netmask": "255.255.0.0"}},
    "down0": {"device": "down0"},
    "default_ipv4": {"address": "10.0.0.5"},
}


def test_interfaces_get_names_addresses_and_prefix_lengths():
    assert mxcluster_interfaces(FACTS) == {
        "interfaces": {
            "lo": ["127.0.0.1/8"],
            "eth0": ["10.0.0.5/24", "10.0.0.6/24"],
            "br-data": ["10.9.0.5/16"],
            "down0": [],
        },
        "address_of_default_route": "10.0.0.5",
    }


def test_a_node_without_a_network_has_no_interfaces():
    assert mxcluster_interfaces({"interfaces": [], "default_ipv4": {}}) == {
        "interfaces": {},
        "address_of_default_route": None,
    }
