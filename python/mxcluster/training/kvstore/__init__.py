"""The kv-stores ``dist_gsync`` (Grouping-SGD) and ``dist_ssync`` (SSP) on stock MXNet wheels.

Stock MXNet accepts both names and silently trains another scheme: synchronously, with a gradient W
times too large. docs/schemes.md defines the schemes of these stores.

=============  ====================================  =================================
where          ``dist_gsync``, several groups        ``dist_ssync``
=============  ====================================  =================================
on a worker    `gsync_worker.GroupedStore`           `ssync_worker.StaleStore`
its base       `worker_base.OwnStore`                `worker_base.OwnStore`
MXNet's part   sync mode, a server process for each  async mode
               group
on a server    `gsync_server.GroupUpdate`            `ssync_server.StaleUpdate`
shared         `shared_memory.Memory` of a host      a clock under a key of its own
=============  ====================================  =================================

`install` puts the stores into ``mx.kv.create``. `server_messages` sends messages from workers to
servers, `seal` and `optimizer_guard` check the messages, and `agreement` compares them.
`optimizer_states` saves and loads the optimizer's states in checkpoints.

`mxcluster.schemes` has one row for each scheme, with the names of its parts.
"""

import importlib


def load(name):
    """Return the class or function that `name` ("module:attribute" in this package) names."""
    module, attribute = name.split(":")
    return getattr(importlib.import_module("%s.%s" % (__name__, module)), attribute)
