"""Doorways to mxcluster.mesh."""
from __future__ import absolute_import, division, print_function

__metaclass__ = type

from ansible.errors import AnsibleFilterError

try:
    from mxcluster import mesh, planning
    from mxcluster.errors import MxclusterError
except ImportError as error:
    raise AnsibleFilterError("the controller's Python cannot import mxcluster (%s): run `make venv`" % error)

VARIABLES = ("ansible_host", "ansible_port", "node_host_key", "ssh_mesh_from")


def mxcluster_mesh(nodes, hostvars, records_dir, key_file, draft):
    """`mesh.blocks`, and "gone" and "still_hold", for the nodes of the plan; reads the node records."""
    try:
        records = planning.read_records(records_dir)
        found = mesh.blocks(nodes, records, variables_of(hostvars, nodes), key_file, draft)
    except MxclusterError as error:
        raise AnsibleFilterError(str(error))
    return dict(found, gone=mesh.gone(nodes, records), still_hold=mesh.still_hold(nodes, records))


def mxcluster_known_hosts(hostvars, hosts):
    """`mesh.of_the_controller` for these hosts of the inventory."""
    return mesh.of_the_controller(variables_of(hostvars, hosts))


def variables_of(hostvars, hosts):
    """{host: those of its variables that are read here}."""
    return {host: {name: hostvars[host][name] for name in VARIABLES if name in hostvars[host]} for host in hosts}


class FilterModule(object):
    """What Ansible looks for."""

    def filters(self):
        """The filters of this file by name."""
        return {"mxcluster_mesh": mxcluster_mesh, "mxcluster_known_hosts": mxcluster_known_hosts}
