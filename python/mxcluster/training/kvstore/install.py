"""Make ``mx.kv.create`` return mxcluster's kv-stores."""

import contextlib
import functools
import os
import sys
import threading
from typing import Callable, ContextManager, Dict, Iterable, Iterator, List, Optional, Union

from mxnet import gluon, module, profiler
from mxnet import kvstore as stock

from mxcluster import schemes
from mxcluster.errors import did_you_mean
from mxcluster.node.mxnet_types import KVStore, Method, Module, Trainer
from mxcluster.training.kvstore import load, server_messages
from mxcluster.training.kvstore.call_arguments import Keys, Values
from mxcluster.training.kvstore.stock_store import ordered

LOCAL = (
    "local",
    "device",
    "nccl",
    "local_update_cpu",
    "local_allreduce_cpu",
    "local_allreduce_device",
)
DISTRIBUTED = [scheme.name for scheme in schemes.SCHEMES if scheme.is_distributed]
_OWN = {scheme.name: scheme for scheme in schemes.SCHEMES if scheme.store}


def install(make: Callable[[Callable[[], KVStore]], KVStore]) -> None:
    """Replace MXNet's ``create`` with a function that makes mxcluster's kv-stores.

    The new function refuses unknown names, and a scheme other than that of the job's plan. ps-lite
    allows only one distributed store in a process. So a second call with the same name, or with
    MXNet's other name of this store, returns the existing store, and another name is refused.

    Args: `make(function)` calls `function`, and returns the distributed store that `function`
    makes.
    """
    original = stock.create
    existing: Dict[str, KVStore] = {}  # {the first name of the distributed store: the store}
    making = threading.Lock()  # for threads of a script that ask at the same time

    def create(name: str = "local") -> KVStore:
        if not isinstance(name, str):
            raise TypeError("the name of a kv-store must be a string, not %r" % (name,))
        kind = schemes.known_as(name.lower())
        if kind in DISTRIBUTED:
            _check_job(kind)
            _check_scheme(kind)
            with making:
                _check_first(kind, existing)
                if kind not in existing:
                    existing[kind] = None
                    existing[kind] = make(lambda: _made(kind, name, original))
                return existing[kind]
        if kind in LOCAL or kind in _registered():
            return original(name)
        raise ValueError(unknown(name, _registered()))

    _hook()
    create.__doc__ = original.__doc__
    # Before MXNet 1.7, mxnet.kvstore is one file.
    for name in ("mxnet.kvstore", "mxnet.kvstore.base", "mxnet.kvstore.kvstore_server"):
        package = sys.modules.get(name)
        if getattr(package, "create", None) is original:
            setattr(package, "create", create)  # noqa: B010  # mypy does not know the attribute


def _hook() -> None:
    """Wrap the methods of Trainer, Module and KVStore on which mxcluster's stores depend.

    The wrappers call ``begin_step`` and ``end_step`` of a store. ``KVStore.in_trainer`` is True
    while Trainer makes a store and reads the store's type. ``KVStore.compresses`` is True for a
    store that compresses gradients.
    """
    stock.KVStore.in_trainer = stock.KVStore.compresses = False
    _wrap(gluon.Trainer, "_init_kvstore", _in_trainer)
    _wrap(gluon.Trainer, "step", _in_step)
    _wrap(module.Module, "update", _in_step)
    _wrap(stock.KVStore, "set_gradient_compression", _compressing)
    if hasattr(stock.KVStore, "pushpull"):
        stock.KVStore.pushpull = _with_compression(stock.KVStore.pushpull)
    for name in ("set_config", "set_state", "dump", "pause", "resume"):
        setattr(profiler, name, _of_this_process(getattr(profiler, name)))


@contextlib.contextmanager
def _in_trainer(trainer: Trainer) -> Iterator[None]:
    stock.KVStore.in_trainer = True  # on the class, because the call may make the store
    try:
        yield
    finally:
        stock.KVStore.in_trainer = False


@contextlib.contextmanager
def _in_step(caller: Union[Trainer, Module]) -> Iterator[None]:
    store: KVStore = getattr(caller, "_kvstore", None)
    if not hasattr(store, "begin_step"):
        yield
        return
    store.begin_step()
    try:
        yield
    finally:
        store.end_step()


@contextlib.contextmanager
def _compressing(store: KVStore) -> Iterator[None]:
    yield
    store.compresses = True


