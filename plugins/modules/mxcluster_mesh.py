#!/usr/bin/python
# -*- coding: utf-8 -*-
"""Doorway to mxcluster.mesh on the controller."""
from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
---
module: mxcluster_mesh
short_description: What joins the nodes by ssh
description:
  - Makes the blocks of authorized_keys, known_hosts and ssh's configuration, the same for all nodes, from the node records.
  - Writes nothing. Runs on the controller, under a Python interpreter that has mxcluster.
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
  delegate_to: localhost
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

import traceback

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

try:
    from mxcluster import mesh, planning
    from mxcluster.errors import MxclusterError
    IMPORT_ERROR = None
except ImportError:
    IMPORT_ERROR = traceback.format_exc()


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec=dict(
            nodes=dict(type="dict", required=True),
            variables=dict(type="dict", required=True),
            records_dir=dict(type="path", required=True),
            # The name of a file, not what is in it.
            key_file=dict(type="str", required=True, no_log=False),
        ),
        supports_check_mode=True,
    )
    if IMPORT_ERROR:
        module.fail_json(msg=missing_required_lib("mxcluster") + ". On the controller: make venv, then "
                             "source .venv/bin/activate", exception=IMPORT_ERROR)
    given = module.params
    try:
        records = planning.read_records(given["records_dir"])
        # In check mode not every node need have a record yet.
        blocks = mesh.blocks(given["nodes"], records, given["variables"], given["key_file"], draft=module.check_mode)
    except MxclusterError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, blocks=blocks, gone=mesh.gone(given["nodes"], records),
                     still_hold=mesh.still_hold(given["nodes"], records))


if __name__ == "__main__":
    main()
