"""The kv-stores ``dist_gsync`` (Grouping-SGD) and ``dist_ssync`` (SSP) on stock MXNet wheels.

Stock MXNet accepts both names, but silently trains as under dist_sync with a gradient W times too
large (W workers). docs/schemes.md defines the schemes of these stores.

=================  ====================================  =================================
part               ``dist_gsync``, several groups        ``dist_ssync``
=================  ====================================  =================================
store of a worker  `gsync_worker.GroupedStore`           `ssync_worker.StaleStore`
base class         `worker_base.OwnStore`                `worker_base.OwnStore`
MXNet's mode       sync mode, a server process for each  async mode
                   group
update on servers  `gsync_server.GroupUpdate`            `ssync_server.StaleUpdate`
shared data        `shared_memory.Memory` of a host      a clock under a separate key
=================  ====================================  =================================

`pull_order` keeps a worker's pushes behind the pulls of their keys, also those of MXNet's own
stores (`stock_store`). `server_update` has the base class of both updates. `install` puts the
stores into ``mx.kv.create``. `server_messages` sends messages from workers to servers.
`mxcluster.seal` and `optimizer_json` check the messages, and `server_classes` lists the allowed
classes. `agreement` compares the messages of all workers. `optimizer_states` saves and loads the
optimizer's states in checkpoints.

A row of `mxcluster.schemes` names the store and the update of each scheme.
"""

import importlib

from mxcluster.node.mxnet_types import Method


def load(name: str) -> Method:
    """Return the class or function with the `name` "module:attribute" in this package."""
    module, attribute = name.split(":")
    return getattr(importlib.import_module("%s.%s" % (__name__, module)), attribute)