def _with_compression(function: Method) -> Method:
    """Return a method `pushpull` that calls `function` unless the store compresses gradients.

    From MXNet 1.7 on, Module and Trainer call pushpull. The pushpull of a distributed store that
    compresses gradients raises an error (PushPullImpl in kvstore_dist.h). The push and pull of this
    store work.
    """

    @functools.wraps(function)
    def pushpull(
        self: KVStore, key: Keys, value: Values, out: Optional[Values] = None, priority: int = 0
    ) -> None:
        if not self.compresses or "dist" not in self.type:
            return function(self, key, value, out=out, priority=priority)
        self.push(key, value, priority)
        self.pull(key, out=value if out is None else out, priority=priority)

    return pushpull


def _wrap(owner: type, name: str, within: Callable[[KVStore], ContextManager[None]]) -> None:
    """Run the method `name` of the class `owner` inside the context `within(object)`."""
    function: Method = getattr(owner, name)

    @functools.wraps(function)
    def call(self: object, *args: object, **kwargs: object) -> object:
        with within(self):
            return function(self, *args, **kwargs)

    setattr(owner, name, call)


def _of_this_process(function: Method) -> Method:
    """Return a function of mx.profiler that calls `function`, but not for the servers.

    A server of a job cannot write a file, because MXNet would take the name of this file from any
    program (`mxcluster.training.server`). The new function raises ValueError for the servers.
    """

    @functools.wraps(function)
    def call(*args: object, **kwargs: object) -> object:
        if "server" in args or kwargs.get("profile_process") == "server":
            raise ValueError(
                "mx.profiler.%s(profile_process='server'): the servers of mxcluster write no "
                "profile. Leave profile_process out, which profiles this worker; profile.yml "
                "measures the speed of the servers" % function.__name__
            )
        return function(*args, **kwargs)

    return call


def unknown(name: str, registered: Iterable[str] = ()) -> str:
    """Return the error message for the unknown kv-store `name`, with all known names.

    Args: `registered` the names of the stores that are registered in MXNet.
    """
    names = sorted({*schemes.NAMES, *schemes.ALIASES, *registered} - {"dist"})
    hint = did_you_mean(name, names)
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


def _check_scheme(kind: str) -> None:
    """Raise RuntimeError if the plan of this job is for a scheme that trains differently.

    The plan chooses the shards, the servers and the limits for its own scheme, and the verdict
    names this scheme.
    """
    planned = os.environ.get("MXCLUSTER_KV", kind)
    if not schemes.same_effect(kind, planned, len(set(_groups()))):
        raise RuntimeError(
            "the job was planned for kv=%s, and the script makes the kv-store %s: start the job "
            "with -e kv=%s, or give mx.kv.create() the name in the variable MXCLUSTER_KV"
            % (planned, kind, kind)
        )


def _check_first(kind: str, existing: Dict[str, KVStore]) -> None:
    """Raise RuntimeError if this process has made another distributed store, or failed to.

    Args: `existing` {name: the distributed store of this process, None after a failure}.
    """
    for name, store in existing.items():
        if name != kind:
            raise RuntimeError(
                "this worker already has the kv-store %s, and ps-lite allows only one distributed "
                "kv-store in a process: use mx.kv.create(%r), which returns this store, in place "
                "of mx.kv.create(%r)" % (name, name, kind)
            )
        if store is None:
            raise RuntimeError(
                "the first call of mx.kv.create(%r) has failed in this worker, and ps-lite cannot "
                "begin a second time: correct the cause of the first error" % name
            )


def _made(kind: str, name: str, original: Callable[[str], KVStore]) -> KVStore:
    """Return a new distributed store of the scheme `kind`.

    Args: `name` the script's name of the store; `original` MXNet's own ``create``.
    """
    scheme = _OWN.get(kind)
    if scheme is None:
        # MXNet's Module divides gradients by all batch sizes only if the type contains "_sync".
        store = ordered(original(kind if name.lower() == "dist" else name))
        server_messages.send(store, "begin", kind)
        return store
    groups = _groups()
    if scheme.with_one_group and len(set(groups)) == 1:
        return ordered(original(scheme.with_one_group))
    return load(scheme.store)(groups, int(os.environ["MXCLUSTER_INDEX"]))


def _groups() -> List[int]:
    """Return the group of each worker, in order of the workers' indices."""
    return [int(group) for group in os.environ["MXCLUSTER_GROUPS"].split(",")]
