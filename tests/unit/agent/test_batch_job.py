"""A submitted job, as the submit host sees it: queue, silence, the engine's end, stop."""

import json
import os
import time

import pytest

from mxcluster import batch_systems as real_systems
from mxcluster.agent import batch_job, claims
from mxcluster.agent.folder import BEAT, ORDER, JobFolder
from mxcluster.errors import BadInput, MxclusterError
from mxcluster.job import listing, live_line
from mxcluster.model.answers import JobList, JobState
from tests import batch_systems
from tests.plans import part_json
from tests.unit.agent.jobs import ask, checked

TOKEN = "t" * 64


@pytest.fixture
def state(tmp_path, monkeypatch):
    """Put a stand-in of Slurm on the PATH; return its state folder."""
    batch_systems.install("slurm", tmp_path / "bin", tmp_path / "slurm")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    monkeypatch.setattr(batch_job, "VALID", 0.0)
    (tmp_path / "slurm" / "hosts").write_text("a b")
    return tmp_path / "slurm"


@pytest.fixture
def folder(tmp_path):
    return JobFolder(str(tmp_path / "jobs" / "job-1"))


def plan(**more):
    shared = {"python": "/p", "job_dir": "/jobs", "data_dir": "/data", "target": "cpu"}
    batch = {"launcher": "slurm", "nodes": 2, "record": shared}
    return part_json(host="login", lease=60, launcher="slurm", batch=batch, **more)


def submit(folder, **more):
    """Ask for the start of the job in `folder`; return the answer."""
    given = {"plan": plan(), "secret_env": {"PASSWORD": "x"}, "token": TOKEN}
    return ask("start", job_dir=folder.path, **dict(given, **more))


def waited(folder, seconds=0):
    """Return the status of the job in `folder` as the controller checks it."""
    return checked("wait", ask("wait", job_dir=folder.path, seconds=seconds))["status"]


def started(folder, monkeypatch, script="#!/bin/sh\nsleep 30\n"):
    """Submit a job whose head is the shell script `script`."""
    monkeypatch.setattr(batch_job, "shell_script", lambda _: script)
    submit(folder, script="c2NyaXB0")


def queued(state, folder):
    """Submit a job that waits in the queue."""
    (state / "queue").write_text("Resources")
    return submit(folder)


def beat(folder, seconds_ago=0.0):
    """Change the head's file as if the head had done so some time ago."""
    with open(folder.file(BEAT), "w"):
        pass
    when = time.time() - seconds_ago
    os.utime(folder.file(BEAT), (when, when))


@pytest.mark.slow
def test_a_waiting_job_tells_the_reason_of_the_queue(state, folder):
    checked("start", queued(state, folder))
    found = checked("wait", ask("wait", job_dir=folder.path, seconds=0))
    assert found["status"]["state"] == "running"
    line = live_line.line({"login": JobState.decode(found)})
    assert line.startswith("waiting in the queue of slurm for ") and "Resources" in line
    for name in ("token", "secret_env.json"):
        assert os.stat(folder.file(name)).st_mode & 0o777 == 0o600
    assert "PASSWORD" not in open(folder.file("plan.json")).read()
    jobs = ask("jobs", jobs_dir=os.path.dirname(folder.path), check=True)
    [job] = listing.merge({"login": JobList.decode(jobs)})
    assert job.state == "running" and job.nodes == {"login": "running"}


def test_a_second_start_of_the_same_job_does_nothing(state, folder, monkeypatch):
    started(folder, monkeypatch)
    started(folder, monkeypatch)
    assert (state / "last").read_text() == "7"
    with pytest.raises(BadInput, match="another job"):
        submit(folder, token="u" * 64)


def test_a_refused_job_leaves_nothing(state, folder):
    (state / "refuse").write_text("Invalid account")
    with pytest.raises(MxclusterError, match="Invalid account"):
        submit(folder)
    assert not os.path.exists(folder.path)


def test_a_living_head_is_believed_without_asking_slurm(state, folder, monkeypatch):
    started(folder, monkeypatch)
    beat(folder)
    (state.parent / "bin" / "scontrol").unlink()
    assert waited(folder)["batch"]["phase"] == "waits"  # as written


def test_a_poll_leaves_no_file(state, folder, monkeypatch):
    """The job may end, and its folder be tidied, while a poll reads the file system's clock."""
    started(folder, monkeypatch)
    beat(folder)
    before = sorted(os.listdir(folder.path))
    assert 0 <= batch_job.silence(folder) < 60
    assert sorted(os.listdir(folder.path)) == before


