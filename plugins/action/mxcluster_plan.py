"""Doorway to mxcluster.planning on the controller."""
from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
---
module: mxcluster_plan
short_description: Make the plan of a training job, or say what is wrong with its input
description:
  - Decides which process runs on which node, with which address, port, GPUs, group, share of the data and environment.
  - Reads the node records and the user's files on the controller; asks no node and writes nothing.
author:
  - The mxcluster authors
options:
  options:
    description: The knobs of train.yml as they were given; strings are cast.
    type: dict
    required: true
  given:
    description: The names of those that were given with C(-e). They count for a job that goes on, also at their default.
    type: list
    elements: str
    default: []
  secrets:
    description: The C(names) in the knob secret_env, and the C(problems) with it, as P(mxcluster_secret_env#filter) tells them.
    type: dict
    default: {}
  held:
    description: What others have of each node, by host, as M(mxcluster_node) with V(command=look) tells it; all is free without.
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
  runs_dir:
    description: The folder of the runs.
    type: path
    required: true
  cwd:
    description: The folder at which the user's relative paths begin.
    type: path
    required: true
"""

EXAMPLES = r"""
- name: Plan
  mxcluster_plan:
    options: {kv: dist_gsync, num_epochs: "5"}
    inventory: "{{ hostvars | mxcluster_inventory(groups) }}"
    forks: "{{ ansible_forks }}"
    records_dir: .state/local/nodes
    runs_dir: runs
    cwd: "{{ lookup('ansible.builtin.env', 'PWD') }}"
  run_once: true
"""

RETURN = r"""
job:
  description: The job's id.
  returned: success
  type: str
options:
  description: What the options come to.
  returned: success
  type: dict
nodes:
  description: The hosts that take part.
  returned: success
  type: list
  elements: str
trainers:
  description: Those that run workers.
  returned: success
  type: list
  elements: str
packed_plan:
  description: The plan, and what each node must be able to give, as one text; the option O(mxcluster_node#module:packed_plan).
  returned: success
  type: str
table:
  description: The plan as lines for people.
  returned: success
  type: list
  elements: str
script:
  description: The folder of the user's script as a zip file in base64, empty for none.
  returned: success
  type: str
model:
  description: The saved model to start from, empty for none.
  returned: success
  type: str
resume:
  description: All files of the checkpoint to go on from, empty for none.
  returned: success
  type: list
  elements: str
"""

from mxcluster import planning
from mxcluster.controller_task import ControllerTask
from mxcluster.plan import packed


def carry_out(given, check):
    """The plan of a job."""
    planned = planning.plan_job(given["options"], dict(given["inventory"], forks=given["forks"]), given["records_dir"],
                                given["runs_dir"], given["cwd"], given["secrets"], given["held"], given["given"])
    return dict(packed.told(planned.pop("plan"), planned.pop("looks")), **dict(planned, table=planned["table"].splitlines()))


class ActionModule(ControllerTask):
    """What Ansible looks for."""
