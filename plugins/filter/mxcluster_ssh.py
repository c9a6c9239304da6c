"""Filters: the functions of_ssh and on_node of mxcluster.cluster.ssh_mesh.

mxcluster_ssh selects the hosts' variables for ssh. mxcluster_ssh_on makes the authorized_keys of
one node from the block for all nodes.
"""

from typing import Any, Callable, Dict

from mxcluster.cluster import ssh_mesh


class FilterModule(object):
    """Gives Ansible the filters of this file."""

    def filters(self) -> Dict[str, Callable[..., Any]]:
        """Return {name of a filter: its function}."""
        return {"mxcluster_ssh": ssh_mesh.of_ssh, "mxcluster_ssh_on": ssh_mesh.on_node}