def test_a_job_without_a_shared_folder_says_so(state, folder, monkeypatch):
    """The script ends at once, and nothing has been written to the job folder."""
    started(folder, monkeypatch, "#!/bin/sh\nexit 1\n")
    status = waited(folder, 60)
    assert "check that all nodes share this folder" in status["first_failure"]["reason"]


def test_a_job_that_cannot_start_ends(state, folder, monkeypatch):
    """Grid Engine keeps such a job in its queue for ever."""
    queued(state, folder)
    stuck = real_systems.State("stuck", "no such folder")
    monkeypatch.setattr(batch_job, "answer", lambda *_, **__: stuck)
    status = waited(folder)
    reason = status["first_failure"]["reason"]
    assert (status["state"], status["reason"]) == ("ended", "failed")
    assert reason.startswith("Slurm could not start the job 7: no such folder. Check that"), reason
    assert (state / "7.state").read_text() == "CANCELLED"


@pytest.mark.slow
@pytest.mark.parametrize(
    "slurm,words,kind",
    [
        ("NODE_FAIL", "Slurm has ended the job 7: NODE_FAIL: a node of the job failed", "node"),
        ("PENDING", "Slurm has put the running job 7 back into the queue", "node"),
        ("RUNNING", "the first node of the job 7 has not written to ", "node"),
        ("SUSPENDED", "Slurm has suspended the job 7 for ", "node"),
        ("FAILED", "of the job 7 got signal SIGTERM, and Slurm gives no reason: the node", "node"),
    ],
)
def test_the_end_says_whether_another_attempt_may_succeed(
    state, folder, monkeypatch, slurm, words, kind
):
    started(folder, monkeypatch)
    known = folder.status()
    batch = known.batch.replaced(signal="SIGTERM")  # the head writes this
    folder.write_status(known.replaced(batch=batch))
    beat(folder, batch_job.LOST + 5)
    (state / "7.state").write_text(slurm)
    status = waited(folder)
    failure = status["first_failure"]
    assert words in failure["reason"] and failure["kind"] == kind, failure


@pytest.mark.slow
def test_a_job_that_is_back_in_the_queue_ends_without_the_wait_for_a_lost_node(
    state, folder, monkeypatch
):
    """The batch system has answered, so the silence of the head is no fault of the network."""
    started(folder, monkeypatch)
    (state / "7.state").write_text("PENDING")
    beat(folder, batch_job.SILENT - 5)
    assert waited(folder)["state"] == "running"
    beat(folder, batch_job.SILENT + 5)
    status = waited(folder)
    assert status["state"] == "ended" and batch_job.SILENT + 5 < batch_job.LOST
    assert "back into the queue" in status["first_failure"]["reason"]
    assert (state / "7.state").read_text() == "CANCELLED"


def test_a_head_that_ends_by_itself_is_no_deleted_job(state, folder, monkeypatch):
    """Slurm knows that neither a user nor a limit has ended the job."""
    started(folder, monkeypatch)
    beat(folder, batch_job.SILENT + 5)
    (state / "7.state").write_text("FAILED")
    failure = waited(folder)["first_failure"]
    assert failure["kind"] == "batch" and failure["reason"] == (
        "the program of mxcluster on the first node of the job 7 ended without its last status: "
        "read the end of batch.log"
    )


def test_an_ending_job_has_time_for_its_reason(state, folder, monkeypatch):
    """The accounting of Grid Engine is late, and Slurm waits for the last process of the job."""
    started(folder, monkeypatch)
    beat(folder, batch_job.SILENT + 5)
    for phase in ("ended", "ends"):
        found = real_systems.State(phase)
        monkeypatch.setattr(batch_job, "answer", lambda *_, found=found, **__: found)
        assert waited(folder)["state"] == "running"
    beat(folder, batch_job.ENDING + 5)
    failure = waited(folder)["first_failure"]
    assert failure["kind"] == "batch", "a user may have deleted it"


@pytest.mark.slow
def test_a_lost_first_node_ends_the_job_and_cancels_it(state, folder, monkeypatch):
    started(folder, monkeypatch)
    beat(folder, batch_job.LOST - 10)
    assert waited(folder)["state"] == "running"
    beat(folder, batch_job.LOST + 10)
    status = waited(folder)
    assert "the node or its file system is gone" in status["first_failure"]["reason"]
    assert (state / "7.state").read_text() == "CANCELLED"


@pytest.mark.slow
def test_stop_cancels_a_waiting_job(state, folder):
    queued(state, folder)
    answer = checked("stop", ask("stop", job_dir=folder.path))
    assert answer["ran"] and answer["left"] == [] and answer["status"]["reason"] == "stopped"
    assert (state / "7.state").read_text() == "CANCELLED"
    assert not ask("stop", job_dir=folder.path)["ran"]


