"""Run the jobs of benchmark.yml or compare.yml with `mxcluster.job.sweep.runner`."""

DOCUMENTATION = r"""
---
module: mxcluster_sweep
short_description: Run a sweep of training jobs
description:
  - Expands the user's lists to jobs, and runs the jobs in sequence. The module fails before the
    first job if a job of the sweep is impossible.
  - For each job the module starts a child process. The child has the command line of this
    ansible-playbook, but runs train.yml with the knobs of the job.
  - Runs only jobs without a result. So a repeated run continues an interrupted sweep.
  - Shows the output of the running child immediately. Ctrl-C and the end of ansible-playbook also
    end the child.
  - Returns a failed verdict if a job failed. The module itself fails if the sweep is invalid, or if
    a job ended without a verdict.
attributes:
  check_mode:
    description: In check mode the module changes nothing and reports the change that it would make.
    support: full
    details: The module lists the jobs, as with O(plan_only).
  diff_mode:
    description: With C(--diff) the module returns the contents before and after a change.
    support: none
author:
  - The mxcluster authors
options:
  knobs:
    description: The knobs of the sweep as the user gave them.
    type: dict
    required: true
  options:
    description: The knobs of train.yml as the user gave them.
    type: dict
    required: true
  given:
    description: The names of the O(knobs) and O(options) that the user gave with C(-e).
    type: list
    elements: str
    default: []
  secrets:
    description: The C(names) in the knob secret_env, and the C(problems) of this knob, as for
      M(mxcluster_plan).
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
    description: The folder of the node records that provision.yml has written.
    type: path
    required: true
  runs_dir:
    description: The folder of the runs. The sweep and each of its jobs get a subfolder.
    type: raw
    required: true
  cache_dir:
    description: The folder for matplotlib's font cache.
    type: path
    required: true
  cwd:
    description: The folder to which the user's relative paths refer.
    type: path
    required: true
  plan_only:
    description: Whether to only list the jobs.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Run the jobs of the sweep from the controller
  mxcluster_sweep:
    knobs: {networks: "lenet,resnet20", worker_counts: "1,2"}
    options: {lr: "0.1"}
    given: [networks, worker_counts, lr]
    inventory: "{{ hostvars | mxcluster_inventory(groups) }}"
    forks: "{{ ansible_forks }}"
    records_dir: .state/local/nodes
    runs_dir: runs
    cache_dir: .state/local/matplotlib
    cwd: "{{ lookup('ansible.builtin.env', 'PWD') }}"
  run_once: true
"""

RETURN = r"""
verdict:
  description: C(ok), which is true if no job of the sweep failed.
  returned: success
  type: dict
mxcluster_verdict_text:
  description: The table of the results, or with O(plan_only) the table of the jobs. The callback
    C(mxcluster) shows the table after the recap.
  returned: success
  type: list
  elements: str
sweep:
  description: The id of the sweep.
  returned: success
  type: str
"""

import os
import sys
from typing import Any, Dict

from ansible import constants as C
from ansible import context
from ansible.utils.display import Display

from mxcluster.ansible import attempts
from mxcluster.ansible.controller_task import ControllerTask, show
from mxcluster.errors import BadInput
from mxcluster.job.plan import inputs
from mxcluster.job.sweep import report, runner, summary

Json = Dict[str, Any]

display = Display()
PLANNED = "sweep-plan"  # the job id in the plans of a dry run


def means_of(given: Json, playbook: str) -> runner.Means:
    """Return the `runner.Means` object, whose functions plan, start and stop a job.

    Args: `given` the arguments of the task; `playbook` the path on the command line.
    """

    def plan_of(knobs: Json) -> Json:
        return inputs.plan_job(
            dict(given["options"], **dict(knobs, job_id=PLANNED)),
            dict(given["inventory"], forks=given["forks"]),
            given["records_dir"],
            given["runs_dir"],
            given["cwd"],
            given["secrets"],
            None,
            given["given"] + sorted(knobs),
        )["plan"]

    return runner.Means(
        plan_of=plan_of,
        start=lambda knobs: attempts.run(knobs, show, playbook, "train.yml"),
        stop=lambda job: attempts.run({"job": job, "all": False}, show, playbook, "stop.yml"),
        say=lambda line: display.display(line, color=C.COLOR_CHANGED),
    )


def carry_out(given: Json, check: bool) -> Json:
    """Run the jobs of a sweep, and return the dict that RETURN describes.

    Args: `given` the arguments of the task; `check` True to only list the jobs.
    Raises BadInput if the sweep is invalid, or if a job ended without a verdict.
    """
    playbooks = context.CLIARGS.get("args") or ()
    if len(playbooks) != 1:
        raise BadInput(
            "a sweep must be the only playbook on the command line, but the command line names "
            "%s: run the playbooks one by one" % " ".join(playbooks)
        )
    problem = attempts.refusal(sys.argv[0], context.CLIARGS)
    if problem:
        raise BadInput("the sweep cannot repeat this command line for each job: %s" % problem)
    state_dir = os.path.dirname(os.path.abspath(given["records_dir"]))
    runs_dir = os.path.abspath(inputs.results_folder(given["runs_dir"], state_dir))
    given, own = dict(given, runs_dir=runs_dir), playbooks[0]
    means = means_of(given, own)
    spec = runner.opened(
        os.path.basename(own),
        given["knobs"],
        given["options"],
        given["given"],
        runs_dir,
        given["cwd"],
        means,
    )
    folder = runner.path_of(runs_dir, spec)
    if check or given["plan_only"]:
        lines = runner.dry_run(spec, runs_dir, means.plan_of)
        return {
            "verdict": {"ok": True},
            "mxcluster_verdict_text": lines,
            "sweep": spec["sweep"],
        }
    attempts.end_with_parent()
    try:
        records = runner.go(spec, runs_dir, means, str(given["knobs"].get("again") or "").strip())
    finally:
        runner.report_on(spec, runs_dir, given["cache_dir"], report.write)
    lines = summary.text(spec, records, folder)
    return {
        "changed": True,
        "verdict": {"ok": not lines[0].startswith("FAILED")},
        "mxcluster_verdict_text": lines,
        "sweep": spec["sweep"],
    }


class ActionModule(ControllerTask):
    """The action plugin of `mxcluster_sweep`, which Ansible runs on the controller."""
