"""Finding an MPI engine, and its command line."""

import os

import pytest

from mxcluster.errors import BadInput
from mxcluster.node import mpi

SAYS = {
    "openmpi": "mpirun (Open MPI) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/",
    "mpich": "HYDRA build details:\n    Version:                                 4.0.2\n",
    "intelmpi": "Intel(R) MPI Library for Linux* OS, Version 2021.19.0 Build 20260929 (id: 1)",
}
VERSIONS = {"openmpi": "4.1.4", "mpich": "4.0.2", "intelmpi": "2021.19.0"}


@pytest.fixture
def install(tmp_path):
    """Write programs that answer --version, each in a folder of its own; return PATH."""

    def write(**programs):
        for name, said in programs.items():
            folder = tmp_path / name.partition("_")[2]
            folder.mkdir(exist_ok=True)
            path = folder / name.partition("_")[0].replace("X", ".")
            path.write_text("#!/bin/sh\ncat <<'END'\n%s\nEND\n" % said)
            path.chmod(0o755)
        return ":".join(str(folder) for folder in sorted(tmp_path.iterdir()))

    return write


def find(path, runtime="auto", program=""):
    return mpi.find({"runtime": runtime, "program": program}, path)


@pytest.mark.parametrize("runtime", sorted(SAYS))
def test_an_engine_is_known_by_what_it_says(install, runtime):
    path = install(mpirun_a=SAYS[runtime])
    found = {"path": path + "/mpirun", "runtime": runtime, "version": VERSIONS[runtime]}
    assert find(path) == find(path, runtime) == find("", "auto", path + "/mpirun") == found


def test_a_named_engine_is_found_behind_another(install):
    path = install(
        mpirun_a=SAYS["openmpi"], mpirunXmpich_a=SAYS["mpich"], mpirun_b=SAYS["intelmpi"]
    )
    assert find(path)["runtime"] == "openmpi"
    assert find(path, "mpich")["path"].endswith("a/mpirun.mpich")
    assert find(path, "intelmpi")["path"].endswith("b/mpirun")


def test_a_missing_engine_is_named_with_what_to_install(install, tmp_path):
    for runtime, words in (
        ("auto", ["openmpi-bin", "mpich", "impi-rt"]),
        ("mpich", ["mpirun of mpich", "apt install mpich"]),
    ):
        with pytest.raises(BadInput) as refusal:
            find(str(tmp_path), runtime)
        assert all(word in str(refusal.value) for word in words), str(refusal.value)
    path = install(mpirun_a=SAYS["openmpi"], mpirun_b="hello")
    for runtime, program, words in (
        ("intelmpi", "", ["a/mpirun is openmpi 4.1.4", "b/mpirun is no known engine (hello)"]),
        ("auto", "/none/mpirun", ["/none/mpirun is missing"]),
        ("mpich", path.split(":")[0] + "/mpirun", ["is openmpi 4.1.4", "-e mpirun="]),
    ):
        with pytest.raises(BadInput) as refusal:
            find(path, runtime, program)
        assert all(word in str(refusal.value) for word in words), str(refusal.value)


def test_one_process_on_each_host_and_this_node_first():
    def line(runtime, interface="eth1"):
        engine = {"path": "/m", "runtime": runtime}
        return mpi.command(engine, ["10.0.0.1", "10.0.0.2"], ["p", "q"], interface)

    hosts = ["-hosts", "10.0.0.1,10.0.0.2", "-ppn", "1", "-np", "2", "p", "q"]
    assert line("openmpi") == [
        *("/m", "--host", "10.0.0.1:1,10.0.0.2:1", "-np", "2", "--bind-to", "none", "p", "q")
    ]
    assert line("mpich") == ["/m", "-launcher", "ssh", "-localhost", "10.0.0.1", *hosts]
    assert line("intelmpi") == ["/m", "-launcher", "ssh", "-iface", "eth1", *hosts]
    assert line("intelmpi", None) == ["/m", "-launcher", "ssh", *hosts]


def test_an_engine_gets_no_settings_of_a_login():
    engine = {"path": "/opt/m/bin/mpirun", "runtime": "openmpi"}
    made = mpi.environment(engine, {"PATH": "/bin", "HOME": "/h", "SLURM_JOB_ID": "1"})
    assert made["PATH"] == "/opt/m/bin" + os.pathsep + "/bin" and made["HOME"] == "/h"
    assert "SLURM_JOB_ID" not in made and made["OMPI_MCA_odls_base_sigkill_timeout"] == "10"
