"""Send sealed messages from a worker to the servers, and check each optimizer before that."""

import copy
import os

from mxnet import kvstore as stock
from mxnet.base import _LIB, c_str, check_call, mx_uint

from mxcluster import seal
from mxcluster.training.kvstore import optimizer_guard

# ps-lite's command with a body for the Python controller of the server (MXNet's kController).
_OURS = 0


def install():
    """Make every KVStore seal its messages to the servers' Python code.

    After this call MXNet's own `set_optimizer` also sends Gluon's multipliers.
    """
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
    """Return a copy of a worker's `optimizer` for pickling, with Gluon's lr_mult and wd_mult.

    Gluon keeps lr_mult and wd_mult in the parameters, which stay on the worker. From MXNet 1.5 on,
    a pickle and a copy of the optimizer lose the parameters without a message.
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
    """Send one message from `store` to all servers, and wait until all have carried it out.

    `kind` is one that `server.Commands` handles, and `payload` (str) is the content. Raises
    ValueError if `payload` holds a NUL character.
    """
    if "\0" in payload:
        raise ValueError(
            "a message to the servers cannot hold a NUL character: take it out of the optimizer's "
            "attributes"
        )
    token = seal.read_token(os.environ["MXCLUSTER_JOB_DIR"])
    sender = "worker-%s" % os.environ.get("MXCLUSTER_INDEX", "0")
    body = c_str(seal.sealed(token, sender, kind, payload))
    check_call(_LIB.MXKVStoreSendCommmandToServers(store.handle, mx_uint(_OURS), body))


def check(body):
    """Raise ValueError if the servers would refuse `body`, a pickled optimizer (str).

    The check runs on the worker, because the user does not see a refusal on a server.
    """
    try:
        classes = optimizer_guard.names(optimizer_guard.declared_classes())
        optimizer_guard.check_optimizer(optimizer_guard.read(body.encode("utf-8"), classes))
    except optimizer_guard.Forbidden as refusal:
        raise ValueError(
            "the servers would refuse this optimizer: %s. As attributes of the optimizer, use only "
            "numbers, texts, containers, numpy arrays, and classes of MXNet or of server_classes"
            % refusal
        ) from None
