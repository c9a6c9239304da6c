"""Doorway to mxcluster.plan.for_node."""
from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
name: mxcluster_for_node
short_description: One node's part of the plan of a job
description: Takes the plan that M(mxcluster_plan) has made and leaves out the processes of other nodes.
positional: _input, host
options:
  _input:
    description: The plan.
    type: dict
    required: true
  host:
    description: The node's name in the inventory.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Show this node's processes
  ansible.builtin.debug:
    msg: "{{ (plan | mxcluster_for_node(inventory_hostname)).processes }}"
"""

RETURN = r"""
_value:
  description: The part.
  type: dict
"""

from ansible.errors import AnsibleFilterError

try:
    from mxcluster.errors import MxclusterError
    from mxcluster.plan import for_node
except ImportError as error:
    raise AnsibleFilterError("the controller's Python cannot import mxcluster (%s): run `make venv`" % error)


def mxcluster_for_node(plan, host):
    """`plan.for_node` with Ansible's kind of error."""
    try:
        return for_node(plan, host)
    except MxclusterError as error:
        raise AnsibleFilterError(str(error))


class FilterModule(object):
    """What Ansible looks for."""

    def filters(self):
        """The filters of this file by name."""
        return {"mxcluster_for_node": mxcluster_for_node}
