#!/usr/bin/python
# -*- coding: utf-8 -*-
"""Documentation of the action plugin of the same name, which asks mxcluster.entry on the node."""
from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
---
module: mxcluster_node
short_description: Look at a node, and start, watch and end its part of a training job
description:
  - Runs C(python -I -m mxcluster.entry) on the node and returns the JSON that it answers. No module travels to the node for that.
  - A job's processes on a node are children of an agent, which ends them all when one fails and when the job's lease
    runs out. The command V(wait) renews the lease, so a job goes on only as long as somebody asks for it.
author:
  - The mxcluster authors
options:
  python:
    description: The Python interpreter on the node that has mxcluster (and for V(record) MXNet).
    type: str
    required: true
  command:
    description:
      - V(look) says what of O(request) the node cannot give. V(record) tells its addresses, GPUs and versions. V(check)
        tells all that verify.yml asks.
      - V(start) starts the agent of O(job_dir), V(wait) waits until the job has ended, V(status) says how it stands,
        V(stop) ends it, V(collect) packs what it has left into the tar file O(output), V(logs) tells the last O(lines) of all
        logs, V(plan) the plan of the whole job. V(piece) gives O(most) bytes of the checkpoint's O(file), from O(offset) on, and
        renews the lease.
      - V(jobs) tells of the jobs in O(jobs_dir), and first removes what no job owns any more, as V(start) does too. Tokens,
        leases and reserves are what a machine that was switched off leaves, archives and Ansible's temporary folders what a
        controller leaves that was killed.
    type: str
    required: true
    choices: [look, record, check, start, wait, status, stop, collect, logs, plan, jobs, piece]
  job_dir:
    description:
      - The job's folder on the node, holding plan.json. Needed by all commands but V(look), V(record), V(check) and V(jobs).
    type: str
  jobs_dir:
    description: For V(jobs), the folder on the node that holds the folders of all jobs.
    type: str
  job:
    description: For V(jobs), a job that is told of however old it is; the others are those that run and the last that have ended.
    type: str
    default: ""
  lines:
    description: For V(logs), how many lines of each log.
    type: int
    default: 20
  packed_plan:
    description:
      - What C(mxcluster_plan) has returned as RV(ignore:packed_plan). The action plugin takes this node's part from it.
      - For V(look) that is O(request), and with O(problems) the paths that O(python) and O(job_dir), then needed, should be; for
        V(check) the C(cuda) of O(request); for V(start) O(plan); for V(wait) O(together), and the C(plan) of O(checkpoints).
    type: str
  only_meet:
    description: For V(start) with O(packed_plan), that the nodes meet and start no process.
    type: bool
    default: false
  plan:
    description: For V(start), this node's part of the plan, which is written into O(job_dir).
    type: dict
  secret_env:
    description:
      - For V(start), environment variables that the processes get besides those of O(plan), and that are in no plan, no log and
        no result. They lie in O(job_dir) in a file of mode 0600 from the start until the agent has taken them.
      - Ansible masks these values wherever they occur in the result, also where they are no secret.
    type: dict
    default: {}
  token:
    description:
      - For V(start), what the job's processes prove with that they are of this job; the same on all nodes. It lies in O(job_dir)
        in a file of mode 0600 until the job has ended, and is in no plan, no log and no result. The action plugin makes it.
    type: str
  script:
    description: For V(start), the folder of the user's script as a zip file in base64. It is unpacked into O(job_dir).
    type: str
  request:
    description:
      - For V(look), what a job wants of the node; any of C(address), C(interface), C(ports), C(gpus), C(jobs_dir),
        C(files) and C(python).
      - For V(check), C(etc_dir) with the three files, C(folders) to measure, and C(peers) to reach by ssh.
    type: dict
    default: {}
  hello:
    description: For V(look), that the node is asked who one is there as M(mxcluster_contact) does it, in the same breath; its
      options C(users) and C(trainer).
    type: dict
  problems:
    description: For V(look), what is wrong with the node as far as the controller knows. If this is given, be it empty, the
      action plugin fails for these, and for what the node tells.
    type: list
    elements: str
  seconds:
    description: How long V(wait) waits at most. It never waits longer than half the job's lease.
    type: int
    default: 5
  board:
    description:
      - For V(wait), the name of a folder where nodes whose part has failed are noted, among those that this run of Ansible has
        for itself on the controller. A node that still runs when another is noted there is ended, as V(stop) does it. The
        action plugin of the same name sees to it.
    type: str
  keeper:
    description:
      - For V(wait) with a O(board), whether the job needs this run of Ansible. Then a node that cannot be reached any more is
        noted, too; without, the job may well go on where only this controller cannot reach it.
    type: bool
    default: true
  together:
    description:
      - For V(wait) with a O(board), lists of workers (by index) without whose push no other's is merged. If one of them is done,
        and another of its list has pushed more often and goes no further, the node of the first is noted. The action plugin
        sees to it.
    type: list
    elements: list
    default: []
  patience:
    description:
      - For V(wait), for how many seconds a node that cannot be asked, or cannot answer, is asked again before that is a failure.
        The job's lease is a good choice; when it has run out, there is no job any more. The action plugin sees to it.
    type: float
    default: 0
  checkpoints:
    description:
      - For V(wait), where on the controller the checkpoints of the running job are brought to, one after the other; C(folder),
        C(keep), how many whole ones stay there, and C(plan), which is written to plan.json beside that folder when the first
        comes. The action plugin sees to it, with V(piece).
    type: dict
  took:
    description: For V(wait), the name of a checkpoint all of which is on the controller. The action plugin gives it.
    type: str
    default: ""
  peer:
    description:
      - For V(stop), whether the reason is that another node's part of the job has failed. Else somebody has asked for the end.
    type: bool
    default: false
  file:
    description: For V(piece), the name of a file of a checkpoint.
    type: str
  offset:
    description: For V(piece), the first byte.
    type: int
    default: 0
  most:
    description: For V(piece), how many bytes at most.
    type: int
    default: 1048576
  output:
    description: The tar file that V(collect) writes on the node, or V(wait) with O(into).
    type: str
  into:
    description: For V(wait), a file on the controller. When the node's part has ended, what it has left is packed as V(collect)
      does it, and brought there. The action plugin of the same name sees to it.
    type: path
  spool:
    description:
      - For V(collect), the folder where the tar file lies instead if root packs what is another's; made if it is not there. It is
        root's alone, so that what is fetched from there is what was packed.
    type: str
  told:
    description:
      - For V(collect), how the job has ended by the answer to V(wait); empty if that is not known. Where the job is a unit, root
        compares.
    type: str
    default: ""
  reader:
    description:
      - For V(collect) into O(spool), the uid of who logs in, who is given the tar file. The action plugin of the same name asks
        for it where root is not who logs in.
    type: int
  user:
    description:
      - Who does it all, if the module runs as root; empty for whoever runs it. Where the role C(agent_unit) has put its
        unit, root starts a job as an instance of that, with the firewall open for as long as it runs.
    type: str
    default: ""
