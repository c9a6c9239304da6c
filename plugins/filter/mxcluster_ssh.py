"""What the inventory says of ssh, and the controller's own known hosts (doorway to mxcluster.mesh)."""
from __future__ import absolute_import, division, print_function

__metaclass__ = type

from ansible.errors import AnsibleFilterError

try:
    from mxcluster import mesh
except ImportError as error:
    raise AnsibleFilterError("the controller's Python cannot import mxcluster (%s): run `make venv`" % error)

VARIABLES = ("ansible_host", "ansible_port", "node_host_key", "ssh_mesh_from")


def mxcluster_ssh(hostvars, hosts):
    """{host: those of its variables that are read here}."""
    return {host: {name: hostvars[host][name] for name in VARIABLES if name in hostvars[host]} for host in hosts}


def mxcluster_known_hosts(hostvars, hosts):
    """`mesh.of_the_controller` for these hosts of the inventory."""
    return mesh.of_the_controller(mxcluster_ssh(hostvars, hosts))


class FilterModule(object):
    """What Ansible looks for."""

    def filters(self):
        """The filters of this file by name."""
        return {"mxcluster_ssh": mxcluster_ssh, "mxcluster_known_hosts": mxcluster_known_hosts}
