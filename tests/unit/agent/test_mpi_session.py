"""The temporary folder of mpirun in a job of mpi.yml without a systemd unit."""

import os
import pathlib
import secrets
import shutil
import signal
import sys

import pytest

from mxcluster.node import mpi_engines, processes
from tests.unit.agent.jobs import PACKAGE

pytestmark = pytest.mark.slow

# As Open MPI, it makes a folder for its files, which it leaves when it is killed.
MPIRUN = """#!/bin/sh
case "$1" in --version) echo "mpirun (Open MPI) 4.1.4"; exit;; esac
mkdir -p "${OMPI_MCA_orte_tmpdir_base:-%s}/ompi.node1.0/pid.$$/0"
echo "runs as $$"
exec sleep 60
"""


@pytest.fixture
def folder(job, tmp_path):
    """Start a job of mpi.yml on this node, wait for mpirun, and yield the folder for its files."""
    binary = tmp_path / "bin"
    binary.mkdir()
    (binary / "mpirun").write_text(MPIRUN % tmp_path)
    (binary / "mpirun").chmod(0o755)
    token = secrets.token_hex(20)  # all runs share /tmp
    with open(os.open(job.folder.file("token"), os.O_WRONLY | os.O_CREAT, 0o600), "w") as stream:
        stream.write(token)
    spec = {
        "command": "true",
        "runtime": "",
        "pre_execution": "export PATH=%s:$PATH" % binary,
        "coordination": "",
        "infiniband": None,
        "network": "",
        "hosts": [{"host": "node1", "name": "worker-0", "interface": "lo", "processes": 1}],
    }
    spec["hosts"][0].update(address="127.0.0.1", port=None)
    env = {"MXCLUSTER_JOB": "job-1", "MXCLUSTER_JOB_DIR": job.path, "PYTHONPATH": PACKAGE}
    program = [sys.executable, "-u", "-m", "mxcluster.node.mpi_job", "run"]
    job.start(program, env=env, heartbeat={"timeout": 20}, mpi=spec)
    job.until(lambda: "runs as" in job.log("worker-0"))
    made = pathlib.Path(mpi_engines.session_folder(token.encode()))
    yield made
    shutil.rmtree(str(made), ignore_errors=True)


def mpirun(job):
    """Return the Identity of mpirun."""
    return processes.identity(int(job.log("worker-0").split("runs as ")[1].split()[0]))


@pytest.mark.parametrize("who", ["mpirun", "agent"])
def test_a_killed_mpirun_leaves_no_folder(job, folder, tmp_path, who):
    assert list(folder.glob("ompi.node1.0/pid.*/0")) and not list(tmp_path.glob("ompi.*"))
    assert folder.stat().st_mode & 0o777 == 0o700
    agent, known = job.agent(job.status()), mpirun(job)
    assert processes.send(agent if who == "agent" else known, signal.SIGKILL)
    job.until(lambda: not processes.alive(known))
    if who == "agent":  # the controller's next command ends the job
        job.until(lambda: not processes.alive(agent))
        job.ask("stop")
    assert job.end()["reason"] == "failed"
    assert not folder.exists()


def test_a_folder_of_another_user_or_a_link_stays(job, folder, tmp_path, monkeypatch):
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    job.folder.forget_session()
    assert folder.exists()
    monkeypatch.undo()
    away = tmp_path / "away"
    folder.rename(away)
    folder.symlink_to(away)
    job.folder.forget_session()
    assert list(away.glob("ompi.node1.0/pid.*/0"))
    folder.unlink()
    away.rename(folder)