notes:
  - Paths on the node may begin with C(~/), the home of whom Ansible becomes there.
  - In check mode V(start), V(wait), V(stop), V(collect) and V(piece) do nothing; the other commands only read.
"""

EXAMPLES = r"""
- name: Look whether the node can take its part of the job
  mxcluster_node:
    python: /opt/mxcluster/env/bin/python
    command: look
    request:
      address: 10.0.0.5
      interface: eth0
      ports: [9091, 9092]
      gpus: [0, 1]
      files: [/data/mnist]
    problems: [] # so it fails if there are any

- name: Start the agent
  mxcluster_node:
    python: /opt/mxcluster/env/bin/python
    command: start
    job_dir: /var/lib/mxcluster/jobs/20261121-101500-dist_sync
    packed_plan: "{{ planned.packed_plan }}"

- name: Wait until the job has ended
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
  description: What the node cannot give, one text each with its cure; empty if all is well.
  returned: command is look
  type: list
  elements: str
  sample: ["/data/mnist does not exist on this node: correct the path, or bring it there"]
facts:
  description: What was seen of the node; C(interfaces), C(address_of_default_route), C(gpus), C(python_version).
  returned: command is look
  type: dict
held:
  description: Which ports and GPUs others have, and who; C(ports) and C(gpus).
  returned: command is look
  type: dict
