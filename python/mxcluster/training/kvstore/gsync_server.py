"""Update weights in a server process of ``dist_gsync`` with several groups.

Each server process serves one group. Stock MXNet sums the pushes of the group's members in sync
mode, and calls `GroupUpdate` once for each sum. The server processes of a host share the weights,
the optimizer's states and the counters in memory.
"""

import contextlib
import os
import time
from typing import Dict, Iterator, List, NamedTuple, Optional, Set, Tuple, Union

import numpy
from mxnet import nd

from mxcluster import events, seal
from mxcluster.errors import BadInput, MxclusterError
from mxcluster.model.events import Merge, Updates
from mxcluster.node.mxnet_types import NDArray, Optimizer
from mxcluster.training.kvstore import key_layout as layouts
from mxcluster.training.kvstore import optimizer_states, shared_memory
from mxcluster.training.kvstore.array_views import array_on, view
from mxcluster.training.kvstore.round_schedule import RoundScheduler
from mxcluster.training.kvstore.server_update import (
    NO_OPTIMIZER,
    Context,
    Index,
    States,
    Update,
)
from mxcluster.training.kvstore.shared_states import Shared

_REPORT_SECONDS = 5.0
# Places of a parameter's counters: its updates, its merged batches, each group's last update.
_UPDATES, _BATCHES, _LAST = 0, 1, 2
RATE, GRADIENT = "rate", "gradient"  # the quantity that Y divides; "one" divides nothing


class Lateness(NamedTuple):
    """The treatment of late updates, as the knobs of dist_gsync choose it."""

    divided: str = RATE
    """RATE if Y divides the learning rate, GRADIENT if Y divides the gradient, "one" for no
    division by Y. In the paper RATE and GRADIENT are the same."""
    compensation: float = 0.0
    """lambda; 0 for no correction."""
    max_y: int = 0
    """The largest Y of an accepted update; 0 to accept all updates."""


