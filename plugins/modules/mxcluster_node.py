#!/usr/bin/python
# -*- coding: utf-8 -*-
"""Documentation of the action plugin mxcluster_node, which runs mxcluster.entry on the node."""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
---
module: mxcluster_node
short_description: Examine a node, and start, watch and end its part of a training job
description:
  - Runs C(python -I -m mxcluster.entry) on the node and returns its JSON answer. Ansible copies no
    module to the node.
  - A job's processes on a node are children of an agent. The agent ends all processes when one
    process fails or the job's lease runs out. The command V(wait) renews the lease, so a job goes
    on only as long as a controller polls the agent.
attributes:
  check_mode:
    description: In check mode the module changes nothing and reports the change that it would make.
    support: full
  diff_mode:
    description: With C(--diff) the module returns the contents before and after a change.
    support: none
author:
  - The mxcluster authors
options:
  command:
    description:
      - The name of a command in C(python/mxcluster/model/protocol.py). The fields of the command's
        class are further arguments of the task, and have their descriptions there.
      - V(look) returns the parts of C(request) that the node cannot provide. V(record) returns the
        node's addresses, GPUs and versions. V(check) returns all facts for verify.yml. V(jobs)
        returns the jobs of the node.
      - V(start) starts the agent of a job. V(wait) waits for the end of the job. V(status) returns
        the state of the job. V(stop) ends the job on this node. V(collect) packs the files of the
        job. V(logs), V(plan) and V(piece) return the ends of all logs, the plan of the whole job,
        and a piece of a checkpoint.
      - For a job whose agents an engine of the site starts, such as mpirun, V(prepare) writes the
        files of V(start) and starts nothing. V(launch) on the first node starts the engine, and
        returns when the agents of all nodes have started. V(join) then returns the answer of
        V(start).
    type: str
    required: true
  python:
    description:
      - The Python interpreter on the node that has mxcluster (and for V(record) MXNet). It may
        begin with C(~/).
      - Further arguments that stay on the controller are the fields of the class Options in
        C(python/mxcluster/ansible/node_arguments.py).
    type: str
    required: true
notes:
  - Paths on the node may begin with C(~/), the home of the become user.
  - In check mode V(start), V(prepare), V(launch), V(join), V(wait), V(stop), V(collect) and
    V(piece) do nothing; the other commands only read.
"""

EXAMPLES = r"""
- name: Check whether the node can run its part of the job
  mxcluster_node:
    python: /opt/mxcluster/env/bin/python
    command: look
    request:
      address: 10.0.0.5
      interface: eth0
      ports: [9091, 9092]
      gpus: [0, 1]
      files: [/data/mnist]
    problems: [] # the task fails if the node reports a problem

- name: Start the job's agent on the node
  mxcluster_node:
    python: /opt/mxcluster/env/bin/python
    command: start
    job_dir: /var/lib/mxcluster/jobs/20261121-101500-dist_sync
    packed_plan: "{{ planned.packed_plan }}"

- name: Wait for the end of the job
  mxcluster_node:
    python: /opt/mxcluster/env/bin/python
    command: wait
    job_dir: /var/lib/mxcluster/jobs/20261121-101500-dist_sync
    seconds: 5
  register: node_wait
  until: node_wait is failed or node_wait.ended
  retries: 100000
  delay: 0
"""

RETURN = r"""
problems:
  description: The resources that the node cannot provide, each as a message with a cure; empty
    without problems.
  returned: command is look
  type: list
  elements: str
  sample: ["/data/mnist does not exist on this node: correct the path, or copy the data there"]
facts:
  description: The facts C(interfaces), C(address_of_default_route), C(gpus) and C(python_version)
    of the node.
  returned: command is look
  type: dict
held:
  description: The C(ports) and C(gpus) in use, with their owners.
  returned: command is look
  type: dict
ports_open:
  description: The reason that the ports of jobs on this node are open to all hosts; empty if root
    protects the ports with a firewall. For V(check), RV(check) contains this reason.
  returned: command is look
  type: str
fits:
  description: Whether the ports and GPUs of C(request) are free.
  returned: command is look
  type: bool
record:
  description: The facts of the node record, such as addresses, GPUs, versions of Python, MXNet and
    numpy, and names of the model zoo.
  returned: command is record
  type: dict
check:
  description: The facts for verify.yml, by the name of the check.
  returned: command is check
  type: dict
status:
  description: The content of the job's status.json; null if C(job_dir) contains no job to stop or
    wait for.
  returned: command is start, wait, status or stop
  type: dict
progress:
  description: The last C(start), C(batch), C(epoch) and C(end) event of each process, by its name.
  returned: command is wait or status
  type: dict
checkpoints:
  description: The job's checkpoints on the node; C(held), the name of the checkpoint that is kept
    for the controller, and C(parts), the contents of the existing manifests.
  returned: command is wait or status, and the node has checkpoints
  type: dict
data:
  description: The bytes of the piece in base64.
  returned: command is piece
  type: str
ended:
  description: Whether the job has ended on this node, for any reason.
  returned: command is wait or status
  type: bool
job:
  description: The id of the job that was started.
  returned: command is start
  type: str
ran:
  description: Whether the job was running.
  returned: command is stop
  type: bool
files:
  description: The number of packed files.
  returned: command is collect
  type: int
bytes:
  description: The size of the tar file.
  returned: command is collect
  type: int
output:
  description: The path of the tar file.
  returned: command is collect
  type: str
spooled:
  description: Whether RV(output) is in C(spool), where the login user can read the file.
  returned: command is collect
  type: bool
jobs:
  description: The node's part of each job, with its state, its ports and GPUs, and its progress.
  returned: command is jobs
  type: list
  elements: dict
cleared:
  description: The ids of the jobs whose leftovers were removed.
  returned: command is jobs, and not in check mode
  type: list
  elements: str
has:
  description: Whether RV(jobs) contains C(job).
  returned: command is jobs
  type: bool
asked:
  description: O(python) and C(jobs_dir) as given.
  returned: command is jobs
  type: dict
logs:
  description: The last lines of each log, by the name of its process.
  returned: command is logs
  type: dict
plan:
  description: The plan of the whole job. The training user can change it, so the controller must
    not trust it.
  returned: command is plan
  type: dict
left:
  description:
    - The leftovers of an ended job as strings; processes, listening ports and temporary folders of
      killed modules, and for a job that was a unit also loaded units and firewall rules. Empty if
      the node found none.
  returned: command is stop or collect
  type: list
  elements: str
  sample: ["pid 123 (python) still listens on port 9092"]
problem:
  description: The reason that no file was packed, null on success.
  returned: command is collect
  type: str
lost:
  description: C(since), the beginning of the node's silence (unix seconds), and C(why), the message
    of ssh.
  returned: command is wait and the node is unreachable
  type: dict
behind:
  description: A message for each worker whose script wrote files that stay on the node.
  returned: command is collect
  type: list
  elements: str
outside:
  description: A message for each process of the training user that began during the job and is in
    the unit of no job. Root makes this list.
  returned: command is collect
  type: list
  elements: str
packed:
  description: The result of V(collect).
  returned: command is wait, the node's part has ended, and C(into) is given
  type: dict
untrue:
  description: The contradiction between the result of V(wait) and the facts that root has; null
    without a contradiction.
  returned: command is collect
  type: str
units:
  description: The ids of the jobs whose unit has not ended, according to root; null if root checks
    no units.
  returned: command is jobs
  type: list
  elements: str
"""
