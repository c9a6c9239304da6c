"""provision.yml --limit provisions one node completely and does not touch the other nodes."""

import re

FILES = (
    "/etc/mxcluster/hosts",
    "/etc/mxcluster/groups",
    "/etc/mxcluster/data_sharding",
    "/home/mxcluster/.ssh/authorized_keys",
    "/home/mxcluster/.ssh/known_hosts",
    "/home/mxcluster/.ssh/config",
)
OTHERS = ("node1", "node3", "node4")


def contents(cluster, name):
    """Return {path: text} of the files on the node."""
    script = "set -e; for path in %s; do cat $path; printf '\\0'; done" % " ".join(FILES)
    text = cluster.shell(name, script)
    return {path: text.strip("\n") for path, text in zip(FILES, text.split("\0"))}


def changes(cluster, name):
    """Return the times of the last changes of mxcluster's files on the node."""
    return cluster.shell(
        name,
        "find /opt/mxcluster /etc/mxcluster /home/mxcluster -printf '%p %C@\\n' | grep -v '/jobs' "
        "| sort",
    )


def test_files_are_complete_and_equal(cluster):
    first = contents(cluster, "node1")
    own = "/home/mxcluster/.ssh/authorized_keys"  # without the key of the node itself
    for name in cluster.names:
        assert dict(contents(cluster, name), **{own: ""}) == dict(first, **{own: ""})
    for name in cluster.names[1:]:
        address = cluster.variables[name]["ansible_host"].replace(".11.", ".20.")
        assert all(address in text for path, text in first.items() if "sharding" not in path)


def test_limit_repairs_one_node_and_leaves_the_others(cluster):
    before, others = contents(cluster, "node2"), {name: changes(cluster, name) for name in OTHERS}
    mine = (
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ7n5cIYqTKnvJc9Y3FOYH5zrxDpXAbHeJeVuYV0yQhR "
        "the administrator"
    )
    cluster.shell(
        "node2",
        "rm -r /etc/mxcluster /home/mxcluster/.ssh/config; echo '%s' > "
        "/home/mxcluster/.ssh/authorized_keys; "
        "echo elsewhere ssh-ed25519 AAAA > /home/mxcluster/.ssh/known_hosts" % mine,
    )
    check = cluster.play("provision.yml", "--limit", "node2", "--check", "--diff")
    assert check.code == 0 and cluster.here("+172.29.20.13") in check.output, check.output
    assert cluster.node("node2").run("ls /etc/mxcluster").rc != 0  # check mode changes nothing
    result = cluster.play("provision.yml", "--limit", "node2")
    assert result.code == 0, result.output
    after = contents(cluster, "node2")
    assert (
        mine in after["/home/mxcluster/.ssh/authorized_keys"].splitlines()
    )  # keys of other owners stay
    assert "elsewhere ssh-ed25519 AAAA" in after["/home/mxcluster/.ssh/known_hosts"]
    for path in FILES:
        assert before[path] in after[path]
    assert others == {name: changes(cluster, name) for name in OTHERS}
    assert not re.search(r"^node[134] .*(changed|failed)=[1-9]", result.output, re.MULTILINE)
    for name in OTHERS:
        assert (
            cluster.shell("node2", "ssh -o BatchMode=yes %s hostname" % name, "mxcluster") == name
        )
        assert cluster.shell(name, "ssh -o BatchMode=yes node2 hostname", "mxcluster") == "node2"


def test_root_is_not_led_by_the_training_user(cluster):
    """provision.yml writes files in the training user's home as that user.

    Links of the user therefore cannot redirect root to its own files.
    """
    root = "ssh-ed25519 AAAA of the administrator"
    cluster.shell(
        "node3", "umask 077; mkdir -p /root/.ssh; echo '%s' > /root/.ssh/authorized_keys" % root
    )
    cluster.shell(
        "node3",
        "ln -sf /root/.ssh/authorized_keys /home/mxcluster/.ssh/authorized_keys",
        "mxcluster",
    )
    result = cluster.play("provision.yml", "--limit", "node3")
    assert result.code != 0 and "/home/mxcluster/.ssh/authorized_keys" in result.output, (
        result.output
    )
    assert cluster.shell("node3", "cat /root/.ssh/authorized_keys") == root
    cluster.shell("node3", "rm /home/mxcluster/.ssh/authorized_keys", "mxcluster")
    assert cluster.play("provision.yml", "--limit", "node3").code == 0


def test_a_node_that_nobody_knows_cannot_be_left_out(cluster):
    (cluster.state / "nodes" / "node3.json").rename(cluster.state / "node3.json")
    try:
        refused = cluster.play("provision.yml", "--limit", "node1")
    finally:
        (cluster.state / "node3.json").rename(cluster.state / "nodes" / "node3.json")
    assert refused.code != 0
    assert "node3: the node has no record: run provision.yml without --limit" in refused.output
