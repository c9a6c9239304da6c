"""Run the further attempts of a failed job with `mxcluster.ansible.attempts`."""

DOCUMENTATION = r"""
---
module: mxcluster_restart
short_description: Start a failed job again, up to max_restarts times
description:
  - Waits, then runs the command line of this ansible-playbook again as a child, with the knobs of
    the next attempt. The module repeats these steps while the verdict of the last attempt allows a
    restart.
  - Shows the verdict of each attempt except the last, and the output of each child immediately.
  - Returns the verdict of the last attempt. The module also succeeds if the last attempt fails.
  - Ctrl-C and the end of ansible-playbook also end the running child.
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
    description: The result RV(mxcluster_report#module:text), the verdict as lines of text.
    type: list
    elements: str
    required: true
  restart:
    description: The result RV(mxcluster_report#module:restart), the decision about the next
      attempt.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Start the failed job again, up to max_restarts times
  mxcluster_restart:
    run_dir: runs/20261121-101500-dist_gsync
    text: "{{ job_report.text }}"
    restart: "{{ job_report.restart }}"
  when: job_report.restart is truthy
  run_once: true
"""

RETURN = r"""
verdict:
  description: The verdict of the last attempt. If the last attempt ended without a verdict,
    RV(verdict) has only the key C(ok) with the value false.
  returned: success
  type: dict
text:
  description: The verdict as lines of text, with the reason for the end of the restarts.
  returned: success
  type: list
  elements: str
mxcluster_verdict_text:
  description: The lines of RV(text), which the callback C(mxcluster) shows after the recap.
  returned: success
  type: list
  elements: str
mxcluster_exit_status:
  description: The exit status of the last attempt. The callback C(mxcluster) ends with this status.
  returned: success
  type: int
"""

import os
import time
from typing import Any, Dict, List, Optional, Tuple

from ansible import constants as C
from ansible.utils.display import Display

from mxcluster.ansible import attempts
from mxcluster.ansible.controller_task import ControllerTask, show
from mxcluster.job import restarts, verdict
from mxcluster.job.report import files

Json = Dict[str, Any]

display = Display()


def judged(run_dir: str) -> Optional[Tuple[Json, List[str], Optional[Json]]]:
    """Read the verdict of an attempt from the attempt's run folder `run_dir` (a path).

    Returns (verdict, lines, decision), or None if the folder has no verdict or no plan:

    - verdict: the content of verdict.json (dict);
    - lines: the verdict for the terminal (list of str);
    - decision: the result of `restarts.after`, which says whether and how the job restarts (dict),
      or None for a successful job and for a job without `max_restarts`.
    """
    found = files.read_verdict(run_dir)
    if found is None:  # the attempt ended before its report, which writes plan.json first
        return None
    plan = files.read_plan(run_dir)
    return found, verdict.text(found, run_dir), restarts.after(plan, found, run_dir)


def carry_out(given: Json, check: bool) -> Json:
    """Run attempts while the verdict allows a restart, and return the dict that RETURN describes.

    Args: `given` the arguments of the task; given["restart"] must allow an attempt. `check`
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
                "FAILED    job %s: ansible-playbook ended with status %d" % (job, status)
                + " before the verdict. See the error in the output above",
                "next      run status.yml. If it lists the job, run train.yml -e attach=%s" % job,
                "          If not, remove the error, and run train.yml -e resume=%s" % before,
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
