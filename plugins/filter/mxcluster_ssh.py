"""Filter: select the hosts' variables for ssh with mxcluster.cluster.ssh_mesh.of_ssh."""

from mxcluster.cluster import ssh_mesh


class FilterModule(object):
    """Gives Ansible the filters of this file."""

    def filters(self):
        """Return {name of a filter: its function}."""
        return {"mxcluster_ssh": ssh_mesh.of_ssh}
