"""mxcluster names late variables and server profiles, which have no effect in a job."""

from tests.training.loopback import Job, log_of


def test_a_variable_that_the_script_sets_too_late_is_named(every_mxnet, tmp_path):
    job = Job(
        every_mxnet.python, tmp_path, "environ.py", "dist_sync", (0, 0), arguments=["dist_sync"]
    ).succeed()
    words = "the script sets OMP_NUM_THREADS=3, but MXNet was loaded before the script"
    assert words in log_of(tmp_path, "worker-0"), job.evidence()
    notes = [event for event in job.events("note") if words in event["text"]]
    assert sorted(event["index"] for event in notes) == [0, 1], notes


def test_a_profile_of_the_servers_is_refused(mxnet_new, tmp_path):
    job = Job(
        mxnet_new.python, tmp_path, "server_profile.py", "dist_sync", (0,), arguments=["dist_sync"]
    ).succeed()
    log = log_of(tmp_path, "worker-0")
    assert log.count("ACCEPTED") == 2, job.evidence()
    for name in ("set_config", "set_state", "set_state", "dump", "pause", "resume"):
        assert "REFUSED mx.profiler.%s(profile_process='server'): the servers" % name in log, log
