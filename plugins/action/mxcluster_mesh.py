"""Doorway to mxcluster.mesh on the controller."""
from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
---
module: mxcluster_mesh
short_description: What joins the nodes by ssh
description:
  - Makes the blocks of authorized_keys, known_hosts and ssh's configuration, the same for all nodes, from the node records.
  - Writes nothing.
author:
  - The mxcluster authors
options:
  nodes:
    description: The nodes of the cluster by host, as M(mxcluster_files) returns them.
    type: dict
    required: true
  variables:
    description: What the filter P(mxcluster_ssh#filter) gives.
    type: dict
    required: true
  records_dir:
    description: The folder of the node records.
    type: path
    required: true
  key_file:
    description: The private key on the nodes, as ssh's configuration names it.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Make the blocks
  mxcluster_mesh:
    nodes: "{{ files.nodes }}"
    variables: "{{ hostvars | mxcluster_ssh(files.nodes) }}"
    records_dir: .state/mine/nodes
    key_file: ~/.ssh/id_ed25519
  run_once: true
"""

RETURN = r"""
blocks:
  description: The texts of C(authorized_keys), C(known_hosts) and C(config).
  returned: success
  type: dict
gone:
  description: The hosts that have a record and are no longer in the inventory.
  returned: success
  type: list
  elements: str
still_hold:
  description: Those of them that have a key which is still in use.
  returned: success
  type: list
  elements: str
"""

from mxcluster import mesh, planning
from mxcluster.controller_task import ControllerTask


def carry_out(given, check):
    """What ssh's files hold. In check mode not every node need have a record yet."""
    records = planning.read_records(given["records_dir"])
    return {"blocks": mesh.blocks(given["nodes"], records, given["variables"], given["key_file"], draft=check),
            "gone": mesh.gone(given["nodes"], records), "still_hold": mesh.still_hold(given["nodes"], records)}


class ActionModule(ControllerTask):
    """What Ansible looks for."""
