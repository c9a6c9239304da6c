"""The program that profile.yml runs, with real MXNet."""

import numpy as np
import pytest

from tests.training.conftest import newest_often
from tests.training.loopback import Job, program

MLP = [128 * 64, 128, 64 * 128, 64, 10 * 64, 10]


@newest_often
def test_each_worker_measures_itself_and_the_servers(every_mxnet, tmp_path):
    job = Job(
        every_mxnet.python,
        tmp_path,
        "measure.py",
        "dist_async",
        groups=(0, 0, 0),
        servers=2,
        arguments=program(kv="dist_async", batch_size=16),
        environment={"MXNET_KVSTORE_BIGARRAY_BOUND": "5000"},  # the first array is cut
    ).succeed()
    found = {event["index"]: event for event in job.events("profile")}
    assert sorted(found) == [0, 1, 2]
    assert found[0]["parameters"] == MLP and found[0]["mxnet"] == every_mxnet.version
    for event in found.values():
        for kind in ("alone", "together"):
            assert 10 < event[kind]["samples_per_s"] < 1e6 and event[kind]["spread"] >= 0
        assert len(event["servers"]) == 2
        seconds = [one[way] for one in event["servers"] for way in ("push_s", "pull_s")]
        assert all(1e-5 < value < 5 for value in seconds + [event["exchange_s"]])
    servers = {event["index"]: event["updates_per_s"] for event in job.events("server_speed")}
    assert sorted(servers) == [0, 1] and all(1 < speed < 1e6 for speed in servers.values())


@pytest.mark.soak  # `make test` trains beside it on the same core
def test_a_worker_that_is_alone_is_not_slowed_down_by_the_others(mxnet_new, tmp_path):
    """Three workers on one core measure together about a third of what each measures alone.

    With n other programs on the core it is (n + 1) / (n + 3), so 0.6 for two. Without turns it is
    1.
    """
    job = Job(
        mxnet_new.python,
        tmp_path,
        "measure.py",
        "dist_async",
        groups=(0,) * 3,
        arguments=program(kv="dist_async", network="lenet"),
        wrap=("taskset", "-c", "0"),
    ).succeed()
    ratios = [
        event["together"]["samples_per_s"] / event["alone"]["samples_per_s"]
        for event in job.events("profile")
    ]
    assert len(ratios) == 3 and np.median(ratios) < 0.75, ratios


def test_a_worker_measures_each_of_its_gpus_alone(mxnet_new, tmp_path):
    """Two devices of MXNet on the CPU stand in for GPUs; the second one is slowed down.

    Afterwards they share a batch by their speeds, so the worker is faster than with equal parts:
    of 12 samples at 1 and 3 s each, 6 and 6 take 18 s, and 9 and 3 take 9 s.
    """
    job = Job(
        mxnet_new.python,
        tmp_path,
        "measure_devices.py",
        "dist_async",
        groups=(0,),
        arguments=program(kv="dist_async", batch_size=12),
    ).succeed()
    (event,) = job.events("profile")
    fast, slow = event["gpu_speeds"]
    assert fast / slow == pytest.approx(3, rel=0.25), event
    assert event["alone"]["samples_per_s"] > 1.5 * 12 / 18, event
