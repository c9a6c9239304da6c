"""What a worker tells the servers: its messages are sealed, and an optimizer is looked at before it is sent."""

import copy
import os

from mxnet import kvstore as stock
from mxnet.base import _LIB, c_str, check_call, mx_uint

from mxcluster.kvstore import guard, seal
from mxcluster.server import declared_classes

_OURS = 0  # ps-lite's command whose body is for the Python controller of the server; MXNet calls it kController


def install():
    """Seals what any KVStore sends to the servers' Python; MXNet's own `set_optimizer` sends Gluon's multipliers, too."""
    original = stock.KVStore._send_command_to_servers

    def send(self, head, body):
        if head == _OURS:
            check(body)
            tell(self, "optimizer", body)
        else:
            original(self, head, body)

    send.__doc__ = original.__doc__
    stock.KVStore._send_command_to_servers = send
    set_optimizer = stock.KVStore.set_optimizer

    def set_portable(self, optimizer):
        set_optimizer(self, portable(optimizer))

    set_portable.__doc__ = set_optimizer.__doc__
    stock.KVStore.set_optimizer = set_portable


def portable(optimizer):
    """A copy of a worker's optimizer that can be pickled.

    Gluon keeps lr_mult and wd_mult in the parameters, which stay behind (from MXNet 1.5 on even silently, and a copy already
    has lost them); they are put into the optimizer's own tables.
    """
    parameters = dict(getattr(optimizer, "param_dict", None) or {})
    sent = copy.copy(optimizer)
    sent.lr_mult, sent.wd_mult = dict(optimizer.lr_mult), dict(optimizer.wd_mult)
    for index, parameter in parameters.items():
        sent.lr_mult[index] = parameter.lr_mult
        sent.wd_mult[index] = parameter.wd_mult
    sent.param_dict = {}
    return sent


def tell(store, kind, payload):
    """Has every server carry out one command; returns when all have."""
    if "\0" in payload:
        raise ValueError("what goes to the servers cannot hold a NUL character: take it out of the optimizer's attributes")
    token = seal.read_token(os.environ["MXCLUSTER_JOB_DIR"])
    sender = "worker-%s" % os.environ.get("MXCLUSTER_INDEX", "0")
    body = c_str(seal.sealed(token, sender, kind, payload))
    check_call(_LIB.MXKVStoreSendCommmandToServers(store.handle, mx_uint(_OURS), body))


def check(body):
    """Refuse here what the servers would refuse, where it is not seen.  ValueError says why."""
    try:
        guard.check_optimizer(guard.read(body.encode("utf-8"), guard.names(declared_classes())))
    except guard.Forbidden as refusal:
        raise ValueError("the servers would refuse this optimizer: %s" % refusal) from None
