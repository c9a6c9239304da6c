"""Make the updates of several groups on one host, for scripts that run without a job."""

import os

from mxcluster.node import mxnet_compat

mx = mxnet_compat.import_mxnet()

from mxcluster.training.kvstore.gsync_server import GroupUpdate, Lateness  # noqa: E402
from mxcluster.training.kvstore.key_layout import Layout  # noqa: E402
from mxcluster.training.kvstore.shared_memory import Memory, path_of  # noqa: E402


def of_groups(sizes, **lateness):
    """Return (Layout, [GroupUpdate of each group]) for a parameter of groups with these sizes."""
    groups = len(sizes)
    layout, path = Layout(groups, 1, list(range(groups))), path_of(os.urandom(16), 0)
    return layout, [
        GroupUpdate(layout, group, sizes, Memory(path, groups, 1), {}, Lateness(**lateness))
        for group in range(groups)
    ]
