"""Conversion of Ansible's facts to the interfaces of a node record."""

import pytest

from mxcluster.ansible import network_facts
from mxcluster.errors import BadInput

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
    assert network_facts.of("node1", FACTS).encode() == {
        "interfaces": {
            "lo": ["127.0.0.1/8"],
            "eth0": ["10.0.0.5/24", "10.0.0.6/24"],
            "br-data": ["10.9.0.5/16"],
            "down0": [],
        },
        "address_of_default_route": "10.0.0.5",
    }


def test_a_node_without_a_network_has_no_interfaces():
    for facts in ({"interfaces": [], "default_ipv4": {}}, {}):
        assert network_facts.of("node1", facts).encode() == {"interfaces": {}}


def test_names_that_linux_allows_are_accepted():
    """One name that the filter refused stopped provision.yml for all hosts."""
    names = ["ovs-system!", "eth0.100", "~(x)%", "gr\u00f6\u00dfe", "x" * 15]
    found = network_facts.of("node1", {"interfaces": names})
    assert list(found.interfaces) == names


@pytest.mark.parametrize(
    "wrong",
    [
        {"default_ipv4": {"address": "10.0.0.5\nserver 10.0.0.9"}},
        {"default_ipv4": {"address": 7}},
        {"interfaces": [{}]},
        {"interfaces": ["x\ny"], "x\ny": {"ipv4": {"address": "10.0.0.5"}}},
        {"eth0": {"device": "../eth0"}},
        *({"eth0": {"device": name}} for name in ("", "..", "-x", "x y", "{{ x }}", "{%x%}")),
        *({"eth0": {"device": name}} for name in ("x\x1b", "x\u2028", "x" * 16, "\u00e4" * 8)),
        {"eth0": {"ipv4": {"address": "10.0.0.5", "netmask": "x"}}},
        {"eth0": {"ipv4": {"address": "node1"}}},
        {"eth0": {"ipv4_secondaries": [7]}},
    ],
)
def test_invalid_facts_are_refused_with_the_host(wrong):
    """Root of a node can change its facts, and the planner writes addresses to all nodes."""
    with pytest.raises(BadInput, match="of node1 are invalid .*correct the network"):
        network_facts.of("node1", dict(FACTS, **wrong))
