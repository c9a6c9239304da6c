"""What cannot work is refused, with where and what to do, before anything is touched on any node."""
import time

import pytest


@pytest.fixture
def bare(cluster):
    """Afterwards the nodes are as bare as before."""
    yield
    for name in cluster.names:
        assert cluster.node(name).run("ls -A /opt/mxcluster").stdout == "", name
        assert not cluster.node(name).file("/etc/mxcluster").exists and not cluster.node(name).user("mxcluster").exists


def host(name, **variables):
    def change(everything):
        node = everything["children"]["workers"]["hosts"].setdefault(name, {})
        node.update(variables)
    return change


def no_servers(everything):
    everything["children"]["servers"]["hosts"] = {}


def no_python(everything):
    host("node2", ansible_python_interpreter="/opt/no/python")(everything)


@pytest.mark.parametrize("change, told", [
    (host("node9", ansible_host="172.29.16.99", node_host_key=[]),
     ["node9 (172.29.16.99, port 22): it cannot be reached", "Is it up"]),
    (host("node2", ansible_port=2222), ["node2 (172.29.16.12, port 2222): it cannot be reached", "refused", "ansible_port"]),
    (host("node2", ansible_user="nobody-here"),
     ["node2 (172.29.16.12, port 22): it does not let nobody-here in", "ansible_user"]),
    (host("node2", node_host_key=[]), ["node2 (172.29.16.12, port 22): its ssh host key is not known here", "ssh-keyscan -p 22"]),
    (host("node2", node_host_key="ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ7n5cIYqTKnvJc9Y3FOYH5zrxDpXAbHeJeVuYV0yQhR"),
     ["node2 (172.29.16.12, port 22): its ssh host key is not the one that is known", "ssh-keygen -R 172.29.16.12"]),
    (no_python,
     ["node2 (172.29.16.12): there is no Python for Ansible's modules (looked for /opt/no/python)", "yum install python3"]),
    (host("twin", ansible_host="172.29.16.12", node_host_key="{{ hostvars.node2.node_host_key }}"),
     ["node2 and twin have the same address 172.29.16.12", "name one machine only once"]),
    (host("node2", node_address="172.29.16.77"),
     ["node2: no interface of the node holds the address 172.29.16.77", "node_address"]),
    (host("node2", cluster_network="192.0.2.0/24"),
     ["node2: cluster_network=192.0.2.0/24 holds none of the node's addresses"]),
    (host("node2", cluster_network="0.0.0.0/0"), ["node2: cluster_network=0.0.0.0/0 holds 172.29.16.12 and 127.0.0.1"]),
    (no_servers, ["The inventory group servers has no hosts"]),
    (host("node2", mxcluster_user="root"), ["node2", "mxcluster_user is root"]),
])
def test_a_broken_inventory(cluster, inventory, bare, change, told):
    # What is known of the hosts, and connections that are still open.
    cluster.command("rm", "-rf", ".state/known_hosts", cluster.shared / "cp")
    result = cluster.play("provision.yml", inventory=inventory(change))
    assert result.code != 0, result.output
    text = " ".join(result.output.split())
    assert not [part for part in told if part not in text], result.output
    assert result.seconds < 30


def test_check_mode_on_bare_nodes_tells_what_would_be_done(cluster, bare):
    result = cluster.play("provision.yml", "--check", "--diff")
    assert result.code == 0, result.output
    for part in ("+172.29.16.11", "+++ after: /etc/mxcluster/hosts", "(the key that node2 is going to make)", "mxcluster-agent@"):
        assert part in result.output, part


def test_a_disk_that_is_full(cluster):
    """node2 has 120 MB for /opt/mxcluster: named with the cause; nothing half-written stays; with room, the next run repairs."""
    result = cluster.play("provision.yml")
    assert result.code != 0 and "No space left on device" in result.output, result.output[-3000:]
    assert "fatal: [node2]" in result.output.split("No space left on device")[0].splitlines()[-2]
    assert cluster.node("node2").run("ls /opt/mxcluster/env/mxcluster-env.json").rc != 0  # the mark of a whole installation
    assert cluster.shell("node2", "find /opt/mxcluster -name '*.part' -o -name '.mxcluster-*' -o -name 'wheels.tar'") == ""
    refused = cluster.train(num_epochs=1)
    assert refused.result.code != 0 and "node2: the node has no record: run provision.yml" in refused.result.output

    cluster.shell("node2", "mount -o remount,size=2g /opt/mxcluster")
    began = time.time()
    result = cluster.play("provision.yml")
    assert result.code == 0, result.output[-3000:]
    job = cluster.train(num_epochs=1)
    assert job.result.code == 0, job.result.output
    assert time.time() - began < 200
