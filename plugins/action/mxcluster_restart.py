"""Run a failed job again, up to max_restarts times, with `mxcluster.ansible.attempts`.

The plugin waits, then runs the command line of this ansible-playbook as a child, with the knobs of
the next attempt, while the verdict of the last attempt allows a restart. The plugin shows the
output of each child at once. Ctrl-C and the end of ansible-playbook also end the child. The task
succeeds if the last attempt fails, because the result has this attempt's verdict.
"""

import os
import time
from typing import List, Optional, Sequence, Tuple

from ansible import constants as C
from ansible.utils.display import Display

from mxcluster.ansible import arguments, attempts, controller_task
from mxcluster.ansible.controller_task import ControllerTask, show
from mxcluster.job import restarts, verdict_text
from mxcluster.job.report import files
from mxcluster.job.restarts import Decision
from mxcluster.model.record import Record, field, record
from mxcluster.model.shapes import optional
from mxcluster.model.verdict import Verdict

display = Display()


class Arguments(Record, strict=True):
    """The arguments of the task. `text` and `restart` are results of mxcluster_report."""

    run_dir: str = field(arguments.path)
    """The folder of the failed job."""
    text: Sequence[str] = field(arguments.texts)
    """The verdict as lines of text."""
    restart: Decision = field(record(Decision))


class Result(controller_task.Result):
    """The last attempt."""

    verdict: Optional[Verdict] = field(optional(record(Verdict)))
    """The content of verdict.json; None without a verdict."""
    text: Sequence[str] = field(arguments.texts)
    """With the reason for the last end."""


def judged(run_dir: str) -> Optional[Tuple[Verdict, List[str], Optional[Decision]]]:
    """Read the verdict of an attempt from the attempt's run folder `run_dir` (a path).

    Returns (verdict, lines, decision), or None if the folder has no verdict or no plan:

    - verdict: the verdict of the attempt;
    - lines: the verdict for the terminal (list of str);
    - decision: whether and how the job restarts, or None for a successful job and for a job without
      `max_restarts`.
    """
    found = files.read_verdict(run_dir)
    if found is None:  # the attempt ended before its report, which writes plan.json first
        return None
    plan = files.read_plan(run_dir)
    decision = restarts.after(plan, found, run_dir)
    return found, verdict_text.text(found, run_dir), decision


def carry_out(given: Arguments, check: bool) -> Result:
    """Run attempts while the verdict allows a restart.

    Args: `given` the arguments of the task; `given.restart` must allow an attempt. `check` has no
    effect.
    """
    lines, decision = given.text, given.restart
    job = os.path.basename(given.run_dir)
    attempts.end_with_parent()
    while decision and decision.extra:
        display.display(lines[0], color=C.COLOR_ERROR)
        for line in lines[1:]:
            display.display(line)
        display.display(decision.text, color=C.COLOR_CHANGED)
        time.sleep(decision.delay)
        status = attempts.run(decision.extra.encode(), show)
        before, job = job, decision.extra.job_id
        found, lines, decision = judged(os.path.join(os.path.dirname(given.run_dir), job)) or (
            None,
            [
                "FAILED    job %s: ansible-playbook ended with status %d" % (job, status)
                + " before the verdict. See the error in the output above",
                "next      run status.yml. If it lists the job, run train.yml -e attach=%s" % job,
                "          If not, remove the error, and run train.yml -e resume=%s" % before,
            ],
            None,
        )
    if decision:
        lines = lines + [decision.text]
    return Result(
        changed=True,
        verdict=found,
        text=lines,
        mxcluster_verdict_text=lines,
        mxcluster_exit_status=status,
    )


class ActionModule(ControllerTask):
    """The action plugin of `mxcluster_restart`, which Ansible runs on the controller."""
