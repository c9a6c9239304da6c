"""The base class of mxcluster's kv-stores on a worker: keys, checks, messages to the servers."""

import ctypes
import sys
from typing import Dict, List, Optional, Tuple

import mxnet
import numpy
from mxnet.base import _LIB, KVStoreHandle, c_str, check_call
from mxnet.kvstore import KVStore

from mxcluster import schemes
from mxcluster.model.server_messages import Report
from mxcluster.node.mxnet_types import NDArray, Optimizer, Parameters
from mxcluster.training.kvstore import server_messages
from mxcluster.training.kvstore.call_arguments import Arrays, Key, Keys, Values, first, pairs
from mxcluster.training.kvstore.pull_order import PullOrder

Place = Tuple[int, Optional[int], Optional[int]]  # (key, begin, end), see `OwnStore._places`

IS_OLD = tuple(int(part) for part in mxnet.__version__.split(".")[:2]) < (1, 3)


class OwnStore(KVStore):
    """The base class of mxcluster's kv-stores, which hold dense float32 parameters.

    The servers update the parameters.

    A subclass names the MXNet store that carries the data (``inner``), and chooses the keys of each
    parameter (`_places`). The class works on MXNet 1.2.1 to 1.9.1 for Module, FeedForward, Gluon's
    Trainer and plain calls.
    """

    name: str  # in mx.kv.create
    inner: str

    def __init__(self, groups: List[int], index: int) -> None:
        """Make the store, and send the name of the scheme to the servers.

        Args:
            groups: the group of each worker, in order of the workers' indices.
            index: this worker's index.
        """
        handle = KVStoreHandle()
        check_call(_LIB.MXKVStoreCreate(c_str(self.inner), ctypes.byref(handle)))
        super(OwnStore, self).__init__(handle)
        self.groups, self.index = groups, index
        # {the script's key: (number of the parameter, its places)}
        self._names: Dict[Key, Tuple[int, List[Place]]] = {}
        self._optimizer: Optimizer = None
        self._sent: Optional[Tuple[float, float]] = None  # (rescale_grad, lr) on the servers
        self._known_keys = 0  # number of the keys that the servers know
        self._number = 0  # version of the latest optimizer, from 1; 0 without an optimizer
        self._order = PullOrder()
        self._warned = False
        server_messages.send(self, "begin", self.name)

    def _places(self, number: int, size: int) -> List[Place]:
        """Return the keys of this worker's copy of a parameter: [(key, begin, end), ...].

        A key holds the elements begin .. end - 1 of the parameter. Begin and end are None for a key
        that holds the whole parameter.

        Args:
            number: the parameter's number.
            size: the parameter's number of elements.
        """
        raise NotImplementedError  # Each subclass defines this method.

    def _copies(self, number: int, size: int) -> List[Place]:
        """Return the keys of all copies of a parameter on the servers, in the form of `_places`."""
        return self._places(number, size)

    # -- KVStore's interface

    def init(self, key: Keys, value: Values) -> None:
        """Initialize the parameters `key` on the servers with the arrays `value` of rank 0.

        All workers must call this method.

        Args:
            key: a key or a list of keys.
            value: an NDArray, or a list of NDArrays, for each key.

        Raises ValueError for a key that the store already has, and TypeError for an array other
        than dense float32.
        """
        keys, values = [], []
        for name, arrays in pairs(key, value):
            array = first(arrays)
            self._check(name, array)
            number = self._new(name)
            size = int(numpy.prod(array.shape))
            places = self._places(number, size)
            self._names[name] = number, places
            for place in self._copies(number, size) if self.rank == 0 else places:
                keys.append(place[0])
                values.append(part(array, place))
        super(OwnStore, self).init(keys, values)

    def broadcast(self, key: Keys, value: Values, out: Values, priority: int = 0) -> None:
        """Call `init` with `value`, then `pull` into `out`."""
        self.init(key, value)
        self.pull(key, out=out, priority=priority)

    def set_optimizer(self, optimizer: Optimizer) -> None:
        """Store `optimizer` until the next push, which sends the optimizer to the servers.

        Gluon sets the optimizer's rescale_grad between this call and the push.
        """
        self._optimizer, self._sent = optimizer, None
        self._number += 1

    def push(self, key: Keys, value: Values, priority: int = 0) -> None:
        """Push the gradients `value` of the parameters `key` to the servers.

        Raises ValueError if the store has no optimizer, or if the optimizer's rescale_grad has
        changed. Raises TypeError for a gradient other than dense float32.
        """
        self._begin_push(key, value)
        self._push(*self._spread(key, value), priority=priority)

    def pull(
        self,
        key: Keys,
        out: Optional[Values] = None,
        priority: int = 0,
        ignore_sparse: bool = True,
    ) -> None:
        """Pull the weights of the parameters `key` into the arrays `out`."""
        self._pull(*self._spread(key, out), priority=priority)
        self._order.pulls(key, out)

    def pushpull(
        self, key: Keys, value: Values, out: Optional[Values] = None, priority: int = 0
    ) -> None:
        """Push the gradients `value`, then pull the weights into `out`.

        Raises ValueError without `out`. MXNet would then return the sum of the gradients, but these
        schemes update the weights on the servers.
        """
        if out is None:
            raise ValueError(
                "%s updates the weights on the servers, so a worker cannot get a sum of gradients: "
                "use update_on_kvstore=True (the default), and unset MXNET_UPDATE_ON_KVSTORE"
                % self.name
            )
        self.push(key, value, priority)
        self.pull(key, out=out, priority=priority)

    def row_sparse_pull(
        self,
        key: Keys,
        out: Optional[Values] = None,
        priority: int = 0,
        row_ids: Optional[Values] = None,
    ) -> None:
        """Raise TypeError: the store holds dense parameters only."""
        raise TypeError(
            "%s holds dense parameters only: train row_sparse parameters with dist_sync or "
            "dist_async" % self.name
        )

    def set_gradient_compression(self, compression_params: Parameters) -> None:
        """Compress the gradients of later pushes with `compression_params`.

        `compression_params` is a dict, as for MXNet's stores. All workers must call this method
        before the first `init`, with the same parameters. Raises ValueError after an `init`, and
        under a scheme without compression.
        """
        reason = schemes.of(self.name).no_compression
        if reason:
            raise ValueError(
                "%s does not compress gradients: %s. Leave compression_params out, or use "
                "dist_sync" % (self.name, reason)
            )
        if self._names:
            raise ValueError(
                "set_gradient_compression() came after init(), which has already placed the "
                "parameters on the servers: call set_gradient_compression() before init()"
            )
        try:
            self.in_trainer = False  # hides the class's value, so MXNet finds "dist" in `type`
            super(OwnStore, self).set_gradient_compression(compression_params)
        finally:
            del self.in_trainer

    # -- our own methods

    def _push(self, keys: List[int], values: List[Arrays], priority: int) -> None:
        super(OwnStore, self).push(keys, values, priority=priority)

    def _pull(self, keys: List[int], values: List[Arrays], priority: int) -> None:
        super(OwnStore, self).pull(keys, out=values, priority=priority)

    def _spread(self, key: Keys, value: Optional[Values]) -> Tuple[List[int], List[Arrays]]:
        """Return (keys on the servers, their arrays) for the arguments of a push or pull."""
        keys, values = [], []
        for name, arrays in pairs(key, value):
            for place in self._known(name)[1]:
                keys.append(place[0])
                values.append(part(arrays, place))
        return keys, values

    def _new(self, name: Key) -> int:
        """Return the number of the new parameter whose key in the script is `name`.

        Raises ValueError if `name` is not new, or if the script mixes string and integer keys.
        """
        if name in self._names:
            raise ValueError(
                "init() got the key %r a second time: leave the second init() out. If the key "
                "belongs to a second network, give the parameters of both networks to one Module "
                "or Trainer" % (name,)
            )
        if self._names and isinstance(name, str) != isinstance(next(iter(self._names)), str):
            raise ValueError(
                "the key %r mixes string and integer keys in one kv-store: use keys of one type"
                % (name,)
            )
        # The optimizer on the servers numbers parameters by the order of init (Module), or takes
        # the parameter's own number (Gluon).
        return len(self._names) if isinstance(name, str) else int(name)

    def _known(self, name: Key) -> Tuple[int, List[Place]]:
        if name not in self._names:
            raise KeyError(
                "the servers have no key %r: call init() before push() and pull()" % (name,)
            )
        return self._names[name]

    def _check(self, name: Key, array: NDArray) -> None:
        if array.stype != "default":
            raise TypeError(
                "parameter %r is %s, but %s trains dense parameters only: use dist_sync or "
                "dist_async" % (name, array.stype, self.name)
            )
        dtype = numpy.dtype(array.dtype).name
        if dtype != "float32":
            raise TypeError(
                "parameter %r is %s, but %s trains float32 only: cast the network to float32, or "
                "use dist_sync" % (name, dtype, self.name)
            )

    def _begin_push(self, key: Keys, value: Values) -> None:
        """Check the gradients of a push, report to the servers, and order the push behind pulls.

        Args: `key` and `value` the arguments of the push.

        Raises TypeError for a gradient other than dense float32, and the errors of `_send_report`.
        """
        new = self._order.new(key, value)
        for name, gradient in new:  # The type of an array does not change.
            self._check(name, gradient)
        self._send_report()
        self._order.pushes(new)

    def _send_report(self) -> None:
        """Send this worker's optimizer and the order of string keys to the servers before a push.

        The method sends only an optimizer or keys that the servers do not have yet.

        Raises ValueError without an optimizer, or if the optimizer's rescale_grad has changed since
        the last message.
        """
        optimizer = self._optimizer
        if optimizer is None:
            raise ValueError(
                "%s needs an optimizer on the servers: call set_optimizer() before push(), or "
                "leave update_on_kvstore at its default" % self.name
            )
        if self._sent is None or self._known_keys != len(self._names):
            self._check_names(optimizer)
            if self._number > 1:  # The message would overtake pending pushes.
                mxnet.nd.waitall()
            report = Report(
                number=self._number,
                names=[name for name in self._names if isinstance(name, str)],
                optimizer=None if self._sent else self._as_json(optimizer),
            )
            server_messages.send(self, "training", report)
            self._sent = self._sent or (optimizer.rescale_grad, optimizer.lr)
            self._known_keys = len(self._names)
        elif optimizer.rescale_grad != self._sent[0]:
            raise ValueError(
                "rescale_grad was %g when training began and is %g now: the servers keep the first "
                "value. Keep the batch size of step() constant"
                % (self._sent[0], optimizer.rescale_grad)
            )
        elif optimizer.lr != self._sent[1] and not self._warned:
            self._warned = True
            sys.stderr.write(
                "mxcluster: the script set the learning rate to %g on a worker, but the servers "
                "keep %g. To change the rate, give the optimizer an lr_scheduler, or call "
                "set_optimizer() again\n" % (optimizer.lr, self._sent[1])
            )

    def _check_names(self, optimizer: Optimizer) -> None:
        """Raise ValueError if `optimizer` and the servers number a parameter differently.

        The optimizer looks up the multipliers of learning rate and weight decay by name. A server
        passes a parameter's number to the optimizer, which translates the number into the name.
        """
        for number, name in sorted(optimizer.idx2name.items()):
            if name in self._names and self._names[name][0] != number:
                raise ValueError(
                    "the optimizer uses the number %s for the parameter %r, but the servers use "
                    "the number %d. The servers have one optimizer for all parameters: train the "
                    "parameters of all Modules in one Module" % (number, name, self._names[name][0])
                )

    def _as_json(self, optimizer: Optimizer) -> str:
        return server_messages.as_json(optimizer)


def part(arrays: Arrays, place: Place) -> Arrays:
    """Return the elements of `arrays`, an NDArray or a list of NDArrays, at `place`.

    `place` is (key, begin, end), as from `OwnStore._places`. The result shares the memory of
    `arrays`. If begin and end are None, the result is `arrays` itself.
    """
    if place[1] is None:
        return arrays
    if isinstance(arrays, (list, tuple)):
        return [part(array, place) for array in arrays]
    if hasattr(arrays, "as_nd_ndarray"):  # reshape() of MXNet's numpy arrays copies
        arrays = arrays.as_nd_ndarray()
    with mxnet.autograd.pause():
        return arrays.reshape((-1,))[place[1] : place[2]]
