"""Filter: return the ssh settings of the inventory with mxcluster.cluster.ssh_mesh."""

from mxcluster.cluster import ssh_mesh


class FilterModule(object):
    """The filter plugin that Ansible loads."""

    def filters(self):
        """Return the filters of this file by name."""
        return {"mxcluster_ssh": ssh_mesh.of_ssh}