class GroupUpdate(Update):
    """The update of Grouping-SGD in the server process of one group.

    W is the number of workers, and |g| the number of workers in the group. Y is the number of a
    parameter's updates since the group's last update, this update included.

    The optimizer updates the newest weights with the sum of the group's gradients. The gradient
    scale is ``rescale_grad * W / |g|``, and Y divides the learning rate. The group then pulls a
    copy of the newest weights. Sources: Jiang et al., CCGrid 2019, and MXNet-G's
    kvstore_dist_server.h for Y.

    With `compensation`, the server first applies the correction of DC-ASGD (Zheng et al., ICML
    2017, arXiv 1609.08326): ``grad + lambda * grad * grad * (newest weights - group's copy)``. Here
    ``grad`` is the scaled sum, before a division by Y. The members computed ``grad`` at the weights
    of the group's copy. The result estimates the gradient at the newest weights.

    With `max_y`, the server drops an update with Y > max_y. A dropped update changes no weights,
    and does not count for the Y of other groups. The batches of a dropped update still count for
    the learning rate schedule. The group then pulls the newest weights. The group's next Y counts
    from the dropped update.

    With MXCLUSTER_TRACE=1 each merge writes an event.

    Args:
        layout: the keys of all parameters.
        process: the number of this process among all server processes.
        sizes: the number of workers in each group.
        memory: the shared memory of this host.
        restored: the states from `optimizer_states.load`, {} for a new job.
        lateness: the treatment of late updates.
    """

    takes_reports = True

    def __init__(
        self,
        layout: layouts.Layout,
        process: int,
        sizes: List[int],
        memory: shared_memory.Memory,
        restored: States,
        lateness: Lateness,
    ) -> None:
        self._host, self._group = divmod(process, layout.groups)
        self._layout, self._sizes, self._memory = layout, sizes, memory
        self._restored, self._lateness = restored, lateness
        self._trace = os.environ.get("MXCLUSTER_TRACE") == "1"
        # The optimizer and the optimizer's version in the job, from 1.
        self._optimizer: Optimizer = None
        self._number = 0
        self._parameters: Dict[int, Parameter] = {}
        self._assigned: Set[int] = set()  # numbers of keys that hold no parameters
        # {Y: number of updates}, for applied updates and for dropped updates.
        self._histogram: Dict[int, int] = {}
        self._dropped: Dict[int, int] = {}
        self._reported = time.monotonic()

    def use(self, optimizer: Optimizer, number: int) -> None:
        """See `Update`."""
        self._optimizer, self._number = RoundScheduler.inside(optimizer), number
        for parameter in self._parameters.values():
            parameter.states = None

    def assign(self, number: int) -> None:
        """See `Update`."""
        if number in self._parameters:
            raise BadInput(optimizer_states.NOT_A_PARAMETER % number)
        self._assigned.add(number)

    def __call__(self, index: Index, grad: NDArray, weight: NDArray) -> None:
        """Update the newest weights under a key, and copy them to the array that the group pulls.

        Args:
            index: a key from `Layout.key`.
            grad: the sum of the group's pushes.
            weight: the array of the same shape that the group pulls.

        Raises BadInput for a key of another group, or if no worker has sent an optimizer yet.
        """
        key, total, stored = int(index), grad, weight
        group, number = self._layout.split(key)
        if group != self._group:
            raise BadInput(
                "key %d belongs to group %d, but this server process serves group %d: start the "
                "job again with train.yml" % (key, group, self._group)
            )
        if number in self._assigned:
            numpy.copyto(view(stored), view(total))
            return
        if self._optimizer is None:
            raise BadInput(NO_OPTIMIZER % number)
        with self._memory.lock(number) as row:
            parameter = self._parameters.get(number)
            if parameter is None:
                parameter = self._parameters[number] = Parameter(
                    self._memory, row, stored, len(self._sizes)
                )
            self._make_states(row, number, parameter)
            y, scale, is_dropped = self._merge(number, parameter, total)
        self._count(number, y, scale, total, is_dropped)

    def refresh(self, group: int) -> None:
        """See `Update`. The call has no effect in a process that serves another group."""
        for number, parameter in self._parameters.items() if group == self._group else ():
            with self._memory.lock(number):
                parameter.publish()

    def save(self, folder: str, name: str, number: str) -> None:
        """See `Update`. The processes of all groups on a host have the same part."""
        found: optimizer_states.Arrays = {}
        for index, parameter in self._parameters.items():
            with self._memory.lock(index) as row:
                states = self._make_states(row, index, parameter).arrays()
                found.update(optimizer_states.content(index, parameter.size, states))
        optimizer_states.save(folder, name, number, found, self._host, self._layout.hosts)

    def close(self) -> None:
        """Write an event with the numbers of applied and of dropped updates for each Y.

        The event counts all updates since the start of this process. `GroupUpdate` defines Y.
        """
        self._reported = time.monotonic()
        events.from_env().write(
            Updates(
                group=self._group,
                updates=sum(self._histogram.values()),
                y={str(y): n for y, n in sorted(self._histogram.items())},
                dropped={str(y): n for y, n in sorted(self._dropped.items())},
            )
        )

    def _make_states(self, row: memoryview, number: int, parameter: "Parameter") -> Shared:
        """Return the states of `parameter` for the present optimizer. Make them at the first call.

        If the process of another group has made these states already, the result uses the same
        memory.

        Args:
            row: the locked row of the parameter.
            number: the parameter's number.
            parameter: the parameter itself.
        """
        if parameter.states is not None:
            return parameter.states
        made_for, kind = row[shared_memory.OPTIMIZER], shared_memory.STATES
        known = self._memory.region(row, kind) if made_for == self._number else None

        def place(length: int) -> Union[memoryview, bytearray]:
            # Other groups may already use a newer optimizer, which this process will get soon.
            if made_for > self._number:
                return bytearray(length)
            return known or self._memory.place(row, kind, length)

        made = Shared(self._optimizer, number, parameter.array, place, is_new=not known)
        if made_for < self._number:
            row[shared_memory.OPTIMIZER] = self._number
            parameter.counters[_BATCHES] = 0  # A schedule begins again.
            if self._number == 1 and number in self._restored:
                saved, servers = self._restored[number], self._layout.hosts
                made.restore(saved, parameter.size, self._host, servers)
        parameter.states = made
        return made

    def _merge(
        self, number: int, parameter: "Parameter", total: NDArray
    ) -> Tuple[int, float, bool]:
        """Update a parameter, or drop the update if Y (see `GroupUpdate`) is above max_y.

        Return (Y, gradient scale, True for a dropped update).
        """
        counters, optimizer, late = parameter.counters, self._optimizer, self._lateness
        size, workers = self._sizes[self._group], sum(self._sizes)
        y = int(counters[_UPDATES] - counters[_LAST + self._group] + 1)
        is_dropped = 0 < late.max_y < y
        if not is_dropped:
            counters[_UPDATES] += 1
        counters[_BATCHES] += size
        counters[_LAST + self._group] = counters[_UPDATES]
        newest = self._memory.raise_round(self._number, int(-(-counters[_BATCHES] // workers)))
        scale = optimizer.rescale_grad * workers / size
        if is_dropped:
            parameter.publish()
            return y, scale, True
        if late.compensation and y > 1:  # At Y = 1 the group's copy is the newest.
            total = parameter.compensated(total, late.compensation * scale)
        # Y divides the corrected gradient, because the correction estimates an undivided gradient.
        scale /= y if late.divided == GRADIENT else 1
        with _set(optimizer, scale, y if late.divided == RATE else 1, newest):
            parameter.step(number, optimizer, total)
        return y, scale, False

    def _count(self, number: int, y: int, scale: float, total: NDArray, is_dropped: bool) -> None:
        histogram = self._dropped if is_dropped else self._histogram
        histogram[y] = histogram.get(y, 0) + 1
        if self._trace:
            values = view(total)
            events.from_env().write(
                Merge(
                    group=self._group,
                    parameter=number,
                    y=y,
                    dropped=is_dropped,
                    scale=scale,
                    size=len(values),
                    sum=float(values.sum(dtype=numpy.float64)),
                )
            )
        if time.monotonic() - self._reported > _REPORT_SECONDS:
            self.close()


def of_server(server: Context) -> GroupUpdate:
    """Return the GroupUpdate of this server process.

    Raises MxclusterError if ps-lite gave the process another rank than the plan.
    """
    environ = os.environ
    layout, process = layouts.from_environment(environ), int(environ["MXCLUSTER_INDEX"])
    if server.rank != layout.ranks[process]:
        raise MxclusterError(
            "ps-lite gave server-%d the rank %d in place of the planned rank %d: this server would "
            "get the keys of another group. Start the job again with train.yml"
            % (process, server.rank, layout.ranks[process])
        )
    groups = environ["MXCLUSTER_GROUPS"].split(",")
    token = seal.read_token(environ["MXCLUSTER_JOB_DIR"])
    path = shared_memory.path_of(token, process // layout.groups)
    lateness = Lateness(
        environ.get("MXCLUSTER_GSYNC_Y") or RATE,
        float(environ.get("MXCLUSTER_GSYNC_COMPENSATION") or 0),
        int(environ.get("MXCLUSTER_GSYNC_MAX_Y") or 0),
    )
    return GroupUpdate(
        layout,
        process,
        [groups.count(str(number)) for number in range(layout.groups)],
        shared_memory.Memory(path, layout.groups, layout.capacity),
        server.restored,
        lateness,
    )


class Parameter(object):
    """A parameter, or a part of a parameter, in the shared memory of its home host.

    The memory holds the counters, then the newest weights.

    Attributes:
        counters: an int64 array.
        size: the number of elements.
        array: the NDArray that the optimizer changes.
        states: the `Shared` states, None until `GroupUpdate` sets them.
    """

    def __init__(
        self, memory: shared_memory.Memory, row: memoryview, stored: NDArray, groups: int
    ) -> None:
        self._stored, self._snapshot = stored, view(stored)
        self.size = self._snapshot.size
        self.states: Optional[Shared] = None  # set by `GroupUpdate`
        length = 8 * (_LAST + groups)
        region = memory.region(row, shared_memory.WEIGHTS)
        is_first = region is None
        if region is None:
            region = memory.place(row, shared_memory.WEIGHTS, length + 4 * self.size)
        self.counters = numpy.frombuffer(region, dtype=numpy.int64, count=_LAST + groups)
        self._newest = numpy.frombuffer(region, dtype=numpy.float32, offset=length, count=self.size)
        # Before a group's first merge its copy holds the values that the first worker initialised.
        if is_first:
            numpy.copyto(self._newest, self._snapshot)
        self._shared = array_on(self._newest, stored.shape)
        self.array = stored if self._shared is None else self._shared

    def step(self, number: int, optimizer: Optimizer, total: NDArray) -> None:
        """Update the newest weights with `optimizer` and `total`, then call `publish`.

        Args: `number` the parameter's number; `total` the sum of the group's pushes.
        """
        assert self.states is not None  # `GroupUpdate` sets the states before a step.
        if self._shared is None:
            self.publish()
        self.states.update(optimizer, number, self.array, total)
        self.array.wait_to_read()
        if self._shared is None:
            numpy.copyto(self._newest, self._snapshot)
        else:
            self.publish()

    def compensated(self, total: NDArray, strength: float) -> NDArray:
        """Return ``total * (1 + strength * total * (newest weights - group's copy))``.

        The optimizer then multiplies the result by the gradient scale. If ``grad`` is `total` times
        the gradient scale, the product is::

            grad + lambda * grad * grad * (newest weights - group's copy)

        Args:
            total: the sum of the group's pushes.
            strength: lambda times the gradient scale.

        The result is a new NDArray, because MXNet owns `total`.
        """
        result = nd.empty(total.shape)
        numbers, sums = view(result), view(total)
        numpy.subtract(self._newest, self._snapshot, out=numbers)
        numbers *= sums
        numbers *= float(strength)
        numbers += 1
        numbers *= sums
        return result

    def publish(self) -> None:
        """Copy the newest weights to the group's copy."""
        numpy.copyto(self._snapshot, self._newest)


@contextlib.contextmanager
def _set(optimizer: Optimizer, scale: float, divisor: int, newest_round: int) -> Iterator[None]:
    """Set the gradient scale, learning rate and round of `optimizer` for the with block.

    After the block the gradient scale and the learning rate have their old values.

    Args: `scale` the gradient scale; `divisor` the number that divides the learning rate;
    `newest_round` the round for a learning rate schedule.
    """
    before = optimizer.rescale_grad, optimizer.lr
    schedule = optimizer.lr_scheduler
    optimizer.rescale_grad = scale
    if schedule is None:
        optimizer.lr = optimizer.lr / divisor
    else:
        schedule.round, schedule.divisor = optimizer.begin_num_update + newest_round, divisor
    try:
        yield
    finally:
        optimizer.rescale_grad, optimizer.lr = before
