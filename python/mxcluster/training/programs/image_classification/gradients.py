"""Add up the gradients of several forward and backward passes before one update.

With the request "add" MXNet adds a gradient to the array that holds it. MXNet 1.2.1 and 1.5.1 lose
the gradients of BatchNorm's parameters under this request: their arrays stay 0. So this module
requests "write" for these parameters with every version, and adds them up in arrays of its own.
"""

import json
from typing import Dict, List

from mxcluster.node.mxnet_types import Module, NDArray, Symbol


def of_batch_norm(net: Symbol) -> List[str]:
    """Return the names of the parameters of BatchNorm in the network `net`, gamma and beta."""
    nodes = json.loads(net.tojson())["nodes"]
    return [
        nodes[entry[0]]["name"]
        for node in nodes
        if "BatchNorm" in node["op"]
        for entry in node["inputs"][1:3]  # after the data; the moving averages have no gradients
    ]


def requests(net: Symbol, inputs: List[str]) -> Dict[str, str]:
    """Return {argument of `net`: request of its gradient} for `Module.bind`.

    Args: `inputs` the names of data and labels, which get no gradient.
    """
    written = set(of_batch_norm(net))
    return {
        name: "null" if name in inputs else "write" if name in written else "add"
        for name in net.list_arguments()
    }


class Gradients(object):
    """The gradients of a Module that is bound with the `requests` of its network.

    Args:
        module: the bound Module.
    """

    def __init__(self, module: Module) -> None:
        self._module = module
        written = set(of_batch_norm(module.symbol))
        # The sums of the written gradients on each device, by place of the parameter.
        self._sums: Dict[int, List[NDArray]] = {
            place: [array.zeros_like() for array in self._arrays()[place]]
            for place, name in enumerate(module._param_names)
            if name in written
        }
        self.clear()

    @property
    def has_batch_norm(self) -> bool:
        """True if the network has parameters of BatchNorm."""
        return bool(self._sums)

    def _arrays(self) -> List[List[NDArray]]:
        """Return the gradients of each parameter on each device. `reshape` makes new lists."""
        found: List[List[NDArray]] = self._module._exec_group.grad_arrays
        return found

    def add_up(self) -> None:
        """Add the gradients that the last backward pass has written. Call this after each pass."""
        arrays = self._arrays()
        for place, sums in self._sums.items():
            for total, array in zip(sums, arrays[place]):
                total += array

    def close(self, factor: float) -> None:
        """Set each gradient to its sum over all passes since `clear`, times `factor`."""
        arrays = self._arrays()
        for place, sums in self._sums.items():
            for total, array in zip(sums, arrays[place]):
                array[:] = total
        for of_devices in arrays:
            for array in of_devices:
                array *= factor

    def clear(self) -> None:
        """Set all gradients to 0, once the pushes of their values are done."""
        for of_devices in [*self._arrays(), *self._sums.values()]:
            for array in of_devices:
                array[:] = 0
