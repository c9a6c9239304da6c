"""Importing MXNet, with a simulated numpy and mxnet that record the import."""

import json
import os
import subprocess
import sys

import pytest

import mxcluster

PROBE = """
import json
import os
from mxcluster.node import mxnet_compat
mxnet = mxnet_compat.import_mxnet()
import numpy
print(mxnet.ROLE_AT_IMPORT, os.environ.get("DMLC_ROLE"), numpy.bool is bool, mxnet.NUMPY_BOOL)
"""


PACKAGE = os.path.dirname(os.path.dirname(mxcluster.__file__))


def output_of(program, path, **environment):
    """Return what `program` prints in a new interpreter with the folder `path`."""
    environment["PYTHONPATH"] = os.pathsep.join([str(path), PACKAGE])
    return subprocess.check_output(
        [sys.executable, "-W", "ignore", "-c", program],
        env=environment,
        timeout=60,
        universal_newlines=True,
    )


@pytest.fixture
def simulated(tmp_path):
    """Return a folder with a simulated numpy and mxnet."""
    (tmp_path / "numpy.py").write_text("__version__ = '1.24.0'\n")
    (tmp_path / "mxnet.py").write_text(
        "import os, numpy\nROLE_AT_IMPORT = os.environ.get('DMLC_ROLE')\n"
        "NUMPY_BOOL = numpy.bool is bool\n"
    )
    return tmp_path


def test_numpy_has_bool_during_the_import(simulated):
    assert output_of(PROBE, simulated).split() == ["None", "None", "True", "True"]


@pytest.mark.parametrize("role", ["server", "scheduler", "worker"])
def test_the_role_is_worker_during_the_import_only(simulated, role):
    assert output_of(PROBE, simulated, DMLC_ROLE=role).split() == ["worker", role, "True", "True"]


def test_the_role_is_restored_after_a_failed_import(simulated):
    (simulated / "mxnet.py").write_text("raise ImportError('libcudart')")
    source = (
        "import os\nfrom mxcluster.node import mxnet_compat\ntry:\n    "
        "mxnet_compat.import_mxnet()\n"
        "except ImportError as error:\n    print(error, os.environ['DMLC_ROLE'])"
    )
    assert output_of(source, simulated, DMLC_ROLE="server").split() == ["libcudart", "server"]


ADAPTED = """
import json, threading
import numpy
from mxcluster.errors import BadInput
from mxcluster.node import mxnet_compat

mxnet_compat.adapt(numpy)
found = {"major": int(numpy.__version__.split(".")[0]), "refused": [], "texts": []}
numbers = (numpy.int64(3), numpy.float32(0.5), numpy.bool_(True))
found["texts"].append(str(numbers))
thread = threading.Thread(target=lambda: found["texts"].append(str(numbers)))
thread.start()
thread.join()
for name in mxnet_compat.FINANCIAL:
    try:
        getattr(numpy, name)(1, 2, 3)
    except BadInput as refusal:
        found["refused"].append(str(refusal))
found["values"] = str([numpy.PZERO, numpy.NZERO, numpy.PINF, numpy.NINF, numpy.Inf, numpy.NaN])
rows = numpy.array([[3, 1], [2, 5]])
found["functions"] = [
    bool(numpy.alltrue(rows)), bool(numpy.sometrue(rows)), int(numpy.product(rows)),
    float(numpy.round_(1.25, 1)), float(numpy.trapz([1.0, 3.0])), numpy.msort(rows).tolist(),
    numpy.in1d(rows, [1, 2]).tolist(), numpy.in1d(rows, [1, 2], invert=True).tolist(),
    isinstance("", numpy.compat.basestring),
]
print(json.dumps(found))
"""


def test_numpy_2_has_the_names_and_texts_of_numpy_1():
    """The numpy of the controller is one of numpy 2. Threads have texts of their own."""
    found = json.loads(output_of(ADAPTED, "", **os.environ))
    assert found["major"] == 2 and found["texts"] == ["(3, 0.5, True)"] * 2, found
    assert found["values"] == "[0.0, -0.0, inf, -inf, inf, nan]"
    assert found["functions"] == [
        *(True, True, 30, 1.2, 2.0),
        [[2, 1], [3, 5]],
        [False, True, True, False],
        [True, False, False, True],
        True,
    ]
    assert len(found["refused"]) == 6 and "numpy_financial.mirr" in found["refused"][0], found
