"""What the two stores share on a worker: keys, checks, and one wait per step."""

import copy
import ctypes
import os
import pickle
import time

import mxnet
import numpy
from mxnet import nd
from mxnet.base import _LIB, KVStoreHandle, c_str, check_call, py_str
from mxnet.kvstore import KVStore

from mxcluster import events
from mxcluster.kvstore.step import Backoff, StepPattern

_REPORT_SECONDS = 5.0
_CONTROLLER = 0  # ps-lite command: the body is for the Python controller of the server


class AsyncStore(KVStore):
    """A KVStore on ps-lite's async mode.  Subclasses say which keys are used and what a step waits for.

    It works on MXNet 1.2.1 to 1.9.1 for Module (string keys) and Gluon's Trainer (integer keys).  float32 and dense only.
    """

    name = None  # of mx.kv.create

    def __init__(self, groups, index):
        """`groups` holds the group of each worker by mxcluster's index, `index` is this worker's."""
        handle = KVStoreHandle()
        check_call(_LIB.MXKVStoreCreate(c_str("dist_async"), ctypes.byref(handle)))
        super(AsyncStore, self).__init__(handle)
        self.groups, self.index = groups, index
        self.servers = int(os.environ["DMLC_NUM_SERVER"])
        self.bound = int(os.environ.get("MXNET_KVSTORE_BIGARRAY_BOUND", 1000 * 1000))
        self._names = {}      # the script's key -> parameter index
        self._optimizer = None
        self._sent_scale = None
        self._pattern = StepPattern()
        self._collected = []  # pulls (key, out, priority) that the step's last pull will serve
        self._gradients = []  # what was pushed in this step
        self._backoff = Backoff()
        self._began = self._reported = time.monotonic()
        self._counts = {"steps": 1, "waited_s": 0.0, "polling_s": 0.0, "polls": 0}

    # -- to be said by a subclass, as both do: this class is no store

    def _own_key(self, index):
        """The key under which this worker pushes and pulls parameter `index`."""
        raise NotImplementedError

    def _all_keys(self, index):
        """Every key that holds a copy of parameter `index` on the servers."""
        raise NotImplementedError

    def _clock_keys(self):
        """(key, length) of every clock of the job, and of those that this worker looks at."""
        raise NotImplementedError

    def _server_update(self, optimizer, gluon):
        """What the servers shall run around the user's `optimizer`."""
        raise NotImplementedError

    def _pushed(self, key, size):
        """Called for every pushed array."""

    def _serve(self, pulls):
        """Waits as the scheme demands, then pulls."""
        raise NotImplementedError

    # -- KVStore's interface

    @property
    def type(self):
        # Gluon's Trainer of MXNet 1.2 keeps the optimizer to itself for every type with "dist" in it (apache/mxnet#11855).
        old = tuple(int(part) for part in mxnet.__version__.split(".")[:2]) < (1, 3)
        return self.name.replace("dist_", "") if old else self.name

    def init(self, key, value):
        """Puts initial float32 values on the servers: the first worker's count, all must call it alike."""
        keys, values = [], []
        for name, arrays in _pairs(key, value):
            array = _first(arrays)
            self._check(name, array)
            index = self._index_of(name)
            for raw in self._all_keys(index) if self.rank == 0 else [self._own_key(index)]:
                keys.append(raw)
                values.append(array)
        super(AsyncStore, self).init(keys, values)

    def broadcast(self, key, value, out, priority=0):
        """`init`, then `pull`."""
        self.init(key, value)
        self.pull(key, out=out, priority=priority)

    def set_optimizer(self, optimizer):
        """Keeps the optimizer; it goes to the servers at the first push, when Gluon has set its scale."""
        self._optimizer = optimizer

    def push(self, key, value, priority=0):
        """Sends gradients; what they do to the weights shows at the pulls of this step."""
        if self._sent_scale is None:
            self._begin()
        for name, arrays in _pairs(key, value):
            raw = self._own_key(self._known(name))
            self._check(name, _first(arrays))
            if self._pattern.push(raw):
                self._flush()
                self._check_scale()
                self._counts["steps"] += 1
            self._gradients.append(arrays)
            self._pushed(raw, _first(arrays).size)
            super(AsyncStore, self).push(raw, arrays, priority=priority)

    def pull(self, key, out=None, priority=0, ignore_sparse=True):
        """Brings weights to `out`, at the latest when the step's last pull is called."""
        for name, arrays in _pairs(key, out):
            raw = self._own_key(self._known(name))
            self._collected.append((raw, arrays, priority))
            if self._pattern.pull(raw):
                self._flush()

    def pushpull(self, key, value, out=None, priority=0):
        """`push`, then `pull`; without `out` it would sum gradients, which these schemes do not do."""
        if out is None:
            raise ValueError("%s updates weights on the servers: use it with update_on_kvstore=True (the default) "
                             "and unset MXNET_UPDATE_ON_KVSTORE" % self.name)
        self.push(key, value, priority)
        self.pull(key, out=out, priority=priority)

    def row_sparse_pull(self, key, out=None, priority=0, row_ids=None):
        raise TypeError("%s holds dense parameters only; train row_sparse ones with dist_sync or dist_async" % self.name)

    def set_gradient_compression(self, compression_params):
        raise ValueError("%s does not compress gradients; leave compression_params out or use dist_sync" % self.name)

    def close(self):
        """Serves what is outstanding and writes the last counts.  The store is not used after it."""
        self._flush()
        self._report()

    # -- the rest is ours

    def _index_of(self, name):
        if name not in self._names:
            if self._names and isinstance(name, str) != isinstance(next(iter(self._names)), str):
                raise ValueError("key %r: string and integer keys cannot be mixed in one kv-store" % (name,))
            # The server's optimizer knows a parameter by the order of init (Module) or by its own number (Gluon).
            self._names[name] = len(self._names) if isinstance(name, str) else int(name)
        return self._names[name]

    def _known(self, name):
        if name not in self._names:
            raise KeyError("key %r was never given to init()" % (name,))
        return self._names[name]

    def _check(self, name, array):
        if array.stype != "default":
            raise TypeError("parameter %r is %s; %s trains dense parameters only: use dist_sync or dist_async"
                            % (name, array.stype, self.name))
        dtype = numpy.dtype(array.dtype).name
        if dtype != "float32":
            raise TypeError("parameter %r is %s; %s trains float32 only: cast the network to float32, or use dist_sync"
                            % (name, dtype, self.name))

    def _begin(self):
        """At the first push all workers set up the clocks, and the first one sends the optimizer."""
        if self._optimizer is None:
            raise ValueError("%s needs an optimizer on the servers: call set_optimizer() before push(), or leave "
                             "update_on_kvstore at its default" % self.name)
        every, own = self._clock_keys()
        known = every if self.rank == 0 else own
        super(AsyncStore, self).init([key for key, _ in known], [nd.zeros((length,)) for _, length in known])
        self._sent_scale = self._optimizer.rescale_grad
        if self.rank == 0:
            optimizer, gluon = portable(self._optimizer)
            body = py_str(pickle.dumps(self._server_update(optimizer, gluon), 0))
            self._send_command_to_servers(_CONTROLLER, body)
            # A server learns where a clock is stored when it is pushed to for the first time.
            clocks = [nd.zeros((length,)) for _, length in every]
            for (key, _), clock in zip(every, clocks):
                super(AsyncStore, self).push(key, clock)
                super(AsyncStore, self).pull(key, out=clock)
            for clock in clocks:
                clock.wait_to_read()
        self._barrier()

    def _check_scale(self):
        if self._optimizer.rescale_grad != self._sent_scale:
            raise ValueError("rescale_grad was %g when training began and is %g now: the servers go on with the first. "
                             "Keep the batch size of step() constant" % (self._sent_scale, self._optimizer.rescale_grad))

    def _flush(self):
        pulls, self._collected = self._collected, []
        if not pulls:
            return
        if not self._gradients:
            self._pull_now(pulls)
            return
        for arrays in self._gradients:  # the clock cannot tick before the local gradients are there
            for array in arrays if isinstance(arrays, (list, tuple)) else [arrays]:
                array.wait_to_read()
        self._gradients = []
        self._serve(pulls)
        if time.monotonic() - self._reported > _REPORT_SECONDS:
            self._report()

    def _pull_now(self, pulls):
        for key, arrays, priority in pulls:
            super(AsyncStore, self).pull(key, out=arrays, priority=priority)

    def _wait_until(self, passed):
        """Polls until `passed()`; sleeps grow as `Backoff` says."""
        began = time.monotonic()
        for pause in self._backoff.pauses():
            time.sleep(pause)
            asked = time.monotonic()
            done = passed()
            self._counts["polling_s"] += time.monotonic() - asked
            self._counts["polls"] += 1
            if done:
                break
        waited = time.monotonic() - began
        self._backoff.waited(waited)
        self._counts["waited_s"] += waited

    def _report(self):
        self._reported = time.monotonic()
        counts = {name: round(value, 4) for name, value in self._counts.items()}
        events.from_env().write("kv", seconds=round(self._reported - self._began, 4), **counts)


def portable(optimizer):
    """A copy of a worker's optimizer that can be pickled, and whether it is Gluon's.

    Gluon keeps lr_mult and wd_mult in the parameters, which stay behind (from MXNet 1.5.1 even silently); they
    are copied into the optimizer's own tables.
    """
    optimizer = copy.copy(optimizer)
    parameters = getattr(optimizer, "param_dict", None) or {}
    optimizer.lr_mult, optimizer.wd_mult = dict(optimizer.lr_mult), dict(optimizer.wd_mult)
    for index, parameter in parameters.items():
        optimizer.lr_mult[index] = parameter.lr_mult
        optimizer.wd_mult[index] = parameter.wd_mult
    optimizer.param_dict = {}
    return optimizer, not optimizer.idx2name


def _pairs(key, value):
    """(key, array or list of arrays of the devices) for each key of a call."""
    if isinstance(key, (list, tuple)):
        return list(zip(key, value))
    return [(key, value)]


def _first(arrays):
    return arrays[0] if isinstance(arrays, (list, tuple)) else arrays
