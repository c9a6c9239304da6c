"""Machines with CPU quotas: profile.yml finds the slow machine, and later jobs use the profile."""

import json
import subprocess

import pytest

QUOTAS = {"node1": 0.4, "node2": 0.4, "node3": 0.4, "node4": 0.13}  # processors
# Shorter than a step: the median of steps does not see a pause between two of them.
PERIOD = 10000  # microseconds
MODEL = {"network": "lenet", "batch_size": 32}


@pytest.fixture(scope="module")
def throttled(cluster):
    """Give each container a part of a processor, and take the quota away after the tests."""

    def limit(name, quota):
        command = ["docker", "update", "--cpu-period", str(PERIOD), "--cpu-quota", str(quota)]
        subprocess.run([*command, cluster.container(name)], check=True, stdout=subprocess.DEVNULL)

    for name, processors in QUOTAS.items():
        limit(name, int(PERIOD * processors))
    yield
    for name in QUOTAS:
        limit(name, -1)
    (cluster.state / "profile.json").unlink()


@pytest.fixture
def unlabelled(inventory):
    """Return an inventory whose workers have no worker_group, which would win over the profile."""

    def change(everything):
        for host in everything["children"]["workers"]["hosts"].values():
            del host["worker_group"]

    return inventory(change)


def test_a_slow_machine_gets_its_own_group_and_a_smaller_share(cluster, throttled, unlabelled):
    measured = cluster.play(
        "profile.yml", inventory=unlabelled, job_id="throttled", apply=True, **MODEL
    )
    assert measured.code == 0, measured.output
    profile = json.loads((cluster.runs / "throttled" / "profile.json").read_text())
    speeds = [worker["together"]["samples_per_s"] for worker in profile["workers"]]
    assert speeds[3] < 0.6 * min(speeds[:3]), measured.output
    assert profile["groups"][-1] == [3], measured.output
    slow = cluster.shell("node1", "tail -n 1 /etc/mxcluster/data_sharding").split()
    assert float(slow[1]) - float(slow[0]) < 0.2

    job = cluster.train(
        inventory=unlabelled, kv="dist_gsync", data_allocator=1, num_epochs=2, **MODEL
    )
    assert job.result.code == 0 and job.verdict["ok"], job.result.output
    plan = json.loads((job.folder / "plan.json").read_text())
    assert plan["groups"] == profile["groups"] and plan["shares"] == profile["shares"]


@pytest.mark.soak
def test_schemes_are_compared_on_throttled_machines(cluster, throttled, unlabelled):
    """Over ssh; the profile is that of the test before."""
    done = cluster.play(
        "compare.yml",
        inventory=unlabelled,
        sweep="compared",
        schemes="bsp,gsp,balanced",
        seeds=1,
        lr_factors="1",
        num_epochs=3,
        target=0.5,
        data_allocator=1,
        **MODEL,
    )
    assert done.code == 0, done.output
    lines = (cluster.runs / "compared" / "results.jsonl").read_text().splitlines()
    assert [json.loads(line)["state"] for line in lines] == ["ok"] * 3, done.output
    speeds = {one["about"]["scheme"]: one["samples_per_s"] for one in map(json.loads, lines)}
    assert speeds["gsp"] > speeds["bsp"] and speeds["balanced"] > speeds["bsp"], speeds
