"""Make ``mx.kv.create`` return mxcluster's kv-stores."""

import difflib
import functools
import importlib
import os
from typing import Any, Callable, Dict, Iterable, List

from mxnet import kvstore as stock

from mxcluster import schemes
from mxcluster.training.kvstore import load

KVStore = Any  # mx.kvstore.KVStore
Owner = Any  # mx.gluon.Trainer, or mx.mod.Module

DISTRIBUTED = (
    "dist",
    "dist_sync",
    "dist_device_sync",
    "dist_sync_device",
    "dist_async",
    "dist_device_async",
    "dist_async_device",
)
LOCAL = (
    "local",
    "device",
    "nccl",
    "local_update_cpu",
    "local_allreduce_cpu",
    "local_allreduce_device",
)
_OWN = {scheme.name: scheme for scheme in schemes.SCHEMES if scheme.store}


def install(make: Callable[[Callable[[], KVStore]], KVStore]) -> Callable[..., KVStore]:
    """Replace MXNet's ``create`` with a function that makes mxcluster's kv-stores.

    The new function refuses unknown names. A second call with the same name returns the existing
    distributed store, because ps-lite allows only one distributed store in a process.

    Args: `make(function)` calls `function`, and returns the distributed store that `function`
    makes. Returns MXNet's own ``create``.
    """
    original = stock.create
    existing: Dict[str, KVStore] = {}

    def create(name: str = "local") -> KVStore:
        if not isinstance(name, str):
            raise TypeError("the name of a kv-store must be a string, not %r" % (name,))
        kind = name.lower()
        if kind in existing:
            return existing[kind]
        if kind in _OWN or kind in DISTRIBUTED:
            _check_job(kind)
            _check_servers(kind)
            existing[kind] = make(lambda: _own(kind, original) if kind in _OWN else original(name))
            return existing[kind]
        if kind in LOCAL or kind in _registered():
            return original(name)
        raise ValueError(unknown(name, _registered()))

    _hook()
    create.__doc__ = original.__doc__
    for name in ("mxnet.kvstore", "mxnet.kvstore.base", "mxnet.kvstore.kvstore_server"):
        try:
            module: Any = importlib.import_module(name)
        except ImportError:  # Before MXNet 1.7, mxnet.kvstore is one file.
            continue
        if getattr(module, "create", None) is original:
            module.create = create
    return original


def _hook() -> None:
    """Wrap the methods of Trainer, Module and KVStore on which mxcluster's stores depend.

    The wrappers call ``begin_step`` and ``end_step`` of a store. ``KVStore.in_trainer`` is True
    while Trainer makes a store and reads the store's type. ``KVStore.compresses`` is True for a
    store that compresses gradients.
    """
    from mxnet import gluon, module

    stock.KVStore.in_trainer = False

    def asked(trainer: Owner, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        stock.KVStore.in_trainer = True  # on the class, because the call may make the store
        try:
            return function(trainer, *args, **kwargs)
        finally:
            stock.KVStore.in_trainer = False

    def stepped(caller: Owner, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        store: KVStore = getattr(caller, "_kvstore", None)
        if not hasattr(store, "begin_step"):
            return function(caller, *args, **kwargs)
        store.begin_step()
        try:
            return function(caller, *args, **kwargs)
        finally:
            store.end_step()

    stock.KVStore.compresses = False

    def compressing(
        store: KVStore, function: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> None:
        function(store, *args, **kwargs)
        store.compresses = True

    def both(
        store: KVStore,
        function: Callable[..., Any],
        key: Any,
        value: Any,
        out: Any = None,
        priority: int = 0,
    ) -> None:
        # From MXNet 1.7 on, Module and Trainer call pushpull. The pushpull of a distributed store
        # that compresses gradients raises an error (PushPullImpl in kvstore_dist.h). The push and
        # pull of this store work.
        if not store.compresses or "dist" not in store.type:
            return function(store, key, value, out=out, priority=priority)
        store.push(key, value, priority)
        store.pull(key, out=value if out is None else out, priority=priority)

    _wrap(stock.KVStore, "set_gradient_compression", compressing)
    if hasattr(stock.KVStore, "pushpull"):
        _wrap(stock.KVStore, "pushpull", both)
    _wrap(gluon.Trainer, "_init_kvstore", asked)
    _wrap(gluon.Trainer, "step", stepped)
    _wrap(module.Module, "update", stepped)


def _wrap(owner: type, name: str, around: Callable[..., Any]) -> None:
    """Replace the method `name` of the class `owner` with a call of `around`.

    Args: `around` a function (object, old method, arguments of the call).
    """
    function = getattr(owner, name)

    @functools.wraps(function)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return around(self, function, *args, **kwargs)

    setattr(owner, name, call)


def unknown(name: str, registered: Iterable[str] = ()) -> str:
    """Return the error message for the unknown kv-store `name`, with all known names.

    Args: `registered` the names of the stores that are registered in MXNet.
    """
    names = sorted({*_OWN, *DISTRIBUTED[1:], *LOCAL[:2], *registered})
    close = difflib.get_close_matches(str(name).lower(), names, n=1)
    hint = " (did you mean %s?)" % close[0] if close else ""
    return "unknown kv-store %r%s: use one of %s" % (name, hint, ", ".join(names))


def _registered() -> Dict[str, type]:
    """Return {name: class} of the stores registered in MXNet 1.7 and later, such as horovod."""
    return getattr(getattr(stock, "KVStoreBase", None), "kv_registry", {})


def _check_job(kind: str) -> None:
    """Raise RuntimeError if this process runs outside a job, where the store `kind` cannot work.

    MXNet itself would wait for a missing scheduler, or abort.
    """
    if "DMLC_ROLE" not in os.environ:
        raise RuntimeError(
            "%s needs a job with a scheduler and servers: start the script with "
            "`ansible-playbook train.yml -e kv=%s -e script=...`" % (kind, kind)
        )


def _check_servers(kind: str) -> None:
    """Raise RuntimeError if the job's servers do not match the scheme `kind`.

    A scheme with groups needs a server process for each group. Under a scheme without groups, a
    worker would also push to the server processes of other groups.
    """
    grouped, planned = "MXCLUSTER_SERVER_RANKS" in os.environ, os.environ.get("MXCLUSTER_KV")
    wanted = kind in _OWN and _OWN[kind].servers_of_a_group
    if grouped != wanted and len(set(_groups())) > 1:
        raise RuntimeError(
            "the job was planned for kv=%s, with %s: start the job with -e kv=%s to use "
            "mx.kv.create(%r)"
            % (
                planned,
                "a server process for each group" if grouped else "one process for each server",
                kind,
                kind,
            )
        )


def _own(kind: str, original: Callable[[str], KVStore]) -> KVStore:
    """Return a new store of the scheme `kind`. `original` is MXNet's own ``create``."""
    scheme, groups = _OWN[kind], _groups()
    if scheme.with_one_group and len(set(groups)) == 1:
        return original(scheme.with_one_group)
    return load(scheme.store)(groups, int(os.environ["MXCLUSTER_INDEX"]))


def _groups() -> List[int]:
    """Return the group of each worker, in order of the workers' indices."""
    return [int(group) for group in os.environ["MXCLUSTER_GROUPS"].split(",")]
