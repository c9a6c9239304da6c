"""MXNet's own distributed stores, whose pushes keep behind the last pull of their key."""

from typing import Optional

from mxnet.kvstore import KVStore

from mxcluster.node.mxnet_types import Method
from mxcluster.training.kvstore.call_arguments import Keys, Values
from mxcluster.training.kvstore.pull_order import PullOrder


class StockStore(KVStore):
    """A distributed store of MXNet with the order of `pull_order`.

    Without this order, workers may begin with different weights: the servers replace the first
    weights by the sum of the first gradients if they have no optimizer, as with
    ``update_on_kvstore=False``, and may do so before they answer the pull of a ``broadcast``.
    """

    order: PullOrder

    def push(self, key: Keys, value: Values, priority: int = 0) -> None:
        """Push the gradients `value` of the parameters `key` to the servers."""
        self.order.pushes(self.order.new(key, value))
        super(StockStore, self).push(key, value, priority)

    def pull(
        self, key: Keys, out: Optional[Values] = None, priority: int = 0, **more: bool
    ) -> None:
        """Pull the parameters `key` into the arrays `out`. `more` depends on MXNet's version."""
        super(StockStore, self).pull(key, out, priority, **more)
        self.order.pulls(key, out)

    def row_sparse_pull(
        self,
        key: Keys,
        out: Optional[Values] = None,
        priority: int = 0,
        row_ids: Optional[Values] = None,
    ) -> None:
        """Pull the rows `row_ids` of the parameters `key` into the sparse arrays `out`."""
        super(StockStore, self).row_sparse_pull(key, out, priority, row_ids)
        self.order.pulls(key, out)

    if hasattr(KVStore, "pushpull"):  # MXNet 1.7 and later

        def pushpull(
            self, key: Keys, value: Values, out: Optional[Values] = None, priority: int = 0
        ) -> None:
            """Push the gradients `value`, then pull the parameters into `out`, or into `value`."""
            self.order.pushes(self.order.new(key, value))
            super(StockStore, self).pushpull(key, value, out, priority)
            self.order.pulls(key, value if out is None else out)

        def broadcast(self, key: Keys, value: Values, out: Values, priority: int = 0) -> None:
            """Initialize the parameters `key` with `value` of rank 0, then pull them into `out`."""
            super(StockStore, self).broadcast(key, value, out, priority)
            self.order.pulls(key, out)


def ordered(store: Method) -> StockStore:
    """Return `store`, a distributed store of MXNet, as a StockStore."""
    store.__class__, store.order = StockStore, PullOrder()
    return store
