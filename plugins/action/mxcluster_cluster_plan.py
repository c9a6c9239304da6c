"""Plan the cluster files and the ssh files of all nodes on the controller.

The plugin calls `mxcluster.job.plan.inputs.plan_cluster` and `mxcluster.cluster.ssh_mesh`. Unlike a
template, the plugin reads the records of all nodes at once. Each error message of the plugin names
the host with the wrong setting.
"""

DOCUMENTATION = r"""
---
module: mxcluster_cluster_plan
short_description: Plan the cluster files and the ssh files of all nodes from the inventory
description:
  - With V(command=files), chooses the address and interface of every node and the contents of
    C(hosts), C(groups) and C(data_sharding), or fails with the errors of the inventory.
  - With V(command=ssh), returns the blocks of authorized_keys, known_hosts and ssh's configuration.
    All nodes get the same blocks.
  - Reads only the node records and the user's files on the controller.
attributes:
  check_mode:
    description: In check mode the module changes nothing and reports the change that it would make.
    support: full
    details: The module never writes a file. In check mode the module accepts missing node records.
  diff_mode:
    description: With C(--diff) the module returns the contents before and after a change.
    support: none
author:
  - The mxcluster authors
options:
  command:
    description: V(files) plans the cluster files, V(ssh) plans the ssh files.
    type: str
    required: true
    choices: [files, ssh]
  records_dir:
    description: The folder of the node records that provision.yml has written. For V(files), the
      file C(profile.json) beside this folder supplies missing groups and data shares.
    type: path
    required: true
  options:
    description: For V(files), the knobs C(hosts_file), C(groups_file), C(data_sharding_file) and
      C(dmlc_interface) of train.yml.
    type: dict
    default: {}
  inventory:
    description: For V(files), the result of the filter P(mxcluster_inventory#filter).
    type: dict
  forks:
    description: For V(files), Ansible's number of forks.
    type: int
  facts:
    description:
      - For V(files), the result of the filter P(mxcluster_interfaces#filter) for each node of this
        play. The node records supply the interfaces of the other nodes.
    type: dict
    default: {}
  cwd:
    description: For V(files), the folder to which the user's relative paths refer.
    type: path
  nodes:
    description: For V(ssh), the result RV(nodes) of V(command=files).
    type: dict
  variables:
    description: For V(ssh), the result of the filter P(mxcluster_ssh#filter).
    type: dict
  key_file:
    description: For V(ssh), the path of the private key on the nodes, as in ssh's configuration.
    type: str
"""

EXAMPLES = r"""
- name: Plan the cluster files of all nodes
  mxcluster_cluster_plan:
    command: files
    inventory: "{{ hostvars | mxcluster_inventory(groups) }}"
    forks: "{{ ansible_forks }}"
    records_dir: .state/local/nodes
    cwd: "{{ lookup('ansible.builtin.env', 'PWD') }}"
  register: planned
  run_once: true

- name: Plan the ssh files of all nodes
  mxcluster_cluster_plan:
    command: ssh
    nodes: "{{ planned.nodes }}"
    variables: "{{ hostvars | mxcluster_ssh(planned.nodes) }}"
    records_dir: .state/local/nodes
    key_file: ~/.ssh/id_ed25519
  run_once: true
"""

RETURN = r"""
nodes:
  description: The C(address) and C(interface) of every node, by host name.
  returned: command is files
  type: dict
files:
  description: The contents of C(hosts), C(groups) and C(data_sharding).
  returned: command is files
  type: dict
notes:
  description: Lines with the path of the profile, and whether the profile fits the workers.
  returned: command is files
  type: list
  elements: str
blocks:
  description: The blocks of C(authorized_keys), C(known_hosts) and C(config).
  returned: command is ssh
  type: dict
origins:
  description: The addresses from which the ssh connections of each host may come, a list by host.
  returned: command is ssh
  type: dict
gone:
  description: The hosts that have a node record but left the inventory.
  returned: command is ssh
  type: list
  elements: str
still_hold:
  description: The hosts of RV(gone) whose SSH key a host of the inventory still uses.
  returned: command is ssh
  type: list
  elements: str
"""

from typing import Any, Dict

from mxcluster.ansible.controller_task import ControllerTask
from mxcluster.cluster import node_records, ssh_mesh
from mxcluster.job.plan import inputs
from mxcluster.model.host_variables import of_hosts

Json = Dict[str, Any]

REQUIRED_IF = [
    ("command", "files", ["inventory", "forks", "cwd"]),
    ("command", "ssh", ["nodes", "variables", "key_file"]),
]


def carry_out(given: Json, check: bool) -> Json:
    """Plan the cluster files or the ssh files, and return the dict that RETURN describes.

    Args: `given` the arguments of the task; `check` True in check mode, which accepts missing
    node records.
    """
    if given["command"] == "files":
        return inputs.plan_cluster(
            given["options"],
            dict(given["inventory"], forks=given["forks"]),
            given["records_dir"],
            given["facts"],
            given["cwd"],
        )
    records = node_records.read(given["records_dir"])
    variables = of_hosts(list(given["nodes"]), given["variables"])
    return {
        "blocks": ssh_mesh.blocks(
            given["nodes"], records, variables, given["key_file"], draft=check
        ),
        "origins": ssh_mesh.origins_of(given["nodes"], variables),
        "gone": ssh_mesh.gone(given["nodes"], records),
        "still_hold": ssh_mesh.still_hold(given["nodes"], records),
    }


class ActionModule(ControllerTask):
    """The action plugin of `mxcluster_cluster_plan`, which Ansible runs on the controller."""
