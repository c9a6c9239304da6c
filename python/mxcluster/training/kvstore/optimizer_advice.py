"""Warn about optimizers of MXNet that work in an unexpected way on servers."""

from typing import Optional

from mxnet import optimizer as known

from mxcluster.node.mxnet_types import Optimizer

_DCASGD = (
    "the optimizer %s does no delay compensation on servers: a server compares the weight with the "
    "value before the last update, and not with the value that the worker pulled. For delay "
    "compensation use kv=dist_gsync with several groups, another optimizer, and "
    "gsync_compensation=0.04"
)


def advice(optimizer: Optimizer) -> Optional[str]:
    """Return a warning if `optimizer` works in an unexpected way on servers, else None.

    Only DCASGD has a warning. DCASGD keeps one previous weight for each parameter, and replaces
    this weight at every update (MXNet 1.2.1 to 1.9.1, optimizer.py). On a server the previous
    weight is not the weight that the worker pulled.
    """
    if isinstance(optimizer, getattr(known, "DCASGD", ())):
        return _DCASGD % type(optimizer).__name__
    return None
