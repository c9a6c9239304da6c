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

from mxcluster import planning
from mxcluster.controller_task import ControllerTask


def carry_out(given, check):
    """What the three files hold."""
    return planning.plan_cluster(given["options"], dict(given["inventory"], forks=given["forks"]), given["records_dir"],
                                 given["facts"], given["cwd"])


class ActionModule(ControllerTask):
    """What Ansible looks for."""
