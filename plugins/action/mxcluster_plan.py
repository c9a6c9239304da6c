"""Make the plan of a job on the controller with `mxcluster.job.plan.inputs`."""

DOCUMENTATION = r"""
---
module: mxcluster_plan
short_description: Make the plan of a job on the controller, or report errors of the input
description:
  - Assigns each process to a node. Chooses the address, port, GPUs, group, share of the data and
    environment of each process.
  - Reads only the node records and the user's files on the controller.
  - If C(grouping=auto) is set and no profile fits, the module first runs profile.yml as a child of
    this ansible-playbook. In check mode and with C(plan_only) the module skips this run.
attributes:
  check_mode:
    description: In check mode the module changes nothing and reports the change that it would make.
    support: full
    details: The module itself never writes a file.
  diff_mode:
    description: With C(--diff) the module returns the contents before and after a change.
    support: none
author:
  - The mxcluster authors
options:
  options:
    description: The knobs of train.yml as the user gave them. The module converts strings to the
      types of the knobs.
    type: dict
    required: true
  given:
    description: The names of the knobs given with C(-e). These knobs override the knobs of a
      resumed job, even with a default value.
    type: list
    elements: str
    default: []
  secrets:
    description: The C(names) in the knob secret_env, and the C(problems) of this knob, from
      P(mxcluster_secret_env#filter).
    type: dict
    default: {}
  held:
    description: The ports and GPUs in use on each node, by host, from M(mxcluster_node) with
      V(command=look). By default all ports and GPUs are free.
    type: dict
    default: {}
  inventory:
    description: The result of the filter P(mxcluster_inventory#filter).
    type: dict
    required: true
  forks:
    description: Ansible's number of forks.
    type: int
    required: true
  records_dir:
    description: The folder of the node records that provision.yml has written. The module also
      reads C(profile.json) beside this folder, if profile.yml has written this file.
    type: path
    required: true
  runs_dir:
    description: The folder of the runs. The module refuses a folder in which the controller cannot
      write.
    type: raw
    required: true
  measures:
    description: Whether the job measures the cluster for profile.yml instead of training.
    type: bool
    default: false
  mpi:
    description: For mpi.yml, the knobs of MPI as the user gave them. Empty for a training job.
    type: dict
    default: {}
  cwd:
    description: The folder to which the user's relative paths refer.
    type: path
    required: true
"""

EXAMPLES = r"""
- name: Plan a dist_gsync job of 5 epochs
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
  description: The effective values of all options.
  returned: success
  type: dict
nodes:
  description: The hosts that run a process of the job.
  returned: success
  type: list
  elements: str
start:
  description: The file in the tasks of the role train_job that starts the agents.
  returned: success
  type: str
trainers:
  description: The hosts that run workers.
  returned: success
  type: list
  elements: str
packed_plan:
  description: The plan and the required resources of each node, packed as one string for
    O(mxcluster_node#module:packed_plan).
  returned: success
  type: str
table:
  description: The plan as lines of text.
  returned: success
  type: list
  elements: str
script:
  description: The folder of the user's script as a zip file in base64, or empty without a script.
  returned: success
  type: str
needs_profile:
  description: Whether C(grouping=auto) is set and no profile fits the job's workers.
  returned: success
  type: bool
model:
  description: The path of the saved model to start from, or empty for a new model.
  returned: success
  type: str
resume:
  description: The paths of all files of the checkpoint to resume from, or empty for a new job.
  returned: success
  type: list
  elements: str
"""

import os
import sys
from typing import Any, Dict

from ansible import context

from mxcluster.ansible import attempts
from mxcluster.ansible.controller_task import ControllerTask, show
from mxcluster.errors import BadInput
from mxcluster.job.plan import inputs, mpi_inputs, packed

Json = Dict[str, Any]

TRAIN = "train.yml"
PROFILE = "profile.yml"
MOST = 90  # maximum number of characters of a job's id within the id of its measuring job


def plan(given: Json) -> Json:
    """Return the result of `plan_job` for a training job or an MPI job.

    Args: `given` the arguments of the task.
    """
    common = {name: given[name] for name in ("records_dir", "runs_dir", "cwd", "secrets", "held")}
    common["inventory"] = dict(given["inventory"], forks=given["forks"])
    if given["mpi"]:
        return mpi_inputs.plan_job(dict(given["options"], **given["mpi"]), **common)
    return inputs.plan_job(
        given["options"], anew=given["given"], measures=given["measures"], **common
    )


def measure(job: str) -> None:
    """Run profile.yml as a child of this ansible-playbook, for a job with grouping=auto.

    Args: `job` the job's id. Raises BadInput if the child fails, or if the command line cannot run
    again unattended.
    """
    own = next((path for path in context.CLIARGS["args"] if os.path.basename(path) == TRAIN), None)
    problem = attempts.refusal(sys.argv[0], context.CLIARGS)
    if own is None:
        problem = "the command line does not name %s" % TRAIN
    if problem:
        raise BadInput(
            "grouping=auto cannot run %s on the controller: %s. Run %s -e apply=true yourself, or "
            "use -e grouping=given" % (PROFILE, problem, PROFILE)
        )
    attempts.end_with_parent()
    extra = {"job_id": job[:MOST] + "-profile", "apply": True, "detach": False}
    status = attempts.run(extra, show, own, PROFILE)
    if status:
        raise BadInput(
            "grouping=auto: %s failed with status %d. Remove the error in the output above, "
            "or use -e grouping=given" % (PROFILE, status)
        )


def carry_out(given: Json, check: bool) -> Json:
    """Make the plan of a job, and return the dict that RETURN describes.

    If grouping=auto is set and no profile fits, the function first measures the cluster. In check
    mode and with plan_only it skips the measurement.

    Args: `given` the arguments of the task; `check` True in check mode.
    Raises BadInput for a wrong input, or if the measurement fails.
    """
    state_dir = os.path.dirname(os.path.abspath(given["records_dir"]))
    given = dict(given, runs_dir=inputs.results_folder(given["runs_dir"], state_dir))
    planned = plan(given)
    if planned["needs_profile"] and not (check or planned["plan"]["options"]["plan_only"]):
        measure(planned["plan"]["job"])
        planned = plan(given)
    return dict(
        packed.told(planned.pop("plan"), planned.pop("looks")),
        **dict(planned, table=planned["table"].splitlines()),
    )


class ActionModule(ControllerTask):
    """The action plugin of `mxcluster_plan`, which Ansible runs on the controller."""
