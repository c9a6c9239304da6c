"""Machines that a CPU quota makes unequal: the profile finds the groups, and Grouping-SGD gains."""

import json

import pytest

QUOTAS = {"node1": 60, "node2": 60, "node3": 20}  # per cent of a core
DROP_IN = "/etc/systemd/system/mxcluster-agent@.service.d/quota.conf"


@pytest.fixture
def throttled(cluster):
    """Limit the CPU time of all processes of a job on each node. The kernel enforces the limit."""
    for name, quota in QUOTAS.items():
        cluster.shell(
            name,
            "install -d $(dirname %s) && printf '[Service]\\nCPUQuota=%d%%%%\\n' > %s && "
            "systemctl daemon-reload" % (DROP_IN, quota, DROP_IN),
        )
    yield
    for name in QUOTAS:
        cluster.shell(name, "rm -r $(dirname %s) && systemctl daemon-reload" % DROP_IN)


def test_profile_finds_the_groups_of_throttled_machines(cluster, throttled):
    job = cluster.play("profile.yml", job_id="throttled", network="lenet", batch_size=32)
    assert job.code == 0, job.output
    profile = json.loads((cluster.runs / "throttled" / "profile.json").read_text())
    speeds = [worker["alone"]["samples_per_s"] for worker in profile["workers"]]
    assert speeds[1] == pytest.approx(speeds[0], rel=0.25), (speeds, job.output)
    assert speeds[2] == pytest.approx(speeds[0] / 3, rel=0.35), (speeds, job.output)
    assert profile["groups"] == [[0, 1], [2]], (speeds, job.output)


@pytest.mark.soak
def test_grouping_gains_on_throttled_machines(cluster, throttled):
    """The labels of the inventory are the groups of the profile. The limit is (.6 + .6 + .2) / .6.

    Under dist_sync all three workers have the speed of node3.
    """
    speed = {}
    for kv, shares in (("dist_sync", 0), ("dist_gsync", 1)):
        job = cluster.train(
            kv=kv, data_allocator=shares, network="lenet", batch_size=32, num_epochs=6
        )
        assert job.result.code == 0 and job.verdict["ok"], job.result.output
        speed[kv] = job.verdict["samples_per_s"]
    assert speed["dist_gsync"] > 1.4 * speed["dist_sync"], speed
