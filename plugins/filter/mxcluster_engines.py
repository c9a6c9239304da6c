"""Filter: compare the engines that start the agents of a job, with mxcluster.job.launchers."""

DOCUMENTATION = r"""
name: mxcluster_engines
short_description: The differences between the engines of a job's nodes
description:
  - Returns a text if the nodes have different engines, or different versions of one. One mpirun
    starts the agents on all nodes.
options:
  _input:
    description: The RV(mxcluster_node#module:engine) of each node, by host; empty for a node
      without an engine.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show the differences between the engines
  ansible.builtin.debug:
    msg: "{{ {'node1': look.engine, 'node2': {}} | mxcluster_engines }}"
"""

RETURN = r"""
_value:
  description: The problems; empty without any.
  type: list
  elements: str
"""

from mxcluster.job import launchers


class FilterModule(object):
    """The filter plugin that Ansible loads."""

    def filters(self):
        """Return the filters of this file by name."""
        return {"mxcluster_engines": launchers.differing}
