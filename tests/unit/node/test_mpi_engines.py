"""The MPI engines: detection by the version text, hosts files, command lines, variables."""

import pytest

from mxcluster.node import mpi_engines
from mxcluster.node.mpi_engines import ENGINES

TEXTS = {
    "mpirun (Open MPI) 5.0.0rc10\n": ("openmpi", "5.0.0rc10"),
    "mpirun (OpenRTE) 1.10.7\n": None,
    "HYDRA build details:\n    Version:           4.0.2\n    CC: gcc\n": ("mpich", "4.0.2"),
    "Intel(R) MPI Library for Linux* OS, Version 2021.18.1 Build 20260626 (id: b44796a)\n"
    "Copyright 2003-2026, Intel Corporation.\n": ("intelmpi", "2021.18.1"),
    "Intel(R) MPI Library for Linux* OS, Version 2018 Update 3 Build 20180411 (id: 18329)\n": (
        "intelmpi",
        "2018 Update 3",
    ),
    "bash: mpirun: command not found\n": None,
}
HOSTS = [("alpha", 1), ("beta", 2)]


@pytest.mark.parametrize("text", TEXTS)
def test_engine_and_version_come_from_the_version_text(text):
    assert mpi_engines.detect(text) == TEXTS[text]


def test_hosts_file_has_a_line_for_each_host():
    assert mpi_engines.hosts_file(ENGINES["openmpi"], HOSTS) == "alpha slots=1\nbeta slots=2\n"
    assert mpi_engines.hosts_file(ENGINES["mpich"], HOSTS) == "alpha:1\nbeta:2\n"
    assert mpi_engines.hosts_file(ENGINES["intelmpi"], HOSTS) == "alpha:1\nbeta:2\n"


@pytest.mark.parametrize(
    "name, expected",
    [
        ("openmpi", "/m/mpirun --hostfile /h -n 3 --map-by slot --bind-to none -x A -x B ./p x"),
        ("mpich", "/m/mpirun -f /h -n 3 -localhost 10.0.0.1 -genvlist A,B ./p x"),
        ("intelmpi", "/m/mpirun -machinefile /h -n 3 -iface eth0 -genvlist A,B ./p x"),
    ],
)
def test_command_line_has_the_arguments_of_the_engine(name, expected):
    line = mpi_engines.command_line(
        ENGINES[name], "/m/mpirun", "/h", 3, ["A", "B"], ["./p", "x"], "10.0.0.1", "eth0"
    )
    assert line == expected.split()


@pytest.mark.parametrize("name", ENGINES)
def test_command_line_without_variables_and_address_has_no_such_argument(name):
    line = mpi_engines.command_line(ENGINES[name], "mpirun", "/h", 3, [], ["./p"])
    assert not {"-x", "-genvlist", "-localhost", "-iface"} & set(line)
    assert line[-1] == "./p"


@pytest.mark.parametrize("name", ENGINES)
def test_variables_name_the_program_that_starts_the_daemons(name):
    engine = ENGINES[name]
    assert "/job/start" in mpi_engines.environment(engine, "/job/start").values()
    assert mpi_engines.environment(engine) == {}
    assert mpi_engines.environment(engine, as_root=True) == engine.root
    assert mpi_engines.environment(engine, contained=True) == engine.contained


def test_network_and_infiniband_become_variables():
    env = mpi_engines.environment(ENGINES["openmpi"], network="10.0.0.0/24", infiniband=False)
    assert env["OMPI_MCA_btl_tcp_if_include"] == env["PRTE_MCA_prte_if_include"] == "10.0.0.0/24"
    assert env["OMPI_MCA_pml"] == "ob1"
    only = mpi_engines.environment(ENGINES["intelmpi"], infiniband=True)
    assert only == {"I_MPI_FABRICS": "shm:ofi", "FI_PROVIDER": "verbs"}


def test_open_mpi_makes_its_temporary_folders_in_the_folder_of_the_job():
    folder = mpi_engines.session_folder(b"t" * 43)
    env = mpi_engines.environment(ENGINES["openmpi"], session=folder)
    assert set(env.values()) == {folder} and "OMPI_MCA_orte_tmpdir_base" in env
    assert mpi_engines.environment(ENGINES["mpich"], session=folder) == {}
    assert mpi_engines.session_folder(b"u" * 43) != folder and len(folder) < 50


@pytest.mark.parametrize(
    "path,expected",
    [
        ("/tmp/ompi.node1.0/pid.7", ["/tmp/ompi.node1.0/pid.7", "/tmp/ompi.node1.0"]),
        ("/tmp/prte.node1.0/dvm.7", ["/tmp/prte.node1.0/dvm.7", "/tmp/prte.node1.0"]),
        ("ompi.node1.0/pid.7", []),
    ],
)
def test_only_a_folder_of_the_engine_is_removed(path, expected):
    assert mpi_engines.session_folders({"PMIX_SERVER_TMPDIR": path}) == expected
