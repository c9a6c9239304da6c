"""Agents under an engine. A program that behaves as mpirun starts a holder on this machine."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from mxcluster.agent import engine, engine_file
from mxcluster.job import verdict
from mxcluster.model.engine import EngineState, Process
from mxcluster.model.status import Status
from mxcluster.node import processes
from tests.plans import plan_with
from tests.unit.agent.jobs import PACKAGE, checked, in_a_process

pytestmark = pytest.mark.slow

# Open MPI's version, arguments, variables and signals; it ends with its process, and the process
# with it.
MPIRUN = """#!/bin/sh
if [ "$1" = --version ]; then echo "mpirun (Open MPI) 4.1.4"; exit; fi
[ "$1 $3 $4 $5 $6 $7 $8" = "--hostfile -n 1 --map-by slot --bind-to none" ] || exit 66
[ "$(cat "$2")" = "127.0.0.1 slots=1" ] || exit 67
[ "$OMPI_MCA_plm_rsh_agent" = "$(command -v ssh || echo ssh)" ] || exit 69
[ "$LOADED-$OF_THE_LOGIN" = yes- ] || exit 70
export PYTHONPATH=PACKAGE PMIX_SERVER_TMPDIR=${0%/*}/ompi.node1.0/pid.$$
mkdir -p "$PMIX_SERVER_TMPDIR/0"
shift 8
pause=${OMPI_MCA_odls_base_sigkill_timeout:+600}
pause=${pause:-1}
trap 'kill -CONT $child; sleep $pause; kill $child; sleep $pause; kill -9 $child' TERM
"$@" & child=$!
wait $child; wait $child
""".replace("PACKAGE", PACKAGE)


def identity(known):
    """Return the Identity of a process of engine.json."""
    return processes.Identity(known.pid, known.start_time)


@pytest.fixture
def launch(job, tmp_path, monkeypatch):
    """Prepare a job under mpirun and start it; return (exit status, answer)."""
    monkeypatch.setenv("PATH", "%s:%s" % (tmp_path / "bin", os.environ["PATH"]))
    monkeypatch.setenv("OF_THE_LOGIN", "SLURM_JOB_ID and the like")
    (tmp_path / "bin").mkdir()

    def run(*commands, program=MPIRUN):
        path = tmp_path / "bin" / "mpirun"
        path.write_text(program)
        path.chmod(0o755)
        job.plan(*commands)
        options = {
            "launcher": "mpi",
            "mpi_runtime": "openmpi",
            "mpi_pre_execution_command": "export LOADED=yes",
        }
        nodes = {"node1": {"address": "127.0.0.1", "interface": "lo"}}
        whole = plan_with(launcher="mpi", nodes=nodes, options=options)
        with open(job.folder.file("job.json"), "w") as stream:
            json.dump(whole.encode(), stream)
        code, answer = in_a_process("launch", job_dir=job.path)
        if code == 0:
            checked("launch", answer)
            job.remember(job.status())
            state = engine_file.read(job.folder)
            job.seen |= {
                identity(state.watcher),
                identity(state),
            }
        return code, answer

    return run


def test_the_agent_runs_and_everything_ends_with_the_job(job, launch):
    code, answer = launch("sleep 1")
    assert code == 0 and answer["job"] == "job-1", answer
    joined = job.ask("join")
    assert joined["job"] == joined["status"]["job"] == "job-1"
    assert job.end()["reason"] == "done"
    job.nothing_left()
    assert engine_file.read(job.folder).exit_code == 0


def test_a_failed_part_ends_mpirun_with_an_error(job, launch):
    launch("sleep 1; exit 3")
    status = job.end()
    assert status["reason"] == "failed" and status["first_failure"]["exit_code"] == 3
    job.nothing_left()
    assert engine_file.read(job.folder).exit_code > 0
    assert '"error": "the part of the job on node1 has ended: failed"' in job.log("mpirun")


@pytest.mark.parametrize("who", ["program", "watcher"])
def test_the_agent_ends_with_mpirun(job, launch, who, tmp_path):
    launch("sleep 60")
    assert list(tmp_path.glob("bin/ompi.node1.0/pid.*/0"))
    state = engine_file.read(job.folder)
    known = state if who == "program" else state.watcher
    assert processes.send(identity(known), signal.SIGKILL)
    status = job.end()
    assert status["reason"] == "engine"
    if who == "program":
        failure = status["first_failure"]
        assert (failure["kind"], failure["name"]) == ("engine", "agent")
        assert failure["reason"].startswith("mpirun was killed by signal 9 (SIGKILL)")
    job.nothing_left()
    job.until(lambda: not list(tmp_path.glob("bin/ompi.*")))  # a killed mpirun leaves this folder


def holder(job):
    """Return the Identity of the job's holder."""
    watcher = identity(engine_file.read(job.folder).watcher)
    (found,) = [
        who
        for who in processes.family([watcher])
        if processes.command_name(who.pid).startswith("python")
        and b"\0hold\0" in processes.read(who.pid, "cmdline")
    ]
    return found


def terminate(job):
    """Send SIGTERM to mpirun, wait for the end of the job, and return the job's status."""
    state = engine_file.read(job.folder)
    program = identity(state)
    assert processes.send(program, signal.SIGTERM)
    status = job.end()
    assert status["reason"] == "engine" and status["first_failure"] is None
    return status


def test_the_agent_ends_soon_after_sigterm_to_mpirun(job, launch):
    """mpirun sends SIGTERM to the holder after 1 s: a longer pause is 600 s in this test."""
    launch("sleep 600")
    told = verdict.first_failure([Status.decode(terminate(job))]).reason
    assert "has ended the agent, and no part of the job had failed: mpirun got SIGTERM" in told
    job.nothing_left()


def test_a_holder_names_the_signal_of_mpirun(job, launch):
    launch("sleep 600")
    assert processes.send(holder(job), signal.SIGTERM)
    job.nothing_left()
    assert "the part of the job on node1 has ended: mpirun has sent SIGTERM." in job.log("mpirun")


def test_mpiruns_folder_is_removed_if_mpirun_kills_the_holder(job, launch, tmp_path):
    """mpirun sends SIGKILL to the holder before the agent has ended its stubborn process."""
    launch("trap '' TERM; echo ready; while :; do sleep 0.1; done")
    job.until(lambda: "ready" in job.log("worker-0"))
    terminate(job)
    job.nothing_left()
    job.until(lambda: not list(tmp_path.glob("bin/ompi.*")))


def test_an_agent_does_not_wait_for_the_exit_code_of_a_running_mpirun(job):
    me = processes.identity(os.getpid())._asdict()
    state = EngineState(program="mpirun", watcher=Process(**me), **me)
    engine_file.write(job.folder, state)
    began = time.monotonic()
    assert engine_file.why_killed(job.folder, 600.0) is None
    assert time.monotonic() - began < 60


def test_the_agent_ends_in_order_if_its_holder_is_killed(job, launch):
    launch("trap 'echo orderly; exit' TERM; echo ready; while :; do sleep 0.1; done")
    job.until(lambda: "ready" in job.log("worker-0"))
    assert processes.send(holder(job), signal.SIGKILL)
    status = job.end()
    assert status["reason"] == "engine" and status["first_failure"] is None
    assert "orderly" in job.log("worker-0")
    job.nothing_left()


def test_a_stop_ends_the_engine(job, launch):
    launch("sleep 60")
    assert job.ask("stop")["status"]["reason"] == "stopped"
    job.nothing_left()


def test_an_engine_that_starts_no_agent_is_reported(job, launch):
    broken = MPIRUN.replace('"$@" & child=$!', "echo ssh: no route to host >&2; exit 1")
    code, answer = launch("sleep 60", program=broken)
    assert code == 1
    assert answer["error"].startswith(
        "mpirun has not started the agent on node1: it exited with status 1; its last output:"
    )
    assert "no route to host" in answer["error"]
    assert job.status() is None


def test_starts_are_found_in_a_log_with_mixed_lines(job):
    """On a busy machine, Open MPI writes the lines of two nodes as the first line of this log."""
    with open(job.folder.file(engine_file.LOG + ".log"), "w") as stream:
        stream.write('{"started": "node1"}{"started": "node3"}\n\n{no: {"started": "node2"}, "e')
    assert engine.started(job.folder) == {"node1", "node2", "node3"}


def test_a_signal_that_ends_the_engine_at_the_start_is_named(job, launch):
    broken = MPIRUN.replace('"$@" & child=$!', "kill -9 $$")
    code, answer = launch("sleep 60", program=broken)
    assert code == 1 and answer["error"].startswith(
        "mpirun has not started the agent on node1: it was killed by signal 9 (SIGKILL); its last"
    )


def test_mpirun_that_ends_without_a_message_at_the_start_is_reported(job, launch):
    """After SIGTERM, Open MPI ends with status 1 and prints nothing."""
    broken = MPIRUN.replace('"$@" & child=$!', "exit 1")
    code, answer = launch("sleep 60", program=broken)
    assert code == 1 and answer["error"].startswith(
        "mpirun has not started the agent on node1: it exited with status 1 without a message, as "
        "after SIGTERM to mpirun; its last output:"
    )


def test_an_agent_that_cannot_start_says_why(job, launch):
    with open(job.folder.file("secret_env.json"), "w") as stream:
        stream.write("not JSON")
    code, answer = launch("sleep 60")
    path = job.folder.file("secret_env.json")
    assert code == 1 and answer["error"].startswith(
        "mpirun has not started the agent on node1: %s is damaged: run train.yml again" % path
    )


def test_a_lingering_engine_is_ended(job, launch):
    """Open MPI waits long for a lost node. The job has failed on this node."""
    waits = MPIRUN.replace("wait $child; wait $child", "sleep 300")
    script = "import sys; from mxcluster.agent import engine; engine.LINGERS = 0.5; "
    script += "from mxcluster.agent.folder import JobFolder; engine.watch(JobFolder(sys.argv[1]))"
    launch("sleep 60")  # writes the files of the job
    job.ask("stop")
    job.nothing_left()
    (program,) = [engine_file.read(job.folder).program]
    with open(program, "w") as stream:
        stream.write(waits)
    began = time.monotonic()
    subprocess.run(
        [sys.executable, "-c", script, job.path],
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env=dict(os.environ, PYTHONPATH=PACKAGE),
        timeout=60,
        check=True,
    )
    assert time.monotonic() - began < 30
    assert engine_file.read(job.folder).exit_code != 0


def test_a_lingering_daemon_of_the_engine_is_killed(job):
    """Open MPI's daemon may stay on a node after mpirun has lost another node."""
    job.plan("exit 3")
    hold = "import sys; from mxcluster.agent import engine; engine.LINGERS = 0.5; "
    hold += "from mxcluster.agent.folder import JobFolder; engine.hold(JobFolder(sys.argv[1]))"
    stays = "import subprocess, sys; subprocess.run([sys.executable, '-c', *sys.argv[1:]]); "
    stays += "sys.stdin.read()"
    daemon = subprocess.Popen(
        [sys.executable, "-c", stays, hold, job.path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=dict(os.environ, PYTHONPATH=PACKAGE),
    )
    try:
        job.until(lambda: daemon.poll() is not None)
    finally:
        daemon.kill()
    said = daemon.communicate()[0].decode()
    assert "the part of the job on node1 has ended: failed" in said, said
    assert daemon.returncode == -signal.SIGKILL, said
    job.remember(job.status())
    job.nothing_left()
