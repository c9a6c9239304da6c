"""Importing MXNet, with a simulated numpy and mxnet that record the import."""

import os
import subprocess
import sys

import pytest

import mxcluster

PROBE = """
import os
from mxcluster.node import mxnet_compat
mxnet = mxnet_compat.import_mxnet()
import numpy
print(mxnet.ROLE_AT_IMPORT, os.environ.get("DMLC_ROLE"), numpy.bool is bool, mxnet.NUMPY_BOOL)
"""


@pytest.fixture
def probe(tmp_path):
    """Return a function that runs PROBE in a new interpreter with the simulated packages."""
    (tmp_path / "numpy.py").write_text("__version__ = '1.24.0'\n")
    (tmp_path / "mxnet.py").write_text(
        "import os, numpy\nROLE_AT_IMPORT = os.environ.get('DMLC_ROLE')\n"
        "NUMPY_BOOL = numpy.bool is bool\n"
    )

    def run(role=None):
        package = os.path.dirname(os.path.dirname(mxcluster.__file__))
        environment = {"PYTHONPATH": os.pathsep.join([str(tmp_path), package])}
        if role:
            environment["DMLC_ROLE"] = role
        return subprocess.run(
            [sys.executable, "-c", PROBE],
            env=environment,
            stdout=subprocess.PIPE,
            timeout=20,
            check=True,
            universal_newlines=True,
        ).stdout.split()

    return run


def test_numpy_has_bool_during_the_import(probe):
    assert probe() == ["None", "None", "True", "True"]


@pytest.mark.parametrize("role", ["server", "scheduler", "worker"])
def test_the_role_is_worker_during_the_import_only(probe, role):
    assert probe(role) == ["worker", role, "True", "True"]


def test_the_role_is_restored_after_a_failed_import(probe, tmp_path):
    (tmp_path / "mxnet.py").write_text("raise ImportError('libcudart')")
    source = (
        "import os\nfrom mxcluster.node import mxnet_compat\ntry:\n    "
        "mxnet_compat.import_mxnet()\n"
        "except ImportError as error:\n    print(error, os.environ['DMLC_ROLE'])"
    )
    package = os.path.dirname(os.path.dirname(mxcluster.__file__))
    environment = {"PYTHONPATH": os.pathsep.join([str(tmp_path), package]), "DMLC_ROLE": "server"}
    ran = subprocess.run(
        [sys.executable, "-c", source],
        env=environment,
        stdout=subprocess.PIPE,
        timeout=20,
        check=True,
        universal_newlines=True,
    )
    assert ran.stdout.split() == ["libcudart", "server"]
