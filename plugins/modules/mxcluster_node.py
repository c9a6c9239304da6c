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
  python:
    description: The Python interpreter on the node that has mxcluster (and for V(record) MXNet).
    type: str
    required: true
  command:
    description:
      - V(look) returns the parts of O(request) that the node cannot provide. V(record) returns the
        node's addresses, GPUs and versions. V(check) returns all facts for verify.yml.
      - V(start) starts the agent of O(job_dir). V(wait) waits for the end of the job, at most
        O(seconds). V(status) returns the state of the job. V(stop) ends the job on this node.
        V(collect) packs the files of the job into the tar file O(output).
      - For a job whose agents an engine of the site starts, such as mpirun, V(prepare) writes the
        files of V(start) and starts nothing. V(launch) on the first node starts the engine, and
        returns when the agents of all nodes have started. V(join) then returns the answer of
        V(start).
      - V(logs) returns the last O(lines) of all logs. V(plan) returns the plan of the whole job.
        V(piece) returns at most O(most) bytes of the checkpoint's O(file), from O(offset) on, and
        renews the lease.
      - V(jobs) returns the jobs in O(jobs_dir). V(jobs) and V(start) first remove leftovers of
        ended jobs. A power cut of the node leaves tokens, leases, secrets and disk reserves of
        jobs. A killed run of Ansible leaves archives and temporary folders.
    type: str
    required: true
    choices:
      [look, record, check, start, prepare, launch, join, wait, status, stop, collect, logs, plan,
       jobs, piece]
  job_dir:
    description:
      - The job's folder on the node, with plan.json. All commands except V(look), V(record),
        V(check) and V(jobs) require this option.
    type: str
  jobs_dir:
    description: For V(jobs), the folder on the node that holds the folders of all jobs.
    type: str
  job:
    description: For V(jobs), a job to return even if it ended long ago. Of the other jobs, V(jobs)
      returns only the running jobs and the jobs that ended last.
    type: str
    default: ""
  lines:
    description: For V(logs), the number of lines of each log.
    type: int
    default: 20
  packed_plan:
    description:
      - The RV(ignore:packed_plan) of C(mxcluster_plan). The action plugin extracts this node's
        part.
      - The part replaces these options; for V(look) O(request), for V(check) the C(cuda) of
        O(request), for V(start) O(plan), for V(wait) O(together), O(request) and the C(plan) of
        O(checkpoints).
      - For V(look) with O(problems), O(job_dir) is required, too. A plan with other paths than
        O(python) and O(job_dir) is then a problem.
    type: str
  only_meet:
    description: For V(start) with O(packed_plan), whether the agents only hold the rendezvous and
      start no process.
    type: bool
    default: false
  plan:
    description: For V(start), this node's part of the plan, which is written into O(job_dir).
    type: dict
  secret_env:
    description:
      - For V(start), secret environment variables of the processes besides those of O(plan). No
        plan, log or result contains them. A file of mode 0600 in O(job_dir) holds them from the
        start until the agent has read the file.
      - Ansible masks these values wherever they occur in the result, also where they are no secret.
    type: dict
    default: {}
  token:
    description:
      - For V(start), the secret by which the job's processes authenticate each other, the same on
        all nodes. A file of mode 0600 in O(job_dir) holds the token until the job has ended. No
        plan, log or result contains the token. The action plugin creates the token.
    type: str
  script:
    description: For V(start), the folder of the user's script as a zip file in base64. V(start)
      unpacks the zip file into O(job_dir).
    type: str
  request:
    description:
      - For V(look), the resources of the node that a job needs, such as C(address), C(interface),
        C(ports), C(gpus), C(jobs_dir), C(files) and C(python).
      - For V(check), C(etc_dir) with the three files, C(folders) to measure, and C(peers) to reach
        by ssh.
    type: dict
    default: {}
  hello:
    description: For V(look), the options C(users), C(trainer) and C(modules) of
      M(mxcluster_preflight), to test the connection in the same call.
    type: dict
  problems:
    description: For V(look), the problems that the controller has found. With this option, even
      with an empty list, the task fails if the controller or the node has found a problem.
    type: list
    elements: str
  seconds:
    description: The maximum duration of V(wait) in seconds. Half the job's lease is another limit.
    type: int
    default: 5
  board:
    description:
      - For V(wait), the name of the board, a folder in the temporary folder of this run of Ansible
        on the controller. The board contains the names of nodes whose part has failed. Once the
        board contains a node, the action plugin ends the running parts of the other nodes, as
        V(stop) does.
    type: str
  keeper:
    description:
      - For V(wait) with a O(board), whether the job needs this run of Ansible. With V(true), the
        board also gets the names of lost nodes. With V(false), the job may go on without contact to
        this controller.
    type: bool
    default: true
  together:
    description:
      - For V(wait) with a O(board), lists of worker indices. The servers merge pushes only when all
        workers of a list have pushed. If a worker blocks the other workers of its list for
        ever, the action plugin puts the node of this worker on the board.
    type: list
    elements: list
    default: []
  patience:
    description:
      - For V(wait), the seconds for which the action plugin retries an unreachable node before the
        task fails. The job's lease is a good choice, because the job ends when the lease runs out.
    type: float
    default: 0
  checkpoints:
    description:
      - For V(wait), the destination of the running job's checkpoints on the controller, as
        C(folder), C(keep) (the number of complete checkpoints to keep) and C(plan) (the content of
        plan.json beside the folder).
      - The action plugin fetches the checkpoints one by one with V(piece). It writes plan.json with
        the first checkpoint.
    type: dict
  took:
    description: For V(wait), the name of a checkpoint that is complete on the controller. The
      action plugin sets this option.
    type: str
    default: ""
  peer:
    description:
      - For V(stop), whether the reason is the failure of another node's part. Otherwise the reason
        is a user's request.
    type: bool
    default: false
  file:
    description: For V(piece), the name of a file of a checkpoint.
    type: str
  offset:
    description: For V(piece), the position of the first byte in the file.
    type: int
    default: 0
  most:
    description: For V(piece), the maximum number of bytes.
    type: int
    default: 1048576
  output:
    description: The tar file that V(collect) writes on the node, or V(wait) with O(into).
    type: str
  into:
    description: For V(wait), a file on the controller. When the node's part has ended, the action
      plugin packs its files as V(collect) does, and fetches the tar file to this path.
    type: path
  spool:
    description:
      - For V(collect), the folder for the tar file if root packs files of another user; created if
        missing. Only root can write to the folder, so no other user can replace the tar file before
        the controller fetches it.
    type: str
  told:
    description:
      - For V(collect), the reason of the job's end from the result of V(wait); empty if unknown. If
        the job is a unit, root compares the reason with the unit's state.
    type: str
    default: ""
  reader:
    description:
      - For V(collect) into O(spool), the uid of the login user, who becomes the owner of the tar
        file. The action plugin sets this option if the login user is not root.
    type: int
  user:
    description:
      - The user that runs the command, if the module runs as root; empty for the current user.
        Where the role C(agent_unit) has installed its unit, root starts a job as an instance of the
        unit and opens the firewall while the job runs.
    type: str
    default: ""
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
  description: Whether the ports and GPUs of O(request) are free.
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
  description: The content of the job's status.json; null if O(job_dir) contains no job to stop or
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
pid:
  description: The process id of the agent.
  returned: command is start
  type: int
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
  description: Whether RV(output) is in O(spool), where the login user can read the file.
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
  description: Whether RV(jobs) contains O(job).
  returned: command is jobs
  type: bool
asked:
  description: O(python) and O(jobs_dir) as given.
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
  returned: command is wait, the node's part has ended, and O(into) is given
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
left_out:
  description: The files in O(job_dir) that were not packed.
  returned: command is collect
  type: list
  elements: str
"""
