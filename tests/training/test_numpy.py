"""MXNet beside an old and a new numpy: numbers of numpy are arguments of operators."""

import subprocess

from tests.training.environments import PROJECT

USES = """
import threading
from mxcluster.node.mxnet_compat import import_mxnet
mx = import_mxnet()
import numpy as np

two = np.int64(2)


def shapes():
    assert mx.nd.zeros((two, np.int64(3))).shape == (2, 3)
    assert mx.nd.random.uniform(np.float32(0), np.float32(1), shape=(two,)).shape == (2,)
    symbol = mx.sym.reshape(mx.sym.var("x"), shape=(two, np.int64(3)))
    assert symbol.infer_shape(x=(3, 2))[1] == [(2, 3)]


def in_a_thread(function):
    failed = []

    def run():
        try:
            function()
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert not failed, failed


shapes()
in_a_thread(shapes)
weight = mx.nd.zeros((4, 3))
mx.init.Orthogonal()._init_weight("weight", weight)
assert weight.norm().asscalar() > 0
sgd = mx.optimizer.create("sgd", learning_rate=np.float32(0.1), momentum=np.float64(0.9))
update = mx.optimizer.get_updater(sgd)
before = weight.copy()
update(0, mx.nd.ones((4, 3)), weight)
assert abs((before - weight).asnumpy() - 0.1).max() < 1e-6
header = mx.recordio.IRHeader(0, [1.0, 2.0], 7, 0)
found, rest = mx.recordio.unpack(mx.recordio.pack(header, b"image"))
assert found.label.tolist() == [1.0, 2.0] and rest == b"image"
if hasattr(mx, "np") and hasattr(mx.np, "pad"):
    ones = mx.np.ones((2, 2))
    assert mx.np.pad(ones, ((1, 1), (0, 0)), mode="constant", constant_values=0).shape == (4, 2)
    assert mx.np.in1d(ones, mx.np.ones((1,))).tolist() == [True] * 4
    assert mx.np.ones((2,), dtype=mx.np.bool).dtype == np.bool_
print("done", np.__version__)
"""


def test_numbers_of_numpy_are_arguments(every_mxnet):
    """MXNet's own Orthogonal initializer passes them, and so do rates that numpy computes."""
    ran = subprocess.run(
        [str(every_mxnet.python), "-W", "ignore", "-c", USES],
        env={"PYTHONPATH": str(PROJECT / "python"), "PATH": "/usr/bin:/bin"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert ran.returncode == 0 and b"done" in ran.stdout, ran.stdout.decode()
