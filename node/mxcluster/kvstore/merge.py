"""What runs on the servers, around the user's own optimizer.

The first worker pickles one of these and sends it to every server, which then calls ``receive`` once for every array
that any worker pushes.  It is told the key and nothing of the sender, so the group is part of
the key (`keys.KeyLayout`).

Pushed arrays are read through numpy views at once: in async mode they wrap the network buffer, which is freed
afterwards.  Keys other than the pushed one are written through views too, because a pull copies them without
waiting for MXNet's engine.
"""

import time

import numpy
from mxnet.lr_scheduler import LRScheduler

from mxcluster import events
from mxcluster.kvstore.step import Staleness
from mxcluster.kvstore.views import view

CLOCK_RANGE = 1 << 20  # clocks count modulo this, so that float32 holds every value exactly
FINISHED = float(1 << 22)  # what a worker adds to its clock when it will do no more iterations
_REPORT_SECONDS = 5.0


class RoundScheduler(LRScheduler):
    """Shows the user's schedule the number of rounds instead of the number of updates.

    A round is W batches, one step of dist_sync.  Servers see more updates than that when groups or workers update on
    their own, and a schedule in updates would lower the learning rate that many times too early.
    """

    def __init__(self, schedule):
        super(RoundScheduler, self).__init__(schedule.base_lr)
        self.schedule = schedule
        self.round = 0

    def __call__(self, num_update):
        return self.schedule(self.round)


