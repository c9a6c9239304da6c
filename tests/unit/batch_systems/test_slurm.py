"""Slurm: what is refused before anything is submitted, and the states of jobs."""

import pytest

from mxcluster.batch_systems import Request, problem, slurm
from mxcluster.errors import MxclusterError
from tests import batch_systems

WANTED = Request(3, queue="", environment="", time="", gres="", options=[])


@pytest.fixture
def state(tmp_path, monkeypatch):
    """Put a stand-in of Slurm with the nodes a, b and c on the PATH; return its state folder."""
    batch_systems.install("slurm", tmp_path / "bin", tmp_path / "slurm")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    (tmp_path / "slurm" / "hosts").write_text("a b c")
    return tmp_path / "slurm"


def submit(tmp_path, **wanted):
    return slurm.submit(str(tmp_path), "job-1", WANTED._replace(**wanted), "#!/bin/sh\nsleep 30\n")


def test_a_job_that_fits_has_no_problem(state):
    assert problem("slurm", WANTED) == ""


@pytest.mark.parametrize(
    "wanted,words",
    [
        ({"queue": "mainn"}, "queue=mainn: Slurm has no such partition (did you mean 'main'?)"),
        ({"nodes": 4}, "num_nodes=4: the partition main has only 3 nodes"),
        ({"nodes": 2, "queue": "small"}, "num_nodes=2: the partition small has only 1 node"),
    ],
)
def test_what_slurm_cannot_give_is_refused(state, wanted, words):
    assert problem("slurm", WANTED._replace(**wanted)).startswith(words)


def test_a_host_without_slurm_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    words = "launcher=slurm: this host has no sinfo and sbatch and scontrol and scancel: install"
    assert problem("slurm", WANTED).startswith(words)


def test_slurm_that_does_not_answer_is_refused(state, tmp_path):
    (tmp_path / "bin" / "sinfo").write_text("#!/bin/sh\necho down >&2; exit 1\n")
    found = problem("slurm", WANTED)
    assert "Slurm does not answer" in found and found.endswith("down")


def test_resources_become_arguments_of_sbatch(state, tmp_path):
    (state / "queue").write_text("Resources")
    number = submit(tmp_path, queue="main", time="1:00:30", gres="gpu:2", options=["--mem=8G"])
    argv = (state / (number + ".argv")).read_text().split("\n")
    assert {"--nodes=3", "--ntasks-per-node=1", "--partition=main", "--gres=gpu:2"} < set(argv)
    assert "--time=61" in argv and argv[0] == "--mem=8G", "mxcluster's arguments come last"


def test_an_answer_without_a_number_is_a_refusal(state, tmp_path):
    (tmp_path / "bin" / "sbatch").write_text("#!/bin/sh\necho to start at noon >&2\n")
    with pytest.raises(MxclusterError, match="Slurm refuses the job: to start at noon"):
        submit(tmp_path)


def test_a_refusal_of_sbatch_is_shown(state, tmp_path):
    (state / "refuse").write_text("Invalid account")
    with pytest.raises(MxclusterError, match="Slurm refuses the job: .*Invalid account"):
        submit(tmp_path)


@pytest.mark.slow
def test_states_of_a_job(state, tmp_path):
    (state / "queue").write_text("Resources")
    waiting = submit(tmp_path)
    assert slurm.state(waiting) == ("waits", "Resources", False)
    (state / "queue").unlink()
    running = submit(tmp_path)
    assert slurm.state(running) == ("runs", "", False)
    slurm.cancel(running)
    assert slurm.state(running).phase == "ended" and "scancel" in slurm.state(running).why
    slurm.cancel(waiting)
    (state / (running + ".state")).write_text("COMPLETED")
    assert slurm.state(running) == ("ended", "", True)
    assert slurm.state("99") == ("ended", "", False), "Slurm has forgotten the job"
    (tmp_path / "bin" / "scontrol").write_text("#!/bin/sh\necho no answer >&2; exit 1\n")
    assert slurm.state(running) == ("unknown", "", False)


def test_a_completing_job_has_not_ended(state, tmp_path):
    """Slurm tells whether it was cancelled only when all of its processes have ended."""
    (tmp_path / "bin" / "scontrol").write_text(
        "#!/bin/sh\necho JobId=7 JobState=COMPLETING Reason=None\n"
    )
    assert slurm.state("7") == ("ends", "", False)


@pytest.mark.parametrize(
    "fields,phase,words,again",
    [
        ("NODE_FAIL Reason=NodeDown ExitCode=0:0", "ended", "NODE_FAIL: a node", True),
        ("PREEMPTED Reason=None ExitCode=0:0", "ended", "PREEMPTED: another job", True),
        ("FAILED Reason=JobLaunchFailure ExitCode=0:0", "ended", "JobLaunchFailure: a no", True),
        ("PENDING Reason=launch_failed_requeued_held", "stuck", "a node could not start", True),
        ("FAILED Reason=RaisedSignal:9(Killed) ExitCode=0:9", "ended", "signal 9 (SIGKILL)", True),
        ("FAILED Reason=RaisedSignal:11 ExitCode=0:11", "ended", "signal 11 (SIGSEGV)", False),
        ("FAILED Reason=NonZeroExitCode ExitCode=1:0", "ended", "", True),
        ("CANCELLED Reason=None ExitCode=0:15", "ended", "CANCELLED: a user", False),
        ("TIMEOUT Reason=TimeLimit ExitCode=0:15", "ended", "TIMEOUT: its time limit", False),
        ("SUSPENDED Reason=None", "suspended", "", False),
    ],
)
def test_slurm_tells_whether_another_attempt_may_succeed(
    state, tmp_path, fields, phase, words, again
):
    program = "#!/bin/sh\necho 'JobId=7 JobState=%s'\n" % fields
    (tmp_path / "bin" / "scontrol").write_text(program)
    found = slurm.state("7")
    assert (found.phase, found.again) == (phase, again) and words in found.why, found
    assert bool(words) == bool(found.why)


def test_the_nodes_of_a_job(state):
    assert slurm.hosts({"SLURM_JOB_NODELIST": "a,b"}) == ["a", "b"]
    assert slurm.identity({"SLURM_JOB_ID": "7"}) == "7"
    assert slurm.on_node("b", ["prog"])[-1] == "prog"
    assert "--nodelist=b" in slurm.on_node("b", ["prog"])
