#!/usr/bin/python
# -*- coding: utf-8 -*-
"""Doorway to mxcluster.planning.plan_cluster on the controller."""
from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
---
module: mxcluster_files
short_description: Make the three cluster files, or say what is wrong with the inventory
description:
  - Decides the address and interface of every node and the contents of C(hosts), C(groups) and C(data_sharding).
  - Reads the node records and the user's files on the controller; asks no node and writes nothing.
  - Runs on the controller, under a Python interpreter that has mxcluster.
author:
  - The mxcluster authors
options:
  options:
    description: Those knobs of train.yml that matter; C(hosts_file), C(groups_file), C(data_sharding_file), C(dmlc_interface).
    type: dict
    default: {}
  inventory:
    description: What the filter P(mxcluster_inventory#filter) gives.
    type: dict
    required: true
  forks:
    description: Ansible's number of forks.
    type: int
    required: true
  records_dir:
    description: The folder of the node records that provision.yml has written.
    type: path
    required: true
  facts:
    description:
      - For each node that has just been asked, what the filter P(mxcluster_interfaces#filter) makes of its facts. The
        others are known by their records.
    type: dict
    default: {}
  cwd:
    description: The folder at which the user's relative paths begin.
    type: path
    required: true
"""

EXAMPLES = r"""
- name: Make the files
  mxcluster_files:
    inventory: "{{ hostvars | mxcluster_inventory(groups) }}"
    forks: "{{ ansible_forks }}"
    records_dir: .state/local/nodes
    cwd: "{{ lookup('env', 'PWD') }}"
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
nodes:
  description: The C(address) and C(interface) of every node by host.
  returned: success
  type: dict
files:
  description: The texts of C(hosts), C(groups) and C(data_sharding).
  returned: success
  type: dict
"""

import traceback

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

try:
    from mxcluster import planning
    from mxcluster.errors import MxclusterError
    IMPORT_ERROR = None
except ImportError:
    IMPORT_ERROR = traceback.format_exc()


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec=dict(
            options=dict(type="dict", default={}),
            inventory=dict(type="dict", required=True),
            forks=dict(type="int", required=True),
            records_dir=dict(type="path", required=True),
            facts=dict(type="dict", default={}),
            cwd=dict(type="path", required=True),
        ),
        supports_check_mode=True,
    )
    if IMPORT_ERROR:
        module.fail_json(msg=missing_required_lib("mxcluster") + ". On the controller: make venv, then "
                             "source .venv/bin/activate", exception=IMPORT_ERROR)
    given = module.params
    try:
        found = planning.plan_cluster(given["options"], dict(given["inventory"], forks=given["forks"]),
                                      given["records_dir"], given["facts"], given["cwd"])
    except MxclusterError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, **found)


if __name__ == "__main__":
    main()
