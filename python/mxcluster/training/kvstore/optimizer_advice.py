"""Warn of MXNet's optimizers that work differently on servers than their users expect."""

from mxnet import optimizer as known

_DCASGD = (
    "the optimizer %s does no delay compensation on servers: it compares a weight with its value "
    "before the last update by any worker, and not with the value that the worker had pulled. For "
    "delay compensation use kv=dist_gsync with several groups, another optimizer, and "
    "gsync_compensation, such as 0.04"
)


def advice(optimizer):
    """Return a warning (str) if `optimizer` works differently on servers than expected, else None.

    DCASGD (MXNet 1.2.1 to 1.9.1, optimizer.py) keeps one previous weight for each parameter, set at
    every update.
    """
    if isinstance(optimizer, getattr(known, "DCASGD", ())):
        return _DCASGD % type(optimizer).__name__
    return None
