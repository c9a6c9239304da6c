"""Checkpoints of a Module: <network>-%04d.params after so many epochs and <network>-symbol.json, MXNet's own names."""
import os
import re

import mxnet as mx

from mxcluster.errors import BadInput

KEPT = 3


def save(folder, network, symbol, module, epochs):
    """Write the weights after `epochs` epochs; the last KEPT files are kept. A reader never finds half a file."""
    os.makedirs(folder, exist_ok=True)
    weights, auxiliary = module.get_params()
    arrays = {"arg:" + name: array for name, array in weights.items()}
    arrays.update({"aux:" + name: array for name, array in auxiliary.items()})
    _replace(os.path.join(folder, "%s-symbol.json" % network), symbol.save)
    _replace(os.path.join(folder, "%s-%04d.params" % (network, epochs)), lambda path: mx.nd.save(path, arrays))
    for name in os.listdir(folder):
        match = re.fullmatch(re.escape(network) + r"-(\d{4,})\.params", name)
        if match and int(match.group(1)) <= epochs - KEPT:
            os.remove(os.path.join(folder, name))


def _replace(path, write):
    partial = path + ".partial"
    write(partial)
    os.replace(partial, path)


def load(path, module):
    """Give the Module, bound and initialized, the weights of a .params file.

    Raises BadInput if it is no such file, or one of another network.
    """
    if not os.path.isfile(path):
        raise BadInput("--model-load-file %s does not exist" % path)
    try:
        arrays = mx.nd.load(path)
    except (mx.base.MXNetError, ValueError) as error:
        raise BadInput("--model-load-file %s is not a .params file (%s)" % (path, str(error).splitlines()[0])) from None
    arrays = arrays if isinstance(arrays, dict) else {}
    loaded, wrong = [], []
    for kind, own in zip(("arg:", "aux:"), module.get_params()):
        loaded.append({name: arrays.get(kind + name) for name in own})
        wrong += [name for name, array in loaded[-1].items() if array is None or array.shape != own[name].shape]
    if wrong:
        raise BadInput("--model-load-file %s is not of this network and data set: %d arrays are missing or of another "
                       "shape, such as %s" % (path, len(wrong), sorted(wrong)[0]))
    module.set_params(*loaded)
