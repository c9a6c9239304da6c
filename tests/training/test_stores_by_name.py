"""A worker has one distributed kv-store, under the name of the job's plan or another name of it."""

import pytest

from mxcluster import exit_codes
from tests.often import seldom
from tests.training.conftest import newest_often
from tests.training.loopback import Job, log_of


@newest_often
@pytest.mark.parametrize(
    "kv, names, kind",
    [
        ("dist_sync", ("dist", "dist_sync"), "dist_sync"),
        ("dist_sync", ("dist_sync", "DIST", "threads"), "dist_sync"),
        seldom("dist_device_sync", ("dist_sync_device", "dist_device_sync"), "dist_sync_device"),
        ("dist_gsync", ("dist_gsync", "dist_gsync", "threads"), "dist_sync"),
    ],
)
def test_other_names_of_a_store_give_the_same_store(every_mxnet, tmp_path, kv, names, kind):
    job = Job(every_mxnet.python, tmp_path, "twice.py", kv, (0, 0), arguments=names)
    job.succeed()
    for index in (0, 1):
        log = log_of(tmp_path, "worker-%d" % index)
        assert "SAME True %s " % kind in log and "v [2.0, 2.0, 2.0, 2.0]" in log, log


def test_a_second_store_is_refused_by_its_true_reason(mxnet_new, tmp_path):
    """Once the message blamed another program for the port that the worker itself holds."""
    names = ("dist_sync", "dist_device_sync")
    job = Job(mxnet_new.python, tmp_path, "twice.py", "dist_sync", arguments=names)
    assert 1 in job.wait(grace=1).values(), job.evidence()
    assert (
        "RuntimeError: this worker already has the kv-store dist_sync, and ps-lite allows only one "
        "distributed kv-store in a process: use mx.kv.create('dist_sync'), which returns this "
        "store, in place of mx.kv.create('dist_device_sync')" in job.evidence()
    ), job.evidence()
    assert "bind failed" not in job.evidence()


@newest_often
@pytest.mark.parametrize(
    "planned, groups, made",
    [
        ("dist_ssync", (0, 0), "dist_sync"),
        ("dist_sync", (0, 0), "dist_async"),
        seldom("dist_gsync", (0, 1), "dist_sync"),
        seldom("dist_gsync", (0, 0), "dist_device_async"),
    ],
)
def test_another_scheme_than_that_of_the_plan_is_refused(
    every_mxnet, tmp_path, planned, groups, made
):
    """Once such a job ended "OK" under the planned name."""
    job = Job(
        every_mxnet.python, tmp_path, "sync_step.py", planned, groups, staleness=1, arguments=[made]
    )
    codes = job.wait(grace=0)
    assert 1 in codes.values() and 0 not in codes.values(), job.evidence()
    known = {"dist_device_async": "dist_async"}.get(made, made)
    assert (
        "RuntimeError: the job was planned for kv=%s, and the script makes the kv-store %s: start "
        "the job with -e kv=%s" % (planned, known, known) in job.evidence()
    ), job.evidence()


@newest_often
@pytest.mark.parametrize(
    "planned, made",
    [("dist_sync", "dist_device_sync"), ("dist_gsync", "dist_sync"), ("dist_sync", "dist_gsync")],
)
def test_another_name_that_trains_alike_is_accepted(every_mxnet, tmp_path, planned, made):
    job = Job(
        every_mxnet.python, tmp_path, "sync_step.py", planned, (0, 0), arguments=[made]
    ).succeed()
    assert "TRAINED dist" in log_of(tmp_path, "worker-1"), job.evidence()


@newest_often
@pytest.mark.parametrize("kv, what", [("dist_async", "push"), seldom("dist_sync", "save")])
def test_what_needs_an_optimizer_is_refused_by_name(every_mxnet, tmp_path, kv, what):
    """MXNet's asynchronous server aborts at such a push, with a stack of C++."""
    job = Job(every_mxnet.python, tmp_path, "no_optimizer.py", kv, (0, 0), arguments=[kv, what])
    assert job.wait()["server-0"] == exit_codes.UPDATER_FAILED, job.evidence()
    log = log_of(tmp_path, "server-0")
    words = {
        "push": "mxcluster: gradients of parameter 3 came before an optimizer: call "
        "set_optimizer() before push(); ending",
        "save": "mxcluster: the checkpoint mlp-0001 was requested before an optimizer: call "
        "set_optimizer() before the job saves a checkpoint; ending",
    }
    assert words[what] in log and "Stack trace" not in log, log


def test_a_synchronous_store_without_an_optimizer_sums(every_mxnet, tmp_path):
    arguments = ["dist_sync", "push"]
    job = Job(every_mxnet.python, tmp_path, "no_optimizer.py", "dist_sync", arguments=arguments)
    job.succeed()
    assert "PULLED [16.0, 16.0, 16.0, 16.0]" in job.evidence(), job.evidence()
