"""reset.yml removes mxcluster from one node, which then trains in another cluster."""

import re
import subprocess

UNIT = "/etc/systemd/system/mxcluster-firewall@.service"
GONE = (
    "/etc/systemd/system/mxcluster-agent@.service",
    "/etc/mxcluster",
    "/opt/mxcluster/env",
    "/opt/mxcluster/lib",
    "/opt/mxcluster/cache",
    "/run/mxcluster",
)
# grep prints 0 and fails without a block. The tests read the count.
BLOCKS = "cat /home/mxcluster/.ssh/* /home/mxcluster/.bashrc | grep -c 'of mxcluster' || true"
# The files of a system, without those of its kernel, its logs and its caches.
SKIPPED = (
    "/proc /sys /dev /run /tmp /var/tmp /var/log /var/cache "
    "*/.ansible */module-bytecode */__pycache__"
)
FIND = [
    *("find", "/", "-xdev", "("),
    *" -o ".join("-path " + path for path in SKIPPED.split()).split(),
    *(")", "-prune", "-o", "-printf", "%p %u:%g %m\n"),
]
# The files that a machine makes at its first boot and at logins of the administrator.
OF_THE_MACHINE = re.compile("/etc/ssh/ssh_host_|/home/admin/|/var/lib/(dbus|systemd)/")
# Links of the training user to files of root, which keep their content, owner and mode.
TRAPS = """
set -e
mkdir /opt/mxcluster/jobs/trap ~/trap
for place in ~ ~/trap /opt/mxcluster/jobs /opt/mxcluster/jobs/trap; do
    ln -s /etc/victim $place/link
done
rm -f ~/.ssh/config ~/.ssh/known_hosts
ln -s /etc/victim/config ~/.ssh/config
mkfifo ~/.ssh/known_hosts
ln -s /etc/victim /opt/mxcluster/jobs/.removed-trap
"""
VICTIM = """
mkdir /etc/victim
cat /home/mxcluster/.ssh/config >/etc/victim/config
echo secret >/etc/victim/key; chmod 0777 /etc/victim/key
"""
LOOK = "find /etc/victim -printf '%p %u %m %s %C@\\n' | sort"


def files(*command):
    """Return the paths of a system with their owners and modes, by `command`, which runs find."""
    return set(subprocess.check_output([*command, *FIND], text=True).splitlines())


def only_node4(everything):
    """Make node4 the whole cluster."""
    children = everything["children"]
    children["workers"]["hosts"] = {"node4": children["workers"]["hosts"]["node4"]}
    for group in ("scheduler", "servers"):
        children[group]["hosts"] = {"node4": None}


def without_node4(everything):
    """Remove node4 from the cluster."""
    del everything["children"]["workers"]["hosts"]["node4"]


def test_a_dry_run_changes_nothing_and_so_does_a_second_reset(cluster):
    """The home stays, and so does a unit that a person has changed."""
    node = cluster.node("node4")
    cluster.shell("node4", "echo '# of the administrator' >> %s" % UNIT)
    in_container = ("docker", "exec", cluster.container("node4"))
    before = files(*in_container)
    checked = cluster.play("reset.yml", "--limit", "node4", "--check")
    assert checked.code == 0 and "to remove the account mxcluster" in checked.output, checked.output
    assert files(*in_container) == before

    result = cluster.play("reset.yml", "--limit", "node4")
    assert result.code == 0 and "%s: changed by hand" % UNIT in result.output, result.output
    assert [path for path in GONE if node.file(path).exists] == []
    assert node.file(UNIT).exists and not node.user("mxcluster").exists
    assert cluster.shell("node4", BLOCKS) == "0"
    assert not (cluster.state / "nodes" / "node4.json").exists()
    again = cluster.play("reset.yml", "--limit", "node4")
    log = max(cluster.state.glob("reset-*.log")).read_text()
    assert again.code == 0 and re.findall(r" changed=(\d+) ", log) == ["0"], log
    cluster.shell("node4", "rm " + UNIT)


def test_the_node_trains_in_another_cluster_and_is_left_as_it_came(cluster, inventory):
    """The home has stayed, so the new account gets the uid of the old one."""
    uid = cluster.shell("node4", "stat -c %u /home/mxcluster")
    elsewhere = {"inventory": inventory(only_node4)}
    elsewhere["mxcluster_state_dir"] = str(cluster.shared / "elsewhere")
    provisioned = cluster.play("provision.yml", **elsewhere)
    assert provisioned.code == 0, provisioned.output
    assert cluster.shell("node4", "id -u mxcluster") == uid
    trained = cluster.play(
        "train.yml", kv="dist_sync", num_epochs=1, job_id="elsewhere", **elsewhere
    )
    assert trained.code == 0, trained.output

    cluster.shell("node4", VICTIM)
    cluster.shell("node4", TRAPS, "mxcluster")
    victim = cluster.shell("node4", LOOK)
    result = cluster.play("reset.yml", also="data,homes", **elsewhere)
    assert result.code == 0 and cluster.shell("node4", LOOK) == victim, result.output
    cluster.shell("node4", "rm -r /etc/victim")
    in_container = ("docker", "exec", cluster.container("node4"))
    left = files(*in_container) ^ files(*"docker run --rm".split(), image_of(cluster, "node4"))
    assert sorted(line for line in left if not OF_THE_MACHINE.match(line)) == []


def test_a_node_that_goes_leaves_the_others_alone(cluster, inventory):
    """An earlier test may have changed files of another node, which is then a reason of its own.

    tests/playbooks/test_1_reset.py asks the same about a node that comes.
    """
    gone = cluster.play("provision.yml", inventory=inventory(without_node4))
    assert gone.code == 0 and "needs new cluster files and SSH files" in gone.output, gone.output
    reasons = " ".join(re.findall("needs provisioning: (.*)", gone.output))
    assert not re.search("record|cluster files|addresses", reasons), reasons
    hosts = cluster.shell("node1", "cat /etc/mxcluster/hosts")
    assert cluster.here("172.29.20.14") not in hosts


def image_of(cluster, name):
    """Return the id of the image of a node's container."""
    argv = ["docker", "inspect", "--format", "{{.Image}}", cluster.container(name)]
    return subprocess.check_output(argv, text=True).strip()
