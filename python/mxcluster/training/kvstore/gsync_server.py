"""What runs in a server process of ``dist_gsync`` with several groups, around the user's own optimizer.

Each process serves one group. Stock MXNet sums what the members push, in sync mode, and calls `GroupUpdate` once for each sum.
The weights, the optimizer's states and the counters are in memory that the groups' processes of a host share.
"""

import contextlib
import time

import numpy

from mxcluster import events
from mxcluster.errors import BadInput, MxclusterError
from mxcluster.kvstore import layout as layouts
from mxcluster.kvstore import seal, shared, states
from mxcluster.kvstore.schedule import RoundScheduler
from mxcluster.kvstore.shared_states import Shared
from mxcluster.kvstore.views import array_on, view

_REPORT_SECONDS = 5.0
_UPDATES, _BATCHES, _LAST = 0, 1, 2  # counters of a parameter: updates, batches merged, and each group's last update
RATE, GRADIENT = "rate", "gradient"  # what Y divides; "one" is nothing


class GroupUpdate(object):
    """Grouping-SGD (Jiang et al., CCGrid 2019; Y as in MXNet-G's kvstore_dist_server.h).

    A group's sum steps the newest weights with ``rescale_grad * W / |g|``, and with the learning rate divided by Y: how many
    updates there were since the group's own last one, this one counted. The group then pulls a copy of the newest weights.

    Args: `layout` a `layout.Layout`; `host` and `group` that this process serves; `sizes` |g| of each; `memory` a
    `shared.Memory`; `given` what `states.load` has read; `divided` what Y divides: the learning rate, the gradient (as in the
    paper, where it is the same), or nothing.
    """

    def __init__(self, layout, host, group, sizes, memory, given=None, divided=RATE, trace=False):
        self._layout, self._host, self._group, self._sizes = layout, host, group, sizes
        self._memory = memory
        self._given, self._divided, self._trace = given or {}, divided, trace
        self._optimizer, self._number = None, 0  # the optimizer, and the how manieth of the job it is
        self._parameters = {}
        self._histogram, self._updates, self._reported = {}, 0, time.monotonic()

    def use(self, optimizer, number):
        """From now on the updates are those of this optimizer, the job's first, second, ..."""
        if optimizer.lr_scheduler is not None:
            optimizer.lr_scheduler = RoundScheduler(optimizer.lr_scheduler)
        self._optimizer, self._number = optimizer, number
        for parameter in self._parameters.values():
            parameter.states = None

    def __call__(self, key, total, stored):
        """One sum of the group, and what is `stored` under its key (NDArrays of equal shape)."""
        group, number = self._layout.split(key)
        if group != self._group:
            raise BadInput("key %d is of group %d, and this server process of group %d" % (key, group, self._group))
        if self._optimizer is None:
            raise BadInput("gradients of parameter %d came before an optimizer: call set_optimizer() before push()" % number)
        with self._memory.lock(number) as row:
            parameter = self._parameters.get(number)
            if parameter is None:
                parameter = self._parameters[number] = Parameter(self._memory, row, stored, len(self._sizes))
            if parameter.states is None:
                parameter.states = self._states(row, number, parameter)
            y, scale = self._merge(number, parameter, total)
        self._count(number, y, scale, total)

    def refresh(self, group):
        """What this group pulls becomes the newest weights of all groups."""
        for number, parameter in self._parameters.items() if group == self._group else ():
            with self._memory.lock(number):
                parameter.publish()

    def save(self, folder, name, number):
        """Write this host's part of the checkpoint `name`. The process of the group whose worker asks for it does."""
        found = {}
        for index, parameter in self._parameters.items():
            with self._memory.lock(index) as row:
                if parameter.states is None:  # of an optimizer that has updated nothing yet
                    parameter.states = self._states(row, index, parameter)
                found.update(states.content(index, parameter.size, parameter.states.arrays()))
        states.save(folder, name, number, found, self._host, self._layout.hosts)

    def close(self):
        """Writes the histogram of Y, counted since the start, to the events."""
        self._reported = time.monotonic()
        events.from_env().write("gsync", group=self._group, updates=self._updates,
                                y={str(y): n for y, n in sorted(self._histogram.items())})

    def _states(self, row, number, parameter):
        """Those that another group's process has made for this optimizer, or new ones."""
        made_for = row[shared.OPTIMIZER]
        if made_for > self._number:  # others know a newer optimizer already; ours is done soon
            return Shared(self._optimizer, number, parameter.array)
        if made_for == self._number:
            return Shared(self._optimizer, number, parameter.array, self._memory.region(row, shared.STATES))
        made = Shared(self._optimizer, number, parameter.array,
                      lambda length: self._memory.place(row, shared.STATES, length), new=True)
        row[shared.OPTIMIZER] = self._number
        parameter.counters[_BATCHES] = 0  # a schedule begins anew
        if self._number == 1 and number in self._given:
            made.give(self._given[number], parameter.size, self._host, self._layout.hosts)
        return made

    def _merge(self, number, parameter, total):
        counters, optimizer = parameter.counters, self._optimizer
        size, workers = self._sizes[self._group], sum(self._sizes)
        y = int(counters[_UPDATES] - counters[_LAST + self._group] + 1)
        counters[_UPDATES] += 1
        counters[_BATCHES] += size
        counters[_LAST + self._group] = counters[_UPDATES]
        newest = self._memory.raise_round(self._number, int(-(-counters[_BATCHES] // workers)))
        scale = optimizer.rescale_grad * workers / size / (y if self._divided == GRADIENT else 1)
        with _set(optimizer, scale, y if self._divided == RATE else 1, newest):
            parameter.step(number, optimizer, total)
        return y, scale

    def _count(self, number, y, scale, total):
        self._updates += 1
        self._histogram[y] = self._histogram.get(y, 0) + 1
        if self._trace:
            values = view(total)
            events.from_env().write("merge", group=self._group, parameter=number, y=y, scale=scale, size=len(values),
                                    sum=float(values.sum(dtype=numpy.float64)))
        if time.monotonic() - self._reported > _REPORT_SECONDS:
            self.close()


def of_process(environ, rank, given):
    """The GroupUpdate of the server process with these variables. MxclusterError if ps-lite gave it another rank than planned."""
    layout = layouts.from_environment(environ)
    process = int(environ["MXCLUSTER_INDEX"])
    host, group = divmod(process, layout.groups)
    if rank != layout.ranks[process]:
        raise MxclusterError("ps-lite gave server-%d the rank %d, and the plan says %d: its keys would be those of another group"
                             % (process, rank, layout.ranks[process]))
    groups = environ["MXCLUSTER_GROUPS"].split(",")
    path = shared.path_of(seal.read_token(environ["MXCLUSTER_JOB_DIR"]), host)
    return GroupUpdate(layout, host, group, [groups.count(str(number)) for number in range(layout.groups)],
                       shared.Memory(path, layout.groups, layout.capacity), given, environ.get("MXCLUSTER_GSYNC_Y") or RATE,
                       environ.get("MXCLUSTER_TRACE") == "1")


class Parameter(object):
    """A parameter's part that is at home on this host, in shared memory: counters, then the newest weights.

    Attributes: ``counters`` (int64); ``size``; ``array``, the NDArray that the optimizer works on; ``states``.
    """

    def __init__(self, memory, row, stored, groups):
        self._stored, self._snapshot = stored, view(stored)
        self.size, self.states = self._snapshot.size, None
        length = 8 * (_LAST + groups)
        region = memory.region(row, shared.WEIGHTS)
        is_first = region is None
        if is_first:
            region = memory.place(row, shared.WEIGHTS, length + 4 * self.size)
        self.counters = numpy.frombuffer(region, dtype=numpy.int64, count=_LAST + groups)
        self._newest = numpy.frombuffer(region, dtype=numpy.float32, offset=length, count=self.size)
        if is_first:  # before its first merge a group's copy is what the first worker has initialised
            numpy.copyto(self._newest, self._snapshot)
        self._shared = array_on(self._newest, stored.shape)
        self.array = stored if self._shared is None else self._shared

    def step(self, number, optimizer, total):
        """Let the optimizer change the newest weights, and the group's copy be what comes of it."""
        if self._shared is None:
            self.publish()
        self.states.update(optimizer, number, self.array, total)
        self.array.wait_to_read()
        if self._shared is None:
            numpy.copyto(self._newest, self._snapshot)
        else:
            self.publish()

    def publish(self):
        """The group's copy becomes the newest weights."""
        numpy.copyto(self._snapshot, self._newest)


@contextlib.contextmanager
def _set(optimizer, scale, divisor, newest_round):
    """The optimizer, with another scale of gradients and a divided learning rate for one update."""
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