ports_open:
  description: Why nothing keeps strangers from the ports of jobs on this node; empty if root and a firewall do. For V(check), it
    is in RV(check).
  returned: command is look
  type: str
fits:
  description: Whether that leaves the ports and GPUs of O(request).
  returned: command is look
  type: bool
record:
  description: The node record; addresses, GPUs, versions of Python, MXNet and numpy, names of the model zoo.
  returned: command is record
  type: dict
check:
  description: The facts by the name of their check.
  returned: command is check
  type: dict
status:
  description: The content of the job's status.json; null if there is no job in O(job_dir) to stop or wait for.
  returned: command is start, wait, status or stop
  type: dict
progress:
  description: For each process the last C(start), C(batch), C(epoch) and C(end) event that it wrote.
  returned: command is wait or status
  type: dict
checkpoints:
  description: What the node offers of the job's checkpoints; C(held), the name of the one that is kept for the controller, and
    C(parts), the manifests that are there, with their texts.
  returned: command is wait or status, and there are any
  type: dict
data:
  description: The bytes in base64.
  returned: command is piece
  type: str
ended:
  description: Whether the job has ended on this node, for whatever reason.
  returned: command is wait or status
  type: bool
job:
  description: The job that was started.
  returned: command is start
  type: str
pid:
  description: The process id of the agent.
  returned: command is start
  type: int
ran:
  description: Whether there was something to stop.
  returned: command is stop
  type: bool
files:
  description: How many files were packed.
  returned: command is collect
  type: int
bytes:
  description: The size of the tar file.
  returned: command is collect
  type: int
output:
  description: Where the tar file is.
  returned: command is collect
  type: str
spooled:
  description: Whether that is in O(spool), where whoever logs in can read it, and only root remove it.
  returned: command is collect
  type: bool
jobs:
  description: The node's part of each job, with its state, what it holds, and how far it is.
  returned: command is jobs
  type: list
  elements: dict
cleared:
  description: The jobs that had left something that no job owns any more, and that was removed.
  returned: command is jobs, and not in check mode
  type: list
  elements: str
has:
  description: Whether O(job) is one of them.
  returned: command is jobs
  type: bool
asked:
  description: O(python) and O(jobs_dir), as they were given.
  returned: command is jobs
  type: dict
logs:
  description: The last lines of each log, by the name of its process.
  returned: command is logs
  type: dict
plan:
  description: The plan of the whole job. It comes from the training user, whom nobody has to believe.
  returned: command is plan
  type: dict
left:
  description:
    - What was found of a job that should have ended, a text each; living processes, listening ports, temporary folders of
      modules that were killed, and where the job was a unit, loaded units and firewall rules. Empty if somebody has looked
      and found nothing.
  returned: command is stop or collect
  type: list
  elements: str
  sample: ["port 9092 is still listened on by pid 123 (python)"]
problem:
  description: Why nothing could be packed, null if it could.
  returned: command is collect
  type: str
lost:
  description: Of a node that could not be asked for O(patience); C(since) when (unix seconds), C(why), what ssh has said.
  returned: command is wait and the node is unreachable
  type: dict
behind:
  description: What of the files that scripts wrote stays on the node, a text for each worker.
  returned: command is collect
  type: list
  elements: str
packed:
  description: What V(collect) returned.
  returned: command is wait, the node's part has ended, and O(into) is given
  type: dict
untrue:
  description: Why the answer to V(wait) was not true, as root sees it; null if it may have been.
  returned: command is collect
  type: str
units:
  description: The jobs whose unit is there and has not ended, as root sees it; null where root does not look.
  returned: command is jobs
  type: list
  elements: str
left_out:
  description: What lies in O(job_dir) and was not packed.
  returned: command is collect
  type: list
  elements: str
"""
