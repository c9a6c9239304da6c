"""Doorway to mxcluster.records on the controller."""
from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
name: mxcluster_record
short_description: The node record, from what a node has told
description:
  - Checks every field of a node's answer, and adds what the role knows itself, which counts.
  - A field that cannot be is refused by its name.
options:
  _input:
    description: RV(mxcluster_node#module:record) of M(mxcluster_node), an empty dict in check mode.
    type: dict
    required: true
  host:
    description: The node's name in the inventory.
    type: str
    required: true
  places:
    description: The paths on the node, and other facts that come from the role's variables.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show the record
  ansible.builtin.debug:
    msg: "{{ asked.record | mxcluster_record(inventory_hostname, {'job_dir': mxcluster_job_dir}) }}"
"""

RETURN = r"""
_value:
  description: The record.
  type: dict
"""

from ansible.errors import AnsibleFilterError

try:
    from mxcluster import records
    from mxcluster.errors import MxclusterError
except ImportError as error:
    raise AnsibleFilterError("the controller's Python cannot import mxcluster (%s): run `make venv`" % error)


def mxcluster_record(told, host, places):
    """`records.make` for Ansible."""
    try:
        return records.make(host, told, places)
    except MxclusterError as error:
        raise AnsibleFilterError(str(error))


class FilterModule(object):
    """What Ansible looks for."""

    def filters(self):
        """The filters of this file by name."""
        return {"mxcluster_record": mxcluster_record}
