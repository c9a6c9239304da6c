"""A worker ends as Python does: threads, executors and atexit before the store is freed."""

import pytest

from mxcluster import exit_codes
from tests.often import seldom
from tests.training.conftest import by_turns
from tests.training.loopback import Job, log_of


def run(python, folder, kv, where, workers=2):
    return Job(
        python, folder, "after_the_end.py", kv, [0] * workers, staleness=1, arguments=[kv, where]
    )


@pytest.mark.parametrize("kv", ["dist_sync", seldom("dist_gsync")])
@by_turns("where", ("thread",), ("executor",))
def test_a_thread_trains_after_the_last_line(every_mxnet, tmp_path, kv, where):
    """Python waits for such a thread; once the worker ended with 93, "trained alone"."""
    job = run(every_mxnet.python, tmp_path, kv, where).succeed()
    for index in (0, 1):
        log = log_of(tmp_path, "worker-%d" % index)
        assert "DONE [-10. -10. -10. -10.]" in log, job.evidence()
    assert len(job.events("done")) == 2


@pytest.mark.parametrize("kv", ["dist_sync", seldom("dist_ssync")])
def test_an_exit_handler_pulls_the_last_weights(every_mxnet, tmp_path, kv):
    """Once the store was freed before, and the worker died of SIGSEGV."""
    job = run(every_mxnet.python, tmp_path, kv, "atexit").succeed()
    for index in (0, 1):
        log = log_of(tmp_path, "worker-%d" % index)
        assert "SAVED [-" in log and (kv != "dist_sync" or "SAVED [-6. -6. -6. -6.]" in log), log
        assert (tmp_path / ("final-%d.params" % index)).is_file(), job.evidence()


def test_the_exit_status_of_a_script_survives_its_exit_handlers(mxnet_new, tmp_path):
    job = run(mxnet_new.python, tmp_path, "dist_sync", "atexit_exits", workers=1)
    assert job.wait(grace=0)["worker-0"] == 7, job.evidence()
    assert "CALLED" in log_of(tmp_path, "worker-0"), job.evidence()


def test_a_failed_script_does_not_wait_for_its_threads_for_ever(mxnet_new, tmp_path):
    """Such a thread may wait for a process that waits for this one."""
    job = run(mxnet_new.python, tmp_path, "dist_sync", "thread_fails", workers=1)
    assert job.wait(grace=0)["worker-0"] == 7, job.evidence()
    log = log_of(tmp_path, "worker-0")
    assert "NEVER" not in log and "still ran after 10 s; ending" in log, job.evidence()


def test_a_forked_child_keeps_its_exit_status(mxnet_new, tmp_path):
    job = run(mxnet_new.python, tmp_path, "dist_sync", "child_exits", workers=1).succeed()
    assert "CHILD 3" in log_of(tmp_path, "worker-0"), job.evidence()


def test_a_script_without_a_distributed_store_ends_with_its_own_status(every_mxnet, tmp_path):
    job = Job(every_mxnet.python, tmp_path, "no_kvstore.py", "dist_sync", [0])
    assert job.wait(grace=0)["worker-0"] == exit_codes.NO_KVSTORE, job.evidence()
    assert "ended without making a distributed kv-store" in log_of(tmp_path, "worker-0"), (
        job.evidence()
    )
