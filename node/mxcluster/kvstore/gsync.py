"""``dist_gsync``: Grouping-SGD on a worker."""

import os

from mxnet import nd

from mxcluster.kvstore.base import AsyncStore
from mxcluster.kvstore.keys import KeyLayout, merges_per_server
from mxcluster.kvstore.merge import CLOCK_RANGE, GroupMerge


class GroupedStore(AsyncStore):
    """BSP inside a group, asynchronous between groups (Jiang et al., CCGrid 2019).

    A step waits for the own group alone: every server counts the merges of the group in a clock of one number, and
    the step is complete when each clock shows as many merges as this worker has pushed.  It can never show more,
    because nobody of the group pushes the next step before.
    """

    name = "dist_gsync"

    def __init__(self, groups, index):
        super(GroupedStore, self).__init__(groups, index)
        self.group = groups[index]
        self.layout = KeyLayout(max(groups) + 1, self.servers)
        self._clocks = [(key, nd.zeros((1,))) for key in self.layout.clocks(self.group)]
        self._expected = [0] * self.servers

    def refresh(self):
        """Brings the group's snapshot up to the newest weights of all groups, for the pulls that follow.

        To be called when no worker trains, as after the last step.
        """
        self._flush()
        for key, clock in self._clocks:
            super(AsyncStore, self).push(key, nd.ones((1,)))
            super(AsyncStore, self).pull(key, out=clock)
        for _, clock in self._clocks:
            clock.wait_to_read()

    def _own_key(self, index):
        return self.layout.key(self.group, index)

    def _all_keys(self, index):
        return [self.layout.key(group, index) for group in range(self.layout.groups)]

    def _clock_keys(self):
        every = [(key, 1) for group in range(self.layout.groups) for key in self.layout.clocks(group)]
        return every, [(key, 1) for key, _ in self._clocks]

    def _server_update(self, optimizer, gluon):
        sizes = [self.groups.count(group) for group in range(self.layout.groups)]
        return GroupMerge(optimizer, self.layout, sizes, scale=len(self.groups) if gluon else 1,
                          fixed_y=os.environ.get("MXCLUSTER_GSYNC_Y") == "1",
                          trace=os.environ.get("MXCLUSTER_TRACE") == "1")

    def _pushed(self, key, size):
        for server, merges in enumerate(merges_per_server(self.layout, key, size, self.bound)):
            self._expected[server] = (self._expected[server] + merges) % CLOCK_RANGE

    def _serve(self, pulls):
        self._wait_until(self._group_is_complete)
        self._pull_now(pulls)

    def _group_is_complete(self):
        for key, clock in self._clocks:
            super(AsyncStore, self).pull(key, out=clock)
        return [int(clock.asscalar()) for _, clock in self._clocks] == self._expected
