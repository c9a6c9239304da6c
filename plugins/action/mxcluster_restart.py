"""Run the next attempts at a failed job (max_restarts), with `mxcluster.ansible.attempts`."""

DOCUMENTATION = r"""
---
module: mxcluster_restart
short_description: Run the next attempts at a failed job
description:
  - Waits, then runs the command line of this ansible-playbook again as a child, with the knobs of
    the next attempt. The module repeats these steps while the verdict of the last attempt allows a
    restart.
  - Shows the verdict of each attempt but the last, and the output of each child as it arrives.
  - Returns the verdict of the last attempt. This module does not fail if the last attempt fails.
  - Ctrl-C, and the end of ansible-playbook, end the running child, too.
attributes:
  check_mode:
    description: In check mode the module changes nothing and reports the change that it would make.
    support: none
  diff_mode:
    description: With C(--diff) the module returns the contents before and after a change.
    support: none
author:
  - The mxcluster authors (@mxcluster)
options:
  run_dir:
    description: The folder of the failed job on the controller, as for M(mxcluster_report).
    type: path
    required: true
  text:
    description: The verdict of the failed job as lines of text, RV(mxcluster_report#module:text).
    type: list
    elements: str
    required: true
  restart:
    description: The decision about the next attempt, RV(mxcluster_report#module:restart).
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Run the next attempts at the failed job
  mxcluster_restart:
    run_dir: runs/20261121-101500-dist_gsync
    text: "{{ job_report.text }}"
    restart: "{{ job_report.restart }}"
  when: job_report.restart is truthy
  run_once: true
"""

RETURN = r"""
verdict:
  description: The verdict of the last attempt. If that attempt ended without a verdict, RV(verdict)
    has only C(ok), which is false.
  returned: success
  type: dict
text:
  description: The verdict as lines of text, with the reason why no further attempt follows.
  returned: success
  type: list
  elements: str
mxcluster_verdict_text:
  description: The lines of RV(text), which the callback C(mxcluster) shows at the end.
  returned: success
  type: list
  elements: str
mxcluster_exit_status:
  description: The exit status of the last attempt, for the callback.
  returned: success
  type: int
"""

import os
import time

from ansible import constants as C
from ansible.utils.display import Display

from mxcluster.ansible import attempts
from mxcluster.ansible.controller_task import ControllerTask, show
from mxcluster.job import restarts, verdict
from mxcluster.job.report import files

display = Display()


def judged(run_dir):
    """Return (verdict, lines of text, decision) of an attempt, or None if it has no verdict.

    Args: `run_dir` the attempt's run folder. The decision is that of `restarts.after`.
    """
    found = files.read_json(os.path.join(run_dir, "verdict.json"))
    plan = files.read_json(os.path.join(run_dir, "plan.json"))
    if found is None or plan is None:  # the attempt ended before its report
        return None
    return found, verdict.text(found, run_dir), restarts.after(plan, found, run_dir)


def carry_out(given, check):
    """Run the attempts that the verdicts allow, and return the values that RETURN describes.

    Args: `given` the arguments of the task, whose "restart" allows at least one attempt; `check`
    has no effect.
    """
    lines, decision = given["text"], given["restart"]
    job = os.path.basename(given["run_dir"])
    attempts.end_with_parent()
    while decision and decision["extra"]:
        display.display(lines[0], color=C.COLOR_ERROR)
        for line in lines[1:]:
            display.display(line)
        display.display(decision["text"], color=C.COLOR_CHANGED)
        time.sleep(float(decision["delay"]))
        status = attempts.run(decision["extra"], show)
        before, job = job, decision["extra"]["job_id"]
        found, lines, decision = judged(os.path.join(os.path.dirname(given["run_dir"]), job)) or (
            {"ok": False},
            [
                "FAILED    job %s: its ansible-playbook ended with status %d" % (job, status)
                + " before the verdict; its output is above",
                "next      run status.yml. If it lists the job, run train.yml -e attach=%s" % job,
                "          If not, correct the cause, and run train.yml -e resume=%s" % before,
            ],
            None,
        )
    if decision:
        lines = lines + [decision["text"]]
    return {
        "changed": True,
        "verdict": found,
        "text": lines,
        "mxcluster_verdict_text": lines,
        "mxcluster_exit_status": status,
    }


class ActionModule(ControllerTask):
    """The action plugin of `mxcluster_restart`, which Ansible runs on the controller."""
