"""``dist_gsync`` with several groups: Grouping-SGD on a worker. With one group it is MXNet's own dist_sync (`install`)."""

import os

from mxnet import nd
from mxnet.kvstore import KVStore

from mxcluster.kvstore import layout, orders
from mxcluster.kvstore.base import IS_OLD, OwnStore

BOUND = "MXNET_KVSTORE_BIGARRAY_BOUND"


class GroupedStore(OwnStore):
    """BSP inside a group, asynchronous between groups (Jiang et al., CCGrid 2019).

    Each group has server processes of its own, which wait for its members and no others: a worker talks to those of its
    group alone, as under dist_sync. What the groups have in common the servers share (`group`).
    """

    name = "dist_gsync"
    inner = "dist_sync"

    def __init__(self, groups, index):
        self._bound = int(os.environ.get(BOUND, 1000 * 1000))
        os.environ[BOUND] = str(2 ** 31 - 1)  # ps-lite would cut an array over the servers of all groups; `_places` cuts it
        super(GroupedStore, self).__init__(groups, index)
        self.group = groups[index]
        self.layout = layout.from_environment(os.environ)

    @property
    def type(self):
        # Module and FeedForward divide by the batches of all workers if they find "dist" and "_sync" in it.
        return "gsync" if IS_OLD and self.in_trainer else "dist_sync_gsync"

    def refresh(self):
        """Brings what the group pulls up to the newest weights of all groups, for the pulls that follow.

        To be called when no worker of the group trains, as after the last step.
        """
        nd.waitall()  # a message may overtake what this worker has still to push
        orders.tell(self, "refresh", str(self.group))

    def pushpull(self, key, value, out=None, priority=0):
        if out is None or not hasattr(KVStore, "pushpull"):
            return super(GroupedStore, self).pushpull(key, value, out, priority)
        self._tell()
        keys, values = self._spread(key, value)
        return KVStore.pushpull(self, keys, values, out=self._spread(key, out)[1], priority=priority)

    def _places(self, number, size):
        return self._of(self.group, number, size)

    def _copies(self, number, size):
        return [place for group in range(self.layout.groups) for place in self._of(group, number, size)]

    def _of(self, group, number, size):
        parts = self.layout.parts(number, size, self._bound)
        if len(parts) == 1:
            return [(self.layout.key(group, number, parts[0][0]), None, None)]
        return [(self.layout.key(group, number, host), begin, end) for host, begin, end in parts]