class ServerUpdate(object):
    """Common ground of `GroupMerge` and `StaleUpdate`.

    Args: `optimizer` the user's; `layout` a `keys.KeyLayout`; `workers` W.
    """

    def __init__(self, optimizer, layout, workers):
        self.base = optimizer
        self.layout, self.workers = layout, workers
        self._scheduler = None
        if optimizer.lr_scheduler is not None:
            self._scheduler = optimizer.lr_scheduler = RoundScheduler(optimizer.lr_scheduler)
        self._batches = {}  # parameter index -> batches that its updates have merged so far
        self.apply = None  # the server sets what steps a weight: a `states.Updates` of `base`

    def receive(self, key, pushed, stored):
        """One array `pushed` by a worker, and what is `stored` under its key (NDArrays of equal shape)."""
        group, parameter = self.layout.split(key)
        if parameter is None:
            self._clock_pushed(group, stored, pushed)
        else:
            self._pushed(group, parameter, stored, pushed)

    def _step(self, parameter, weight, grad, batches):
        """Lets the user's optimizer change `weight` in place by `grad`, which merges so many workers' batches."""
        merged = self._batches[parameter] = self._batches.get(parameter, 0) + batches
        if self._scheduler is not None:
            rounds = self.base.begin_num_update - (-merged // self.workers)
            self._scheduler.round = max(self._scheduler.round, rounds)
        self.apply(parameter, grad, weight)
        weight.wait_to_read()

    def close(self):
        """Called once when the server has been told to stop."""


class GroupMerge(ServerUpdate):
    """Grouping-SGD (Jiang et al., CCGrid 2019; algorithm as in MXNet-G's kvstore_dist_server.h).

    A group's pushes of a parameter are summed.  At the last member's, the user's optimizer steps the *master*
    weights with the sum scaled by ``rescale_grad * scale / (|g| Y)``, and the master is copied into the group's key,
    its snapshot.  (In MXNet-G the snapshot is an alias of the live weights, so that members of one group may train on
    different weights; here it is a copy.)

    Args: `sizes` |g| of each group; `scale` W for programs that do not divide by W themselves (Gluon), else 1;
    `fixed_y` takes Y = 1 always, for comparisons.
    """

    def __init__(self, optimizer, layout, sizes, scale, fixed_y=False, trace=None):
        super(GroupMerge, self).__init__(optimizer, layout, sum(sizes))
        self.sizes, self.scale, self.fixed_y, self.trace = sizes, scale, fixed_y, trace
        self._staleness = Staleness()
        self._waiting = {}    # (group, parameter) -> pushes of the unfinished merge
        self._buffers = {}    # (group, parameter) -> (NDArray, view): the sum
        self._masters = {}    # parameter -> (NDArray, view)
        self._snapshots = {}  # group -> {parameter: (NDArray, view)}: what the group pulls
        self._clocks = {}     # group -> (NDArray, view), shape (1,)
        self._histogram = [{} for _ in sizes]
        self._updates = [0 for _ in sizes]
        self._reported = time.monotonic()

    def _clock_pushed(self, group, weight, grad):
        """A zero makes the clock known to this server; a one asks for a snapshot of the newest master."""
        if group not in self._clocks:
            self._clocks[group] = (weight, view(weight))
        if view(grad)[0]:
            for parameter, (_, snapshot) in self._snapshots.get(group, {}).items():
                if parameter in self._masters:
                    numpy.copyto(snapshot, self._masters[parameter][1])

    def _pushed(self, group, parameter, weight, grad):
        merge = (group, parameter)
        if merge not in self._buffers:
            self._first_push(merge, weight)
        buffer, total = self._buffers[merge]
        members = self._waiting.get(merge, 0) + 1
        if members == 1:
            numpy.copyto(total, view(grad, total.size))
        else:
            numpy.add(total, view(grad, total.size), out=total)
        if members < self.sizes[group]:
            self._waiting[merge] = members
            return
        self._waiting[merge] = 0
        self._merged(group, parameter, buffer, total)

    def _first_push(self, merge, weight):
        group, parameter = merge
        buffer = weight.copy()
        self._buffers[merge] = (buffer, view(buffer))
        self._snapshots.setdefault(group, {})[parameter] = (weight, view(weight))
        if parameter not in self._masters:
            # Before its first merge a snapshot still holds what the first worker initialised.
            master = weight.copy()
            self._masters[parameter] = (master, view(master))

    def _merged(self, group, parameter, buffer, total):
        y = self._staleness.update(group, parameter)
        factor = self.scale / float(self.sizes[group] * (1 if self.fixed_y else y))
        master, newest = self._masters[parameter]
        user_scale = self.base.rescale_grad
        self.base.rescale_grad = user_scale * factor
        try:
            self._step(parameter, master, buffer, batches=self.sizes[group])
        finally:
            self.base.rescale_grad = user_scale
        numpy.copyto(self._snapshots[group][parameter][1], newest)
        clock = self._clocks[group][1]
        clock[0] = (clock[0] + 1) % CLOCK_RANGE
        self._count(group, parameter, y, user_scale * factor, total)

    def _count(self, group, parameter, y, scale, total):
        self._updates[group] += 1
        self._histogram[group][y] = self._histogram[group].get(y, 0) + 1
        if self.trace:
            events.from_env().write("merge", group=group, parameter=parameter, y=y, scale=scale,
                                    size=len(total), sum=float(total.sum(dtype=numpy.float64)))
        if time.monotonic() - self._reported > _REPORT_SECONDS:
            self.close()

    def close(self):
        """Writes the histogram of Y, counted since the start, of every group to the events."""
        self._reported = time.monotonic()
        for group, histogram in enumerate(self._histogram):
            events.from_env().write("gsync", group=group, updates=self._updates[group],
                                    y={str(y): n for y, n in sorted(histogram.items())})


class StaleUpdate(ServerUpdate):
    """Stale synchronous parallel (Ho et al., NIPS 2013): every push is a step of the shared weights at once.

    The clock is an array of W counters under one key, to which each worker pushes its own increments.
    """

    def _clock_pushed(self, group, weight, grad):
        clock = view(weight)
        numpy.add(clock, view(grad), out=clock)

    def _pushed(self, group, parameter, weight, grad):
        self._step(parameter, weight, grad, batches=1)
