"""Puts the kv-stores where scripts look for them: ``mx.kv.create``."""

import difflib
import functools
import importlib
import os

from mxnet import kvstore as stock

DISTRIBUTED = ("dist", "dist_sync", "dist_device_sync", "dist_sync_device", "dist_async", "dist_device_async",
               "dist_async_device")
LOCAL = ("local", "device", "nccl", "local_update_cpu", "local_allreduce_cpu", "local_allreduce_device")
OURS = ("dist_gsync", "dist_ssync")


def install(make):
    """Replaces MXNet's ``create`` by one that knows our stores and refuses names that nobody knows.

    A distributed store is made by ``make(function)``, which calls the function and returns the store.  A second store of
    the same name in one process is the first one again; ps-lite allows no other.  Returns MXNet's own ``create``.
    """
    original = stock.create
    existing = {}

    def create(name="local"):
        if not isinstance(name, str):
            raise TypeError("the name of a kv-store must be a string, not %r" % (name,))
        kind = name.lower()
        if kind in existing:
            return existing[kind]
        if kind in OURS + DISTRIBUTED:
            _check_job(kind)
            _check_servers(kind)
            existing[kind] = make(lambda: _ours(kind, original) if kind in OURS else original(name))
            return existing[kind]
        if kind in LOCAL or kind in _registered():
            return original(name)
        raise ValueError(unknown(name, _registered()))

    _hook()
    create.__doc__ = original.__doc__
    for module in ("mxnet.kvstore", "mxnet.kvstore.base", "mxnet.kvstore.kvstore_server"):
        try:
            module = importlib.import_module(module)
        except ImportError:  # a single module before MXNet 1.7
            continue
        if getattr(module, "create", None) is original:
            module.create = create
    return original


def _hook():
    """Tells our stores when Gluon's Trainer and Module are in a step, and when Trainer asks what a store is."""
    from mxnet import gluon, module
    stock.KVStore.in_trainer = False

    def asked(trainer, function, *args, **kwargs):
        stock.KVStore.in_trainer = True  # of all: it may make the store
        try:
            return function(trainer, *args, **kwargs)
        finally:
            stock.KVStore.in_trainer = False

    def stepped(caller, function, *args, **kwargs):
        store = getattr(caller, "_kvstore", None)
        if not hasattr(store, "begin_step"):
            return function(caller, *args, **kwargs)
        store.begin_step()
        try:
            return function(caller, *args, **kwargs)
        finally:
            store.end_step()

    _wrap(gluon.Trainer, "_init_kvstore", asked)
    _wrap(gluon.Trainer, "step", stepped)
    _wrap(module.Module, "update", stepped)


def _wrap(owner, name, around):
    function = getattr(owner, name)

    @functools.wraps(function)
    def call(self, *args, **kwargs):
        return around(self, function, *args, **kwargs)
    setattr(owner, name, call)


def unknown(name, registered=()):
    """The message for a name that no kv-store has."""
    names = sorted(set(OURS + DISTRIBUTED[1:] + LOCAL[:2]) | set(registered))
    close = difflib.get_close_matches(str(name).lower(), names, n=1)
    hint = "; did you mean %s?" % close[0] if close else ""
    return "unknown kv-store %r%s (known: %s)" % (name, hint, ", ".join(names))


def _registered():
    """Names of kv-stores that were registered in MXNet 1.7 and later (horovod, byteps, a user's own)."""
    return getattr(getattr(stock, "KVStoreBase", None), "kv_registry", {})


def _check_job(kind):
    """MXNet itself would wait for a scheduler that is not there, or abort, or merge with servers that serve groups."""
    if "DMLC_ROLE" not in os.environ:
        raise RuntimeError("%s needs a job with a scheduler and servers: start the script with "
                           "`ansible-playbook train.yml -e kv=%s -e script=...`" % (kind, kind))


def _check_servers(kind):
    """The servers of a job with several groups are for dist_gsync alone, and other servers are not for it."""
    grouped, planned = "MXCLUSTER_SERVER_RANKS" in os.environ, os.environ.get("MXCLUSTER_KV")
    if grouped != (kind == "dist_gsync") and max(map(int, os.environ["MXCLUSTER_GROUPS"].split(","))) > 0:
        raise RuntimeError("the job was planned for kv=%s, whose servers are %s: start it with -e kv=%s for mx.kv.create(%r)"
                           % (planned, "processes for each group" if grouped else "one process each", kind, kind))


def _ours(kind, original):
    groups = [int(group) for group in os.environ["MXCLUSTER_GROUPS"].split(",")]
    if kind == "dist_gsync" and max(groups) == 0:
        return original("dist_sync")  # which is what one group of all is
    index = int(os.environ["MXCLUSTER_INDEX"])
    if kind == "dist_gsync":
        from mxcluster.kvstore.gsync import GroupedStore as Store
    else:
        from mxcluster.kvstore.ssync import StaleStore as Store
    return Store(groups, index)
