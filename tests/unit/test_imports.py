"""Check that the programs of a node import no module that only rare requests need.

Each poll and each process of a job starts such a program, so each import costs a job 20 to 40 times
its time.
"""

import pathlib
import subprocess
import sys

import pytest

PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "python"
PROGRAMS = (
    "mxcluster.entry.commands",
    "mxcluster.agent.__main__",
    "mxcluster.node.rendezvous",
    "mxcluster.training.__main__",
)
RARE = {"inspect", "pkgutil", "zipfile", "numpy"}
LOADED = "import sys; sys.path.insert(0, %r); import %s; print(*sys.modules)"


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_of_a_node_imports_no_rare_module(program):
    # -S: the site of the tests' Python imports modules, too.
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", LOADED % (str(PACKAGE), program)],
        stdout=subprocess.PIPE,
        check=True,
    )
    loaded = set(done.stdout.decode().split())
    assert program in loaded
    assert not RARE & loaded