@pytest.mark.slow
def test_stop_gives_the_head_time_to_end_the_agents(state, folder, monkeypatch):
    started(folder, monkeypatch)
    beat(folder)
    sleep = time.sleep

    def obey(_):
        if not folder.status().has_ended:
            order = open(folder.file(ORDER)).read()
            folder.write_status(folder.status().ended_by(order, time.time()))
        sleep(0.05)

    monkeypatch.setattr(batch_job.time, "sleep", obey)
    assert ask("stop", job_dir=folder.path)["status"]["reason"] == "stopped"
    assert (state / "7.state").read_text() == "CANCELLED"
    assert not os.path.exists(folder.file(ORDER)), "the head may have tidied before the order"


def mute(state):
    """Replace scontrol of the stand-in, so that Slurm does not answer."""
    path = state.parent / "bin" / "scontrol"
    path.write_text("#!/bin/sh\necho 'Unable to contact slurm controller' >&2\nexit 1\n")


def test_stop_reports_a_batch_system_that_does_not_answer(state, folder, monkeypatch):
    queued(state, folder)
    monkeypatch.setattr(batch_job, "ENDS", 0.0)
    mute(state)
    with pytest.raises(MxclusterError, match="does not answer, so it may .* 7: run `scancel 7`"):
        ask("stop", job_dir=folder.path)
    assert folder.status().state == "running" and os.path.exists(folder.file("token"))


def test_stop_reports_a_job_that_the_batch_system_keeps(state, folder, monkeypatch):
    queued(state, folder)
    monkeypatch.setattr(batch_job, "ENDS", 0.0)
    (state.parent / "bin" / "scancel").write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(MxclusterError, match="Slurm still has the job 7: run `scancel 7`"):
        ask("stop", job_dir=folder.path)
    assert folder.status().state == "running" and os.path.exists(folder.file("token"))


def test_a_batch_system_without_an_answer_is_a_leftover(state, folder, monkeypatch):
    started(folder, monkeypatch)
    folder.write_status(folder.status().ended_by("done", 1.0))
    monkeypatch.setattr(batch_job, "LEAVES", 0.0)
    mute(state)
    assert ask("stop", job_dir=folder.path)["left"] == [
        "Slurm does not answer, so it may still have the job 7: run `scancel 7`"
    ]


@pytest.mark.slow
def test_status_yml_closes_a_job_that_was_cancelled_in_the_queue(state, folder):
    """No head has run, so the token and the secrets are still on the shared disk."""
    queued(state, folder)
    root = os.path.dirname(folder.path)
    assert ask("jobs", jobs_dir=root)["cleared"] == []
    assert os.path.exists(folder.file("token"))
    os.system("scancel 7")
    told = ask("jobs", jobs_dir=root)
    assert told["cleared"] == ["job-1"] and told["jobs"][0]["state"] == "ended"
    known = folder.status()
    assert known.has_ended and "CANCELLED" in known.first_failure.reason
    assert not {"token", "secret_env.json"} & set(os.listdir(folder.path))


def test_status_yml_cancels_no_silent_job(state, folder, monkeypatch):
    started(folder, monkeypatch)
    beat(folder, batch_job.LOST + 10)
    told = ask("jobs", jobs_dir=os.path.dirname(folder.path))
    assert told["cleared"] == [] and os.path.exists(folder.file("token"))
    assert folder.status().state == "running"
    assert not (state / "7.state").exists()


def test_another_job_leaves_the_files_of_a_submitted_one(state, folder, monkeypatch):
    started(folder, monkeypatch)
    assert claims.clear(os.path.dirname(folder.path)) == []
    assert os.path.exists(folder.file("token"))


def test_files_and_checkpoints_of_all_nodes_are_found(state, folder, monkeypatch):
    started(folder, monkeypatch)
    for host, name in (("a", "worker-0"), ("b", "worker-1")):
        part = JobFolder(folder.file("nodes/%s/job-1" % host))
        part.make()
        for log in (name, "agent"):
            with open(part.file(log + ".log"), "w") as stream:
                stream.write("%s on %s\n" % (log, host))
        with open(part.file("plan.json"), "w") as stream:
            json.dump(plan(), stream)
    assert [os.path.basename(os.path.dirname(part.path)) for part in folder.parts()] == ["a", "b"]
    assert ask("logs", job_dir=folder.path)["logs"]["b-worker-1"] == ["worker-1 on b"]
    output = folder.file("out.tar")
    beat(folder, 10)
    (state / "7.state").write_text("COMPLETED")
    answer = checked("collect", ask("collect", job_dir=folder.path, output=output))
    assert answer["problem"] is None and answer["files"] >= 6
