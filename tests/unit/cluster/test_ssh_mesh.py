"""The blocks of ssh files that connect the nodes."""

import pytest

from mxcluster.cluster import ssh_mesh
from mxcluster.errors import BadInput
from mxcluster.job import options, plan
from mxcluster.model.host_variables import HostVariables, of_hosts
from mxcluster.model.inventory import Inventory
from mxcluster.model.node_record import NodeRecord

NODES = {"a": ssh_mesh.Node(address="10.0.0.1"), "b": ssh_mesh.Node(address="10.0.0.2")}


def record(host, number, **ssh):
    found = {
        "host": host,
        "job_dir": "/jobs",
        "data_dir": "/data",
        "hostname": host + ".lab",
        "host_keys": ["ssh-ed25519 HOST" + host, "ssh-rsa RSA" + host],
        "interfaces": {
            "lo": ["127.0.0.1/8"],
            "eth0": ["10.0.0.%d/24" % number],
            "ib0": ["10.9.0.%d/16" % number],
        },
        "ssh": dict({"public_key": "ssh-ed25519 KEY" + host, "user": "mx", "port": "22"}, **ssh),
    }
    return NodeRecord.decode(found)


RECORDS = {"a": record("a", 1), "b": record("b", 2, port="2222")}


def test_the_blocks_of_two_nodes():
    variables = {"b": {"ansible_host": "gate.example.org", "ssh_mesh_from": "192.0.2.7"}}
    variables = of_hosts("ab", variables)
    found = ssh_mesh.blocks(NODES, RECORDS, variables, "~/.ssh/id_ed25519")
    assert found["authorized_keys"].splitlines() == [
        'from="10.0.0.1" ssh-ed25519 KEYa mxcluster:a',
        'from="10.0.0.2,192.0.2.7" ssh-ed25519 KEYb mxcluster:b',
    ]
    assert found["known_hosts"].splitlines() == [
        "a,10.0.0.1 ssh-ed25519 HOSTa",
        "a,10.0.0.1 ssh-rsa RSAa",
        "[b]:2222,[gate.example.org]:2222,[10.0.0.2]:2222 ssh-ed25519 HOSTb",
        "[b]:2222,[gate.example.org]:2222,[10.0.0.2]:2222 ssh-rsa RSAb",
    ]
    assert found["config"].splitlines() == [
        "Host a 10.0.0.1",
        "    HostName 10.0.0.1",
        "    IdentityFile ~/.ssh/id_ed25519",
        "    User mx",
        "Host b gate.example.org 10.0.0.2",
        "    HostName 10.0.0.2",
        "    IdentityFile ~/.ssh/id_ed25519",
        "    Port 2222",
        "    User mx",
        "# The next lines apply to all hosts.",
        "Match all",
    ]


def planned(records, **variables):
    """Return the blocks for two nodes, with their planned addresses from the records."""
    groups = {"scheduler": ["a"], "servers": ["a"], "workers": ["a", "b"]}
    inventory = Inventory(groups=groups, hosts={"a": variables, "b": variables}, forks=5)
    places = plan.make_cluster_files(options.cast({}), inventory, records, {}).nodes
    nodes = {host: ssh_mesh.Node.decode(place.encode()) for host, place in places.items()}
    return ssh_mesh.blocks(nodes, records, of_hosts("ab", inventory.hosts), "k")


HOSTILE = RECORDS["b"].replaced(
    hostname="github.com",
    interfaces={"eth0": ["10.0.0.2/24"], "x": ["140.82.121.4/32", "192.0.2.66/24"]},
    address_of_default_route="140.82.121.4",
)


def test_a_node_gives_itself_no_name_and_no_origin():
    """A node that called itself github.com received git@github.com of all other nodes.

    The name also got the node's host key in known_hosts, so ssh asked no question.
    """
    found = planned(dict(RECORDS, b=HOSTILE), cluster_network="10.0.0.0/24")
    assert found == planned(RECORDS, cluster_network="10.0.0.0/24")


def test_without_a_network_in_the_inventory_a_node_names_its_own_address():
    """docs/security.md says so. The node has no name of its own choice even then."""
    known = dict(RECORDS, a=RECORDS["a"].replaced(address_of_default_route="10.0.0.1"))
    found = planned(dict(known, b=HOSTILE))
    assert "github.com" not in "".join(found.values())
    assert "[b]:2222,[140.82.121.4]:2222 ssh-ed25519 HOSTb" in found["known_hosts"]
    other = HOSTILE.replaced(interfaces={"x": ["10.0.0.1/24"]}, address_of_default_route="10.0.0.1")
    with pytest.raises(BadInput, match="a and b have the same address 10.0.0.1"):
        planned(dict(known, b=other))


def test_a_name_of_two_nodes_belongs_to_neither():
    """Several nodes may have one gateway as their ansible_host."""
    gate = HostVariables(ansible_host="gate.example.org")
    variables = dict.fromkeys("ab", gate)
    assert ssh_mesh.names_of(NODES, variables) == {"a": ["a", "10.0.0.1"], "b": ["b", "10.0.0.2"]}
    variables = dict.fromkeys("ab", HostVariables(ansible_host="10.0.0.1"))  # a is the gateway
    assert ssh_mesh.names_of(NODES, variables) == {"a": ["a", "10.0.0.1"], "b": ["b", "10.0.0.2"]}
    variables = of_hosts("ab", {"b": {"ansible_host": "a"}})
    assert ssh_mesh.names_of(NODES, variables) == {"a": ["a", "10.0.0.1"], "b": ["b", "10.0.0.2"]}


