"""The kv-store ``dist_gsync`` (Grouping-SGD) on a worker of a job with several groups.

In a job with one group, `install` uses MXNet's own dist_sync.
"""

import copy
import os
from typing import List, Optional, Set

from mxnet import nd
from mxnet.kvstore import KVStore

from mxcluster.environment import BOUND
from mxcluster.training.kvstore import key_layout, server_messages
from mxcluster.training.kvstore.call_arguments import Arrays, Keys, Values, first, pairs
from mxcluster.training.kvstore.worker_base import IS_OLD, Optimizer, OwnStore, Place, part

# Attributes of an optimizer that all processes compute alike.
_COUNTED = ("num_update", "_index_update_count", "_all_index_update_counts", "lr_scheduler")


class GroupedStore(OwnStore):
    """A kv-store that is synchronous (BSP) inside a group, and asynchronous between groups.

    Each group has its own server processes, which wait only for the members of this group. A worker
    uses the server processes of its own group, as under dist_sync. The servers share the newest
    weights of all groups (`gsync_server`). Source: Jiang et al., CCGrid 2019.
    """

    name = "dist_gsync"
    inner = "dist_sync"

    def __init__(self, groups: List[int], index: int) -> None:
        self._bound = int(os.environ.get(BOUND, 1000 * 1000))
        # ps-lite must not cut an array over the servers of all groups; `_places` cuts it.
        os.environ[BOUND] = str(2**31 - 1)
        super(GroupedStore, self).__init__(groups, index)
        self.group = groups[index]
        self.layout = key_layout.from_environment(os.environ)
        self._has_mates = groups.count(self.group) > 1
        self._unpulled: Set[int] = set()  # keys with a push and no pull since
        self._pulled_group, self._has_pushed = self.group, False

    @property
    def type(self) -> str:
        """The store's type, which Module, FeedForward and Gluon's Trainer read."""
        # If the type contains "dist" and "_sync", Module and FeedForward divide gradients by the
        # sum of the batch sizes of all workers.
        return "gsync" if IS_OLD and self.in_trainer else "dist_sync_gsync"

    def refresh(self) -> None:
        """Make later pulls of this group return the newest weights of all groups.

        Call this method while no worker of the group trains, for example after the last step. The
        servers update the group's copy of the weights only after a push of the group. A worker
        that only validates has no pushes. After this call such a worker pulls the copy of the
        group with the next number.
        """
        if not self._has_pushed:
            self._pulled_group = (self.group + 1) % self.layout.groups
            return
        nd.waitall()  # because a message may overtake pending pushes of this worker
        server_messages.send(self, "refresh", str(self.group))

    def pushpull(
        self, key: Keys, value: Values, out: Optional[Values] = None, priority: int = 0
    ) -> None:
        """Push the gradients `value`, then pull the weights into `out`.

        Module and Trainer of MXNet 1.7 and later call this method.
        """
        # MXNet's pushpull refuses compressed gradients.
        if out is None or self.compresses or not hasattr(KVStore, "pushpull"):
            return super(GroupedStore, self).pushpull(key, value, out, priority)
        self._begin_push(key, value)
        keys, values = self._spread(key, value)
        self._record_push(keys)
        self._unpulled.difference_update(keys)
        KVStore.pushpull(self, keys, values, out=self._spread(key, out)[1], priority=priority)
        self._order.pulls(key, out)

    def pull(
        self,
        key: Keys,
        out: Optional[Values] = None,
        priority: int = 0,
        ignore_sparse: bool = True,
    ) -> None:
        """Pull the weights of the parameters `key` into the arrays `out`."""
        if self._pulled_group == self.group:
            return super(GroupedStore, self).pull(key, out, priority, ignore_sparse)
        for name, arrays in pairs(key, out):
            for place in self._of(self._pulled_group, self._known(name)[0], first(arrays).size):
                KVStore.pull(self, place[0], out=part(arrays, place), priority=priority)

    def _push(self, keys: List[int], values: List[Arrays], priority: int) -> None:
        self._record_push(keys)
        super(GroupedStore, self)._push(keys, values, priority)

    def _pull(self, keys: List[int], values: List[Arrays], priority: int) -> None:
        super(GroupedStore, self)._pull(keys, values, priority)
        self._unpulled.difference_update(keys)

    def _as_json(self, optimizer: Optimizer) -> str:
        kept = numbers_kept(optimizer)
        if kept:
            raise ValueError(
                "dist_gsync with several groups cannot use %s: the server processes of the groups "
                "do not share the optimizer's Python attributes %s. Use another optimizer, or one "
                "group" % (type(optimizer).__name__, ", ".join(kept))
            )
        return super(GroupedStore, self)._as_json(optimizer)

    def _record_push(self, keys: List[int]) -> None:
        """Record a push of `keys`. Raise ValueError if a key has no pull since its last push.

        A server counts the pushes of a key, as under dist_sync. The server would count a worker's
        second push as the push of another worker.
        """
        self._has_pushed, self._pulled_group = True, self.group
        for key in keys if self._has_mates else ():
            if key in self._unpulled:
                raise ValueError(
                    "the script pushed parameter %d twice without a pull between the pushes: the "
                    "server would count the second push as a push of another worker. Add up "
                    "gradients before push(), or pull after each push" % self.layout.split(key)[1]
                )
            self._unpulled.add(key)

    def _places(self, number: int, size: int) -> List[Place]:
        return self._of(self.group, number, size)

    def _copies(self, number: int, size: int) -> List[Place]:
        return [
            place for group in range(self.layout.groups) for place in self._of(group, number, size)
        ]

    def _of(self, group: int, number: int, size: int) -> List[Place]:
        return [
            (self.layout.key(group, number, host), begin, end)
            for host, begin, end in self.layout.parts(number, size, self._bound)
        ]


def numbers_kept(optimizer: Optimizer) -> List[str]:
    """Return the names of the attributes that updates of `optimizer` change, sorted.

    The list omits update counts and the schedule. The function runs two updates on a copy of
    `optimizer`. The list is empty if an update raises an error.
    """
    tried = copy.deepcopy(server_messages.portable(optimizer))
    before = {name: repr(value) for name, value in vars(tried).items()}
    weight = nd.ones((2, 2))
    try:
        state = tried.create_state_multi_precision(0, weight)
        for _ in range(2):
            tried.update_multi_precision(0, weight, nd.ones((2, 2)), state)
        nd.waitall()
    except Exception:  # The optimizer does not accept this weight; the servers will report a fault.
        return []
    return sorted(
        name
        for name, value in vars(tried).items()
        if name not in _COUNTED and repr(value) != before.get(name)
    )
