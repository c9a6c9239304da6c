"""What a job needs in an image, asked of this Python."""

import json
import subprocess
import sys

import pytest

from mxcluster.node import image_check


def asked(tmp_path, **request):
    """Run image_check with a folder of modules before all others, and return its answer."""
    done = subprocess.run(
        [sys.executable, "-m", "mxcluster.node.image_check", json.dumps(request)],
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": ":".join([str(tmp_path)] + sys.path), "PATH": "/usr/bin:/bin"},
        check=True,
    )
    return json.loads(done.stdout.decode().splitlines()[-1])


@pytest.mark.parametrize(
    "module,problem",
    [
        ("raise ImportError('no module')", "the image i has no MXNet (no module)"),
        ("raise OSError('libcudart.so.9.2')", "the image i cannot import its MXNet (OSError: lib"),
    ],
)
def test_an_image_without_a_working_mxnet_is_named(tmp_path, module, problem):
    (tmp_path / "mxnet.py").write_text("print('noise')\n" + module)
    found = asked(tmp_path, image="i", mpi=None)
    assert found["mpi"] is None and found["problems"][0].startswith(problem), found


def test_an_mpi_program_needs_no_mxnet_but_its_engine(tmp_path):
    (tmp_path / "mxnet.py").write_text("raise ImportError('no module')")
    (tmp_path / "mpirun").write_text("#!/bin/sh\necho 'mpirun (Open MPI) 4.1.4'\n")
    (tmp_path / "mpirun").chmod(0o755)
    request = {"pre_execution": "export PATH=%s" % tmp_path, "runtime": ""}
    found = asked(tmp_path, image="i", mpi=request)
    assert found == {"problems": [], "mpi": {"engine": "openmpi", "version": "4.1.4"}}
    found = asked(tmp_path, image="i", mpi=dict(request, runtime="intelmpi"))
    assert "Intel MPI is not installed in the image i" in found["problems"][0]


def test_an_old_python_is_named():
    assert image_check.python_problem((3, 6, 8)) is None
    assert "has Python 3.5 as its" in image_check.python_problem((3, 5, 2))