def test_a_planned_address_is_no_name_if_it_is_another_nodes_in_the_inventory():
    """Without node_address the address is a fact of the node."""
    variables = of_hosts("ab", {"a": {"ansible_host": "10.0.0.2"}})
    assert ssh_mesh.names_of(NODES, variables) == {"a": ["a", "10.0.0.1"], "b": ["b"]}
    nodes = {"10.0.0.2": NODES["a"], "b": NODES["b"]}
    assert ssh_mesh.names_of(nodes, of_hosts(list(nodes), {})) == {
        "10.0.0.2": ["10.0.0.2", "10.0.0.1"],
        "b": ["b"],
    }


def test_only_the_inventory_calls_a_node_localhost():
    nodes = {"a": NODES["a"], "localhost": NODES["b"]}
    variables = of_hosts(list(nodes), {"a": {"ansible_host": "localhost.localdomain"}})
    assert ssh_mesh.names_of(nodes, variables) == {
        "a": ["a", "10.0.0.1"],
        "localhost": ["localhost", "10.0.0.2"],
    }


def test_no_key_is_valid_on_its_own_node():
    """A job could leave its unit by ssh to its own node."""
    variables = {"a": {"ssh_mesh_from": ["192.0.2.7"]}, "b": {"ssh_mesh_from": "192.0.2.7"}}
    variables = of_hosts("ab", variables)
    text = ssh_mesh.blocks(NODES, RECORDS, variables, "k")["authorized_keys"]
    assert [line.split()[-1] for line in text.splitlines()] == ["mxcluster:a", "mxcluster:b"]
    origins = ssh_mesh.origins_of(NODES, variables)
    assert ssh_mesh.on_node(text, "a", origins) == text.splitlines()[1]
    assert ssh_mesh.on_node(text, "b", origins) == text.splitlines()[0]


def test_a_shared_key_is_valid_from_the_other_nodes():
    variables = {
        "a": {"ssh_mesh_from": ["192.0.2.7", "192.0.2.8"]},
        "b": {"ssh_mesh_from": "192.0.2.7"},
    }
    origins = ssh_mesh.origins_of(NODES, of_hosts("ab", variables))
    text = 'from="10.0.0.1,192.0.2.7,192.0.2.8,10.0.0.2" ssh-rsa SHARED mxcluster:all'
    rest = " ssh-rsa SHARED mxcluster:all"
    # The nodes share the address of a gateway.
    assert ssh_mesh.on_node(text, "a", origins) == 'from="192.0.2.7,10.0.0.2"' + rest
    assert ssh_mesh.on_node(text, "b", origins) == 'from="10.0.0.1,192.0.2.7,192.0.2.8"' + rest
    alone = ssh_mesh.origins_of({"a": NODES["a"]}, of_hosts("a", {}))
    assert ssh_mesh.on_node('from="10.0.0.1" ssh-rsa SHARED mxcluster:all', "a", alone) == ""


def test_one_key_for_all_nodes():
    shared = {
        host: record(host, number, public_key="ssh-rsa SHARED")
        for number, host in enumerate("ab", 1)
    }
    assert ssh_mesh.blocks(NODES, shared, of_hosts("ab", {}), "k")["authorized_keys"] == (
        'from="10.0.0.1,10.0.0.2" ssh-rsa SHARED mxcluster:all'
    )


def test_a_node_without_a_record_is_refused():
    with pytest.raises(
        BadInput,
        match="b: the controller lacks the ssh keys of this node: run provision.yml without "
        "--limit",
    ):
        ssh_mesh.blocks(NODES, {"a": RECORDS["a"]}, of_hosts("ab", {}), "k")
    draft = ssh_mesh.blocks(NODES, {"a": RECORDS["a"]}, of_hosts("ab", {}), "k", draft=True)
    assert "(the key that b is going to make)" in draft["authorized_keys"]
    assert "(the host keys of b)" in draft["known_hosts"]


def test_nodes_that_left_the_inventory_are_found():
    left = dict(RECORDS, c=record("c", 3), d=record("d", 4, public_key="ssh-ed25519 KEYa"))
    assert ssh_mesh.gone(NODES, left) == ["c", "d"] and ssh_mesh.still_hold(NODES, left) == ["d"]


def test_the_controllers_known_hosts():
    given = {
        "b": {
            "node_host_key": ["ssh-rsa R c@c", "ssh-ed25519 E"],
            "ansible_host": "10.0.0.2",
            "ansible_port": 2222,
        },
        "a": {"node_host_key": "ssh-ed25519 A"},
    }
    assert ssh_mesh.of_the_controller(of_hosts("abc", given)) == (
        "a ssh-ed25519 A\n[10.0.0.2]:2222 ssh-rsa R\n[10.0.0.2]:2222 ssh-ed25519 E"
    )
