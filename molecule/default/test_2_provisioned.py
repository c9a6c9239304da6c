"""After provision.yml without knobs, a node has the documented state."""

import json

from tests.machine import Stopwatch
from tests.recap import changes
from tests.waiting import until


def test_a_disk_that_is_full(cluster):
    """A full disk of node2 is named as the cause, leaves no partial file; a next run succeeds.

    /opt/mxcluster has 120 MB there, then 2 GB.
    """
    cluster.shell(
        "node2",
        "mkdir -p /opt/mxcluster; mount -t tmpfs -o size=120m,mode=755 tmpfs /opt/mxcluster",
    )
    result = cluster.play("provision.yml")
    assert result.code != 0 and "No space left on device" in result.output, result.output[-3000:]
    assert "fatal: [node2]" in result.output.split("No space left on device")[0].splitlines()[-2]
    assert (
        cluster.node("node2").run("ls /opt/mxcluster/env/mxcluster-env.json").rc != 0
    )  # the marker of a complete installation
    assert (
        cluster.shell(
            "node2",
            "find /opt/mxcluster -name '*.part' -o -name '.mxcluster-*' -o -name 'wheels.tar'",
        )
        == ""
    )
    refused = cluster.train(num_epochs=1)
    assert refused.result.code != 0
    assert "node2: the node has no record: run provision.yml" in refused.result.output

    cluster.shell("node2", "mount -o remount,size=2g /opt/mxcluster")
    with Stopwatch() as watch:
        result = cluster.play("provision.yml")
        assert result.code == 0, result.output[-3000:]
        job = cluster.train(kv="dist_sync", num_epochs=10)
    assert job.result.code == 0 and job.verdict["accuracy"] >= 0.9, job.result.output
    assert watch.within(200)
    # Move the files to a disk that survives a reboot: other tests stop nodes.
    cluster.shell("node2", "cp -a /opt/mxcluster /opt/kept")
    node = cluster.node("node2")
    # A process of the ended job may use the disk for a moment.
    until(
        lambda: node.run("umount /opt/mxcluster").rc == 0,
        evidence=lambda: node.run("ls -l /proc/*/cwd /proc/*/fd | grep /opt/mxcluster").stdout,
    )
    cluster.shell("node2", "cd /opt && rmdir mxcluster && mv kept mxcluster")


def test_a_second_run_changes_nothing(cluster):
    """drift_anyway runs all roles."""
    result = cluster.play("provision.yml", drift_anyway=True)
    assert result.code == 0 and not any(changes(result.output).values()), result.output


def test_the_training_user_has_no_rights(cluster):
    user = cluster.node("node1").user("mxcluster")
    assert user.exists and user.uid > 0 and user.shell == "/bin/bash"
    assert cluster.shell("node1", "getent shadow mxcluster").split(":")[1] in ("!", "*", "!*")
    assert cluster.shell("node1", "id -nG mxcluster") == "mxcluster"


def test_what_is_installed_is_roots_and_can_be_used(cluster):
    assert (
        cluster.shell("node1", "find /opt/mxcluster ! -user root ! -path '/opt/mxcluster/jobs*'")
        == ""
    )
    assert cluster.shell("node1", "find /opt/mxcluster /etc/mxcluster -perm /022 ! -type l") == ""
    ask = "/opt/mxcluster/env/bin/python -c 'import mxnet; print(mxnet.__version__)'"
    assert cluster.shell("node1", ask, "mxcluster") == "1.9.1"
    assert (
        cluster.shell("node1", "ls -A /opt/mxcluster/cache") == ""
    )  # the installation removes its downloads


def test_the_unit_is_one_that_systemd_understands(cluster):
    result = cluster.node("node1").run("systemd-analyze verify mxcluster-agent@job.service")
    assert "mxcluster" not in result.stderr, (
        result.stderr
    )  # stderr also contains messages about the system's own units
    assert (
        cluster.shell("node1", "systemctl show -p User mxcluster-agent@job.service")
        == "User=mxcluster"
    )


def test_verify_says_so(cluster):
    result = cluster.play("verify.yml")
    assert result.code == 0 and "OK        3 nodes: 11 ok" in result.output, result.output
    verdict = json.loads((cluster.state / "verify.json").read_text())
    assert verdict["status"] == 0 and {line["result"] for line in verdict["checks"]} == {"ok"}
