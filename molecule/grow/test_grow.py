"""A cluster gets a worker, then loses one: files and keys are complete each time, and a shared key is not forgotten."""
from mxcluster.datasets import write_digits


def without(*names):
    def change(everything):
        for name in names:
            del everything["children"]["workers"]["hosts"][name]
    return change


def peers(cluster, name):
    """Of which nodes there is a key in authorized_keys."""
    lines = cluster.shell(name, "cat /home/mxcluster/.ssh/authorized_keys").splitlines()
    return [line.split("mxcluster:")[1] for line in lines if " mxcluster:" in line]


def test_a_worker_is_added(cluster, inventory, tmp_path):
    """The scenario has provisioned three nodes; the cluster is first made anew of two. Data come in by a login with sudo."""
    small = inventory(without("node3"))
    result = cluster.play("provision.yml", inventory=small)
    assert result.code == 0, result.output
    assert peers(cluster, "node1") == peers(cluster, "node2") == ["node1", "node2"]
    assert cluster.shell("node1", "cat /etc/mxcluster/hosts") == "172.29.13.11\n172.29.13.12"
    assert not (cluster.state / "nodes" / "node3.json").exists()
    assert cluster.node("node3").run("runuser -u mxcluster -- ssh -o BatchMode=yes node1 true").rc == 255  # it is out

    job = cluster.train(kv="dist_sync", num_epochs=1)  # with all three, of whom one is not known any more
    assert job.result.code != 0 and "node3: the node has no record: run provision.yml without --limit" in job.result.output

    result = cluster.play("provision.yml")
    assert result.code == 0, result.output
    for name in cluster.names:
        assert peers(cluster, name) == ["node1", "node2", "node3"]
        assert cluster.shell(name, "cat /etc/mxcluster/hosts").splitlines()[2] == "172.29.13.13"
    write_digits(str(tmp_path / "digits.npz"))
    job = cluster.train(kv="dist_gsync", num_epochs=2, data_src=str(tmp_path), data_dir="/home/mxcluster/own")
    assert job.result.code == 0 and len(job.verdict["nodes"]) == 3, job.result.output
    for name in cluster.names:
        assert cluster.shell(name, "stat -c '%U %a' /home/mxcluster/own/digits.npz").startswith("mxcluster "), name


def test_a_worker_is_removed(cluster, inventory):
    small = inventory(without("node2"))
    assert cluster.play("provision.yml", inventory=small).code == 0
    for name in ("node1", "node3"):
        assert peers(cluster, name) == ["node1", "node3"]
        assert "172.29.13.12" not in cluster.shell(name, "cat /etc/mxcluster/* /home/mxcluster/.ssh/known_hosts")
    again = cluster.play("provision.yml", inventory=small)
    assert again.code == 0 and "changed=1" not in again.output, again.output


def test_a_shared_key_outlives_a_node_until_a_new_one_is_made(cluster, inventory):
    shared = {"ssh_mesh_mode": "shared_key"}
    result = cluster.play("provision.yml", **shared)
    assert result.code == 0 and "left the inventory" not in result.output, result.output
    assert cluster.shell("node2", "stat -c %a /home/mxcluster/.ssh/mxcluster.pem") == "600"
    assert cluster.shell("node2", "ssh -o BatchMode=yes node3 hostname", "mxcluster") == "node3"

    small = inventory(without("node2"))
    result = cluster.play("provision.yml", inventory=small, **shared)
    assert result.code == 0 and "node2 left the inventory and still has the key" in result.output, result.output
    assert "-e ssh_mesh_new_key=true" in result.output
    old = cluster.shell("node1", "cat /home/mxcluster/.ssh/mxcluster.pem")
    result = cluster.play("provision.yml", inventory=small, ssh_mesh_new_key=True, **shared)
    assert result.code == 0, result.output
    assert cluster.shell("node1", "cat /home/mxcluster/.ssh/mxcluster.pem") != old
    assert cluster.shell("node1", "ssh -o BatchMode=yes node3 hostname", "mxcluster") == "node3"
    assert cluster.node("node2").run("runuser -u mxcluster -- ssh -o BatchMode=yes node3 true").rc == 255
    result = cluster.play("provision.yml", inventory=small, **shared)
    assert result.code == 0 and "left the inventory" not in result.output, result.output
