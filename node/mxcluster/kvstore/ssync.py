"""``dist_ssync``: stale synchronous parallel on a worker."""

import os

from mxnet import nd

from mxcluster import events
from mxcluster.kvstore.base import AsyncStore
from mxcluster.kvstore.keys import KeyLayout
from mxcluster.kvstore.merge import FINISHED, StaleUpdate


class StaleStore(AsyncStore):
    """Weights are shared as under dist_async; iteration t starts when ``t - min(clock) <= staleness``.

    Source: Ho et al., NIPS 2013.  (MXNet-G writes s + 1 for the same bound, and gives up after nine seconds.)
    A worker's clock is the number of iterations whose updates are on the servers.  In the first iteration, whose length is
    still being learnt, every parameter counts as one; all workers do so alike, and no bound is exceeded by it.
    """

    name = "dist_ssync"

    def __init__(self, groups, index):
        super(StaleStore, self).__init__(groups, index)
        self.staleness = int(os.environ["MXCLUSTER_STALENESS"])
        self.layout = KeyLayout(1, self.servers)
        self._clock_key = self.layout.clock(0, 0)
        self._clock = nd.zeros((len(groups),))
        self._iteration = 0
        self._counted = None  # the step that the clock has counted
        self._slowest = 0  # min(clock) at the last look
        self._trace = os.environ.get("MXCLUSTER_TRACE") == "1"

    def close(self):
        """Counts this worker as infinitely far, so that nobody waits for it any more."""
        super(StaleStore, self).close()
        if self._sent_scale is not None:
            self._advance(FINISHED)

    def _own_key(self, index):
        return self.layout.key(0, index)

    def _all_keys(self, index):
        return [self._own_key(index)]

    def _clock_keys(self):
        clocks = [(self._clock_key, len(self.groups))]
        return clocks, clocks

    def _server_update(self, optimizer, gluon):
        return StaleUpdate(optimizer, self.layout, len(self.groups))

    def _serve(self, pulls):
        # A pull is answered after the push of the same key, so complete pulls mean that the updates have arrived,
        # and only then may the clock say so: messages to different servers have no order.
        self._pull_now(pulls)
        for _, arrays, _ in pulls:
            for array in arrays if isinstance(arrays, (list, tuple)) else [arrays]:
                array.wait_to_read()
        if self._counted == self._counts["steps"] and not self._pattern.learning:
            return  # a pull outside the pattern of this step
        self._counted = self._counts["steps"]
        self._iteration += 1
        self._advance(1.0)
        if not self._may_start():
            self._wait_until(self._look)
            # What was pulled above may miss updates that this iteration must see.
            self._pull_now(pulls)
        if self._trace:
            events.from_env().write("ssync", iteration=self._iteration, slowest=self._slowest)
        self._slowest = self._newest()  # seen before the next pull, hence valid for the next iteration

    def _advance(self, ticks):
        tick = nd.zeros((len(self.groups),))
        tick[self.index] = ticks
        super(AsyncStore, self).push(self._clock_key, tick)
        super(AsyncStore, self).pull(self._clock_key, out=self._clock)
        self._clock.wait_to_read()

    def _may_start(self):
        return self._iteration - self._slowest <= self.staleness

    def _look(self):
        super(AsyncStore, self).pull(self._clock_key, out=self._clock)
        self._slowest = self._newest()
        return self._may_start()

    def _newest(self):
        return int(self._clock.asnumpy().min())
