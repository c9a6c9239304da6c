"""Send sealed messages from a worker to the servers, after a check of each optimizer."""

import copy
import os
from typing import Any

from mxnet import kvstore as stock
from mxnet.base import _LIB, c_str, check_call, mx_uint

from mxcluster import seal
from mxcluster.training.kvstore import optimizer_guard

KVStore = Any  # mx.kvstore.KVStore
Optimizer = Any  # mx.optimizer.Optimizer

# ps-lite's command with a body for the Python controller of the server (MXNet's kController).
_OURS = 0


def install() -> None:
    """Make every KVStore seal (`mxcluster.seal`) its messages to the servers' Python code.

    After this call MXNet's own `set_optimizer` also sends Gluon's lr_mult and wd_mult.
    """
    original = stock.KVStore._send_command_to_servers

    def send(self: KVStore, head: int, body: str) -> None:
        if head == _OURS:
            check(body)
            tell(self, "optimizer", body)
        else:
            original(self, head, body)

    send.__doc__ = original.__doc__
    stock.KVStore._send_command_to_servers = send
    set_optimizer = stock.KVStore.set_optimizer

    def set_portable(self: KVStore, optimizer: Optimizer) -> None:
        set_optimizer(self, portable(optimizer))

    set_portable.__doc__ = set_optimizer.__doc__
    stock.KVStore.set_optimizer = set_portable


def portable(optimizer: Optimizer) -> Optimizer:
    """Return a copy of a worker's `optimizer` for pickling, with Gluon's lr_mult and wd_mult.

    Gluon keeps lr_mult and wd_mult in the parameters, which stay on the worker. Since MXNet 1.5,
    pickles and copies of the optimizer silently leave the parameters out.
    """
    parameters = dict(getattr(optimizer, "param_dict", None) or {})
    sent = copy.copy(optimizer)
    sent.lr_mult, sent.wd_mult = dict(optimizer.lr_mult), dict(optimizer.wd_mult)
    for index, parameter in parameters.items():
        sent.lr_mult[index] = parameter.lr_mult
        sent.wd_mult[index] = parameter.wd_mult
    sent.param_dict = {}
    return sent


def tell(store: KVStore, kind: str, payload: str) -> None:
    """Send a message to all servers, and return when every server has handled the message.

    Args:
        store: the worker's KVStore.
        kind: a kind of message that `server.Commands` handles.
        payload: the content.

    Raises ValueError if `payload` holds a NUL character.
    """
    if "\0" in payload:
        raise ValueError(
            "the message to the servers holds a NUL character: remove this character from the "
            "optimizer's attributes"
        )
    token = seal.read_token(os.environ["MXCLUSTER_JOB_DIR"])
    sender = "worker-%s" % os.environ.get("MXCLUSTER_INDEX", "0")
    body = c_str(seal.sealed(token, sender, kind, payload))
    check_call(_LIB.MXKVStoreSendCommmandToServers(store.handle, mx_uint(_OURS), body))


def check(body: str) -> None:
    """Raise ValueError if the servers would refuse `body`, a pickled optimizer.

    The check runs on the worker, because the user does not see a refusal on a server.
    """
    try:
        classes = optimizer_guard.names(optimizer_guard.declared_classes())
        optimizer_guard.check_optimizer(optimizer_guard.read(body.encode("utf-8"), classes))
    except optimizer_guard.Forbidden as refusal:
        raise ValueError(
            "the servers would refuse this optimizer: %s. As attributes of the optimizer, use only "
            "numbers, strings, containers, numpy arrays, and objects of MXNet or of server_classes"
            % refusal
        ) from None
