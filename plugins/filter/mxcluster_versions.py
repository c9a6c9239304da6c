"""Doorway to mxcluster.versions: what goes on a node."""
from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
name: mxcluster_versions
short_description: Decide which MXNet, CUDA, cuDNN and driver go on a node
description: Fails with the reason, and the nearest that works, if what was chosen cannot work on the node.
positional: choice
options:
  _input:
    description: What is known of the node, C(host), C(system), C(system_version), C(python), C(gpus), C(driver), C(own_system),
      C(family), C(missing).
    type: dict
    required: true
  choice:
    description: What the person has chosen.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Decide
  ansible.builtin.set_fact:
    chosen: "{{ machine | mxcluster_versions({'cuda_version': '9.2', 'mxnet_version': '1.2.1'}) }}"
"""

RETURN = r"""
_value:
  description: See C(mxcluster.versions.decide).
  type: dict
"""

from ansible.errors import AnsibleFilterError

try:
    from mxcluster import versions
    from mxcluster.errors import MxclusterError
except ImportError as error:
    IMPORT_ERROR = error
else:
    IMPORT_ERROR = None


def mxcluster_versions(node, choice):
    """versions.decide, with the node's name before what it refuses."""
    if IMPORT_ERROR:
        raise AnsibleFilterError("%s: run `make venv`, then `source .venv/bin/activate`" % IMPORT_ERROR)
    try:
        return versions.decide(choice, node)
    except MxclusterError as refusal:
        raise AnsibleFilterError("%s: %s" % (node["host"], refusal))


class FilterModule(object):
    """What Ansible looks for."""

    def filters(self):
        """The filters of this file by name."""
        return {"mxcluster_versions": mxcluster_versions}
