"""Finding the MPI engine of a node, with small programs in place of its mpirun."""

import pytest

from mxcluster.model.engine import MpiEngine
from mxcluster.model.node_requests import MpiRequest
from mxcluster.node import mpi_installation

TEXTS = {
    "openmpi": "mpirun (Open MPI) 4.1.4",
    "mpich": "HYDRA build details:\n    Version:   4.0.2",
}


@pytest.fixture
def programs(tmp_path):
    """Return a function that makes programs which print version texts, and loads their folder."""

    def make(**engines):
        for name, engine in engines.items():
            path = tmp_path / name.replace("_", ".")
            path.write_text("#!/bin/sh\nprintf '%s\\n'\n" % TEXTS[engine].replace("\n", "\\n"))
            path.chmod(0o755)
        return "export PATH=%s" % tmp_path

    return make


def look(pre_execution, runtime="", infiniband=False):
    return mpi_installation.look(
        MpiRequest(pre_execution=pre_execution, runtime=runtime, infiniband=infiniband)
    )


def test_engine_of_mpirun_is_found_after_the_pre_execution_command(programs):
    found = MpiEngine(engine="openmpi", version="4.1.4")
    assert look(programs(mpirun="openmpi")) == ([], found, None)


def test_wanted_engine_is_found_under_its_other_name(programs, tmp_path):
    pre_execution = programs(mpirun="openmpi", mpirun_mpich="mpich")
    found = mpi_installation.find(pre_execution, "mpich").installed
    assert found == ("mpich", "4.0.2", str(tmp_path / "mpirun.mpich"))


def test_missing_engine_is_refused_with_its_package(programs, tmp_path):
    problem = look(programs(mpirun="openmpi"), "mpich").problems[0]
    its = "%s is Open MPI 4.1.4" % (tmp_path / "mpirun")
    assert "MPICH is not installed on this node (%s)" % its in problem
    assert "install the package mpich, or load the engine in mpi_pre_execution_command" in problem


def test_an_image_without_the_engine_or_bash_is_named(programs, monkeypatch, tmp_path):
    request = MpiRequest(pre_execution=programs(), runtime="mpich", where="in the image cntk")
    (problem,) = mpi_installation.look(request).problems
    assert problem.startswith("MPICH is not installed in the image cntk")
    monkeypatch.setattr(mpi_installation, "SHELL", str(tmp_path / "bash"))
    (problem,) = mpi_installation.look(request.replaced(pre_execution="")).problems
    assert "cannot run `%s` on this node" % (tmp_path / "bash") in problem


def test_words_of_a_broken_pre_execution_command_are_shown(programs):
    problem = look("source /absent/vars.sh; " + programs()).problems[0]
    assert "an MPI engine is not installed on this node" in problem
    assert "/absent/vars.sh: No such file or directory" in problem


def test_node_without_infiniband_is_refused(programs, monkeypatch, tmp_path):
    monkeypatch.setattr(mpi_installation, "INFINIBAND", str(tmp_path / "absent"))
    problems = look(programs(mpirun="openmpi"), infiniband=True).problems
    assert len(problems) == 1 and "mpi_infiniband=true, but the node has no" in problems[0]
