"""After adding and removing a worker, files and keys are complete, and a shared key is replaced."""

import pytest

from mxcluster.datasets import write_digits
from tests.recap import changes

SHARED = {"ssh_mesh_mode": "shared_key"}


def without(*names):
    def change(everything):
        for name in names:
            del everything["children"]["workers"]["hosts"][name]

    return change


def peers(cluster, name):
    """Return the nodes whose keys are in authorized_keys."""
    lines = cluster.shell(name, "cat /home/mxcluster/.ssh/authorized_keys").splitlines()
    return [line.split("mxcluster:")[1] for line in lines if " mxcluster:" in line]


@pytest.mark.soak
def test_a_shared_key_outlives_a_node_until_a_new_one_is_made_and_then_nodes_are_added(
    cluster, inventory, tmp_path
):
    """Remove node3 of three nodes, then add node3 and node4 again, each with its own key."""
    three, two = inventory(without("node4")), inventory(without("node3", "node4"))
    result = cluster.play("provision.yml", inventory=three, **SHARED)
    assert result.code == 0 and "left the inventory" not in result.output, result.output
    assert cluster.shell("node2", "stat -c %a /home/mxcluster/.ssh/mxcluster.pem") == "600"
    assert cluster.shell("node2", "ssh -o BatchMode=yes node3 hostname", "mxcluster") == "node3"

    result = cluster.play("provision.yml", inventory=two, **SHARED)
    assert result.code == 0 and "still have the shared SSH key: node3" in result.output, (
        result.output
    )
    assert "-e ssh_mesh_new_key=true" in result.output
    old = cluster.shell("node1", "cat /home/mxcluster/.ssh/mxcluster.pem")
    result = cluster.play("provision.yml", inventory=two, ssh_mesh_new_key=True, **SHARED)
    assert result.code == 0, result.output
    assert cluster.shell("node1", "cat /home/mxcluster/.ssh/mxcluster.pem") != old
    assert cluster.shell("node1", "ssh -o BatchMode=yes node2 hostname", "mxcluster") == "node2"
    assert (
        cluster.node("node3").run("runuser -u mxcluster -- ssh -o BatchMode=yes node2 true").rc
        == 255
    )
    result = cluster.play("provision.yml", inventory=two, **SHARED)
    assert result.code == 0 and "left the inventory" not in result.output, result.output
    assert not any(changes(result.output).values()), result.output
    for name in ("node1", "node2"):
        assert cluster.shell(name, "cat /etc/mxcluster/hosts") == cluster.here(
            "172.29.20.11\n172.29.20.12"
        )
        assert cluster.here("172.29.20.13") not in cluster.shell(
            name, "cat /etc/mxcluster/* /home/mxcluster/.ssh/known_hosts"
        )
    assert not (cluster.state / "nodes" / "node3.json").exists()
    job = cluster.train(kv="dist_sync", num_epochs=1)  # all nodes, of which two have no record
    assert job.result.code != 0
    assert "node3: the node has no record: run provision.yml without --limit" in job.result.output

    result = cluster.play("provision.yml")
    assert result.code == 0, result.output
    for name in cluster.names:
        others = [other for other in ("node1", "node2", "node3", "node4") if other != name]
        assert peers(cluster, name) == others
        hosts = cluster.shell(name, "cat /etc/mxcluster/hosts").splitlines()
        assert hosts[2] == cluster.here("172.29.20.13")
    write_digits(str(tmp_path / "digits.npz"))
    job = cluster.train(
        kv="dist_gsync", num_epochs=2, data_src=str(tmp_path), data_dir="/home/mxcluster/own"
    )
    assert job.result.code == 0 and len(job.verdict["nodes"]) == 4, job.result.output
    for name in cluster.names:
        assert cluster.shell(name, "stat -c '%U %a' /home/mxcluster/own/digits.npz").startswith(
            "mxcluster "
        ), name
