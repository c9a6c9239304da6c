"""The import that writes operator functions at their first call gives MXNet's own operators."""

import json
import os
import subprocess

from tests.training.environments import PROJECT

TELL = """
import json, sys
import numpy
from mxcluster.node import mxnet_compat
if sys.argv[1] == "lazily":
    mx = mxnet_compat.import_mxnet()
else:
    mxnet_compat.adapt(numpy)
    import mxnet as mx

def names(module):
    return sorted(name for name in vars(module) if not name.startswith("__"))

names_of = {
    name: names(module)
    for name, module in sorted(sys.modules.items())
    if name.split(".")[0] == "mxnet" and module is not None
}
values = {}
array = mx.nd.array([[-1.0, 2.0], [3.0, -4.0]])
values["nd"] = mx.nd.relu(array).asnumpy().tolist()
values["keyword"] = mx.nd.op.sum(data=array, axis=1).asnumpy().tolist()
values["out"] = mx.nd.sgd_update(array, array, out=array, lr=0.5).asnumpy().tolist()
values["contrib"] = mx.nd.contrib.quadratic(array, a=1, b=2, c=3).asnumpy().tolist()
values["old contrib"] = mx.contrib.nd.quadratic(array, a=1, b=2, c=3).asnumpy().tolist()
net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="first")
net = mx.sym.SoftmaxOutput(mx.symbol.op.Activation(net, act_type="relu"), name="softmax")
values["symbol"] = json.loads(net.tojson())["nodes"]
values["arguments"] = net.list_arguments()
values["downloads"] = mx.gluon.utils.requests.get.__module__
if hasattr(mx, "np"):
    values["np"] = mx.np.exp(mx.np.array([0.0, 1.0])).asnumpy().tolist()
    values["np.random"] = list(mx.np.random.uniform(size=(2, 3)).shape)
    values["npx"] = mx.npx.relu(mx.np.array([-1.0])).asnumpy().tolist()
try:
    mx.nd.FullyConnected(array, num_hidden="many")
except mx.MXNetError as error:
    values["error"] = str(error).splitlines()[-1]
made = [
    [module.__name__, name, operator.__name__, operator.__module__]
    for module in (mx.nd.op, mx.nd._internal, mx.nd.linalg, mx.sym.op, mx.sym.contrib)
    for name, operator in sorted(vars(module).items())
    if callable(operator) and hasattr(operator, "__name__")
]
written_by = mx.nd.op.softmax.__code__.co_filename
print(json.dumps({"names": names_of, "values": values, "made": made, "written_by": written_by}))
"""


def tell(environment, how):
    """Return what the program TELL prints with this MXNet; `how` is "lazily" or "plainly"."""
    ran = subprocess.run(
        [str(environment.python), "-W", "ignore", "-c", TELL, how],
        env=dict(os.environ, PYTHONPATH=str(PROJECT / "python")),
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])


def test_operators_are_those_of_a_plain_import(every_mxnet):
    lazily, plainly = tell(every_mxnet, "lazily"), tell(every_mxnet, "plainly")
    assert lazily["written_by"].endswith("lazy_operators.py"), "MXNet has another import now"
    assert sum(map(len, plainly["names"].values())) > 2000
    assert lazily["names"] == plainly["names"]
    assert lazily["values"] == plainly["values"]
    assert lazily["made"] == plainly["made"]
