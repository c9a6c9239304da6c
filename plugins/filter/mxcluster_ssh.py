"""Filter: select the hosts' variables for ssh with mxcluster.cluster.ssh_mesh.of_ssh."""

from typing import Any, Callable, Dict

from mxcluster.cluster import ssh_mesh


class FilterModule(object):
    """Gives Ansible the filters of this file."""

    def filters(self) -> Dict[str, Callable[..., Any]]:
        """Return {name of a filter: its function}."""
        return {"mxcluster_ssh": ssh_mesh.of_ssh}
