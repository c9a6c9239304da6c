"""reset.yml removes mxcluster from one node, and provision.yml provisions this node again."""

from tests.recap import changes

UNIT = "/etc/systemd/system/mxcluster-firewall@.service"
GONE = (
    "/etc/systemd/system/mxcluster-agent@.service",
    "/etc/mxcluster",
    "/opt/mxcluster/env",
    "/opt/mxcluster/lib",
    "/opt/mxcluster/cache",
    "/run/mxcluster",
)
BLOCKS = "cat /home/mxcluster/.ssh/* /home/mxcluster/.bashrc | grep -c 'of mxcluster' || true"


def test_a_node_is_reset_and_provisioned_again(cluster):
    """The home and the folders of jobs stay, so the new account gets the uid of the old one."""
    uid, node = cluster.shell("node4", "id -u mxcluster"), cluster.node("node4")
    cluster.shell("node4", "echo '# of the administrator' >> %s" % UNIT)
    checked = cluster.play("reset.yml", "--limit", "node4", "--check")
    assert checked.code == 0 and "to remove the account mxcluster" in checked.output, checked.output
    assert all(node.file(path).exists for path in ("/opt/mxcluster/env", "/etc/mxcluster/hosts"))

    result = cluster.play("reset.yml", "--limit", "node4")
    assert result.code == 0 and "%s: changed by hand" % UNIT in result.output, result.output
    assert [path for path in GONE if node.file(path).exists] == []
    assert node.file(UNIT).exists and not node.user("mxcluster").exists
    assert cluster.shell("node4", BLOCKS) == "0"
    assert not (cluster.state / "nodes" / "node4.json").exists()
    again = cluster.play("reset.yml", "--limit", "node4", "--check")
    assert again.code == 0 and set(changes(again.output).values()) == {0}, again.output

    cluster.shell("node4", "rm " + UNIT)
    provisioned = cluster.play("provision.yml", "--limit", "node4")
    assert provisioned.code == 0, provisioned.output
    assert cluster.shell("node4", "id -u mxcluster") == uid
    job = cluster.train(kv="dist_sync", num_epochs=1)
    assert job.result.code == 0 and len(job.verdict["nodes"]) == 4, job.result.output
