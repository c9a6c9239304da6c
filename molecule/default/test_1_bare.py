"""provision.yml refuses a broken inventory or machine before any change, and names the cure."""

import pytest

from tests.machine import Stopwatch
from tests.often import seldom


@pytest.fixture
def bare(cluster):
    """Check after the test that the nodes are still bare."""
    yield
    for name in cluster.names:
        assert cluster.node(name).run("ls -A /opt/mxcluster").stdout == "", name
        assert (
            not cluster.node(name).file("/etc/mxcluster").exists
            and not cluster.node(name).user("mxcluster").exists
        )


def host(name, **variables):
    def change(everything):
        node = everything["children"]["workers"]["hosts"].setdefault(name, {})
        node.update(variables)

    return change


def no_way_in(everything):
    """Add six hosts, all on machine node2, with faults in address, key, user or Python."""
    stranger = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ7n5cIYqTKnvJc9Y3FOYH5zrxDpXAbHeJeVuYV0yQhR"
    wrong = {
        "off": {},
        "port": {"ansible_port": 2222},
        "user": {"ansible_user": "nobody-here"},
        "unknown": {"node_host_key": []},
        "another": {"node_host_key": stranger},
        "python": {"ansible_python_interpreter": "/opt/no/python"},
    }
    for number, name in enumerate(wrong):
        known = {
            "ansible_host": "172.29.10.%d" % (20 + number),
            "node_host_key": "{{ lookup('ansible.builtin.file', molecule_shared_dir ~ "
            "'/node2.host_key') }}",
        }
        host(name, **dict(known, **wrong[name]))(everything)


NO_WAY_IN = [
    "off (172.29.10.20, port 22): cannot reach the node",
    "Check that the node and its sshd run",
    "port (172.29.10.21, port 2222): cannot reach the node",
    "refused",
    "ansible_port",
    "user (172.29.10.22, port 22): the node rejects the login of nobody-here",
    "ansible_user",
    "unknown (172.29.10.23, port 22): ssh host key unknown",
    "ssh-keyscan -p 22",
    "another (172.29.10.24, port 22): the node's ssh host key differs from the known key",
    "ssh-keygen -R 172.29.10.24",
    "python (172.29.10.25): the node has no Python for Ansible's modules (looked for "
    "/opt/no/python)",
    "yum install python3",
]


@pytest.mark.parametrize(
    "change, words",
    [
        (no_way_in, NO_WAY_IN),
        (
            host(
                "twin",
                ansible_host="172.29.10.12",
                node_host_key="{{ hostvars.node2.node_host_key }}",
            ),
            ["node2 and twin have the same address 172.29.10.12", "only once in the inventory"],
        ),
        seldom(
            host("node2", node_address="172.29.10.77"),
            ["node2: no interface of the node holds the address 172.29.10.77", "node_address"],
        ),
        seldom(
            host("node2", cluster_network="0.0.0.0/0"),
            [
                "node2: cluster_network=0.0.0.0/0 must hold exactly one of the node's addresses, "
                "but holds 172.29.10.12 and 127.0.0.1"
            ],
        ),
    ],
)
def test_a_broken_inventory(cluster, inventory, bare, change, words):
    # Close the open connections. Each provision.yml writes its inventory's host keys anew.
    cluster.command("rm", "-rf", cluster.shared / "cp")
    addresses = (
        " ".join("172.29.10.%d/24" % number for number in range(21, 26))
        if change is no_way_in
        else ""
    )
    script = cluster.here("for each in %s; do ip address %%s $each dev eth0; done" % addresses)
    cluster.shell("node2", script % "add")
    try:
        with Stopwatch() as watch:
            result = cluster.play("provision.yml", inventory=inventory(change))
    finally:
        cluster.shell("node2", script % "del")
    assert result.code != 0, result.output
    text = " ".join(result.output.split())
    assert not [part for part in words if cluster.here(part) not in text], result.output
    assert watch.within(30)


def test_check_mode_on_bare_nodes_tells_what_would_be_done(cluster, bare):
    result = cluster.play("provision.yml", "--check", "--diff")
    assert result.code == 0, result.output
    for part in (
        cluster.here("+172.29.10.11"),
        "+++ after: /etc/mxcluster/hosts",
        "(the key that node2 is going to make)",
        "mxcluster-agent@",
    ):
        assert part in result.output, part
