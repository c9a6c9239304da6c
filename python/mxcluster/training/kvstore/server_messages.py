"""Send sealed messages from a worker to the servers, after a check of each optimizer."""

import copy
import json
import os
from typing import Union

from mxnet import kvstore as stock
from mxnet.base import _LIB, c_str, check_call, mx_uint

from mxcluster import seal
from mxcluster.model.record import Record
from mxcluster.node.mxnet_types import KVStore, Optimizer
from mxcluster.training.kvstore import optimizer_json, server_classes

# The commands of ps-lite with a body for the Python controller of the server, and for the switch to
# multi-precision (MXNet's kController and kSetMultiPrecision).
_TO_PYTHON, _MULTI_PRECISION = 0, 1


def install() -> None:
    """Make every KVStore send its optimizer as sealed JSON, and no pickle.

    MXNet's own `set_optimizer` then also sends Gluon's lr_mult and wd_mult. See `mxcluster.seal`
    and `optimizer_json`.
    """
    send_command = stock.KVStore._send_command_to_servers
    set_optimizer = stock.KVStore.set_optimizer

    def send_checked(self: KVStore, head: int, body: str) -> None:
        if head == _TO_PYTHON:
            raise ValueError(
                "the servers accept no pickle, as _send_command_to_servers(0, ...) has: use "
                "set_optimizer()"
            )
        send_command(self, head, body)

    def set_as_json(self: KVStore, optimizer: Optimizer) -> None:
        if "dist" not in self.type:
            set_optimizer(self, optimizer)
            return
        send(self, "optimizer", as_json(optimizer))
        if optimizer.multi_precision:
            send_command(self, _MULTI_PRECISION, "")

    send_checked.__doc__, set_as_json.__doc__ = send_command.__doc__, set_optimizer.__doc__
    stock.KVStore._send_command_to_servers = send_checked
    stock.KVStore.set_optimizer = set_as_json


def portable(optimizer: Optimizer) -> Optimizer:
    """Return a copy of a worker's `optimizer` for the servers, with Gluon's lr_mult and wd_mult.

    Gluon keeps lr_mult and wd_mult in the parameters, which stay on the worker. Since MXNet 1.5,
    copies of the optimizer silently leave the parameters out.
    """
    parameters = dict(getattr(optimizer, "param_dict", None) or {})
    sent = copy.copy(optimizer)
    sent.lr_mult, sent.wd_mult = dict(optimizer.lr_mult), dict(optimizer.wd_mult)
    for index, parameter in parameters.items():
        sent.lr_mult[index] = parameter.lr_mult
        sent.wd_mult[index] = parameter.wd_mult
    sent.param_dict = {}
    return sent


def send(store: KVStore, kind: str, content: Union[str, Record]) -> None:
    """Send a message to all servers, and return when every server has handled the message.

    Args:
        store: the worker's KVStore.
        kind: a kind of message that `server.Commands` handles.
        content: a string without NUL characters, or a record of `mxcluster.model.server_messages`.
    """
    payload = content if isinstance(content, str) else json.dumps(content.encode())
    token = seal.read_token(os.environ["MXCLUSTER_JOB_DIR"])
    sender = "worker-%s" % os.environ.get("MXCLUSTER_INDEX", "0")
    body = c_str(seal.sealed(token, sender, kind, payload))
    check_call(_LIB.MXKVStoreSendCommmandToServers(store.handle, mx_uint(_TO_PYTHON), body))


def as_json(optimizer: Optimizer) -> str:
    """Return a worker's `optimizer` as JSON for the servers.

    Raises ValueError if the servers would refuse this JSON. The worker reads the JSON as a server
    does, because the user does not see a refusal on a server.
    """
    try:
        allowed = server_classes.allowed()
        text = optimizer_json.encode(portable(optimizer), allowed)
        optimizer_json.check_optimizer(optimizer_json.decode(text, allowed))
    except optimizer_json.Forbidden as refusal:
        raise ValueError(
            "the servers would refuse this optimizer: %s. As attributes of the optimizer, use only "
            "numbers, strings, containers, numpy arrays, and objects of MXNet or of server_classes"
            % refusal
        ) from None
    return text
