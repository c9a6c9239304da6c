"""mpi.yml runs an MPI program with MPICH on four nodes of this machine, and plans the example."""

import json
import pathlib
import subprocess
import sys

import pytest

PROGRAM = pathlib.Path(__file__).parent / "scripts" / "mpi_sum.py"
EXAMPLE = "@examples/cntk-resnet20-cifar10.yml"
MPICH = "5.0.2"


@pytest.fixture(scope="module")
def mpich(tmp_path_factory):
    """Return the commands that load MPICH, installed from its wheel."""
    folder = tmp_path_factory.mktemp("mpich")
    subprocess.check_call([sys.executable, "-m", "venv", "--without-pip", str(folder)])
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python")]
    subprocess.check_call([*pip, "install", "--quiet", "--no-deps", "mpich==" + MPICH])
    return "export PATH={0}/bin:$PATH LD_LIBRARY_PATH={0}/lib".format(folder)


def run(project, **options):
    """Run mpi.yml; return (Result, run folder, verdict or {})."""
    options.setdefault("job_id", "mpi-%d" % (len(project.jobs()) + 1))
    result = project.run("mpi.yml", "-e", json.dumps(options))
    folder = project.path / "runs" / options["job_id"]
    path = folder / "verdict.json"
    return result, folder, json.loads(path.read_text()) if path.exists() else {}


def test_mpi_program_gets_its_files_and_returns_its_output(project, mpich):
    result, folder, verdict = run(
        project,
        mpi_command="./solve libmpi.so.12 && echo $WORD > word",
        mpi_pre_execution_command=mpich,
        mpi_coordination_command="(echo '#!/usr/bin/env python3'; cat mpi_sum.py) > solve; "
        "chmod 700 solve",
        mpi_env={"WORD": "hello"},
        mpi_resource_files=[str(PROGRAM)],
    )
    assert result.code == 0 and verdict["ok"] and verdict["kv"] == "mpi", result.output
    assert "MPICH %s" % MPICH in (folder / "nodes" / "node1" / "mpirun.log").read_text()
    for rank, process in enumerate(("mpirun", "node-1", "node-2", "node-3")):
        host = "node%d" % (rank + 1)
        files = folder / "nodes" / host / "files" / process
        text = (files / ("rank-%d.txt" % rank)).read_text()
        assert text == "rank %d of 4 on %s: sum 10\n" % (rank, host)
        assert (files / "word").read_text() == "hello\n"
    assert "./solve libmpi.so.12" in (folder / "report.html").read_text()
    project.wait_for_nothing_left()


def test_failed_program_is_named_and_its_output_stays_if_told_so(project, mpich):
    result, folder, verdict = run(
        project,
        mpi_command='echo lost > out; [ "$MXCLUSTER_HOST" != node2 ] || { echo no data; exit 3; }',
        mpi_pre_execution_command=mpich,
        mpi_num_instances=2,
        mpi_output="success",
    )
    assert result.code and not verdict["ok"], result.output
    failure = verdict["first_failure"]
    assert (failure["name"], failure["host"], failure["exit_code"]) == ("mpirun", "node1", 3)
    assert "no data" in "\n".join(failure["log"])
    assert not list((folder / "nodes").glob("*/files/*/out"))
    assert any("mpi_output=success" in warning for warning in verdict["warnings"])
    project.wait_for_nothing_left()


def test_example_has_the_parameters_of_the_recipe(project):
    planned = project.run(
        "mpi.yml", "-e", EXAMPLE, "-e", "plan_only=true", "-e", "mpi_processes_per_node=4"
    )
    assert planned.code == 0, planned.output
    assert "MPI program in 16 processes on 4 nodes: python -u /cntk/Examples" in planned.output
    assert "engine intelmpi" in planned.output
    refused = project.run("mpi.yml", "-e", EXAMPLE, "-e", "plan_only=true")
    for host in ("node1", "node4"):
        assert "%s: mpi_processes_per_node=gpus, but the job has no GPU" % host in refused.output
