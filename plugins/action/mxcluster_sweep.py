"""Run the jobs of benchmark.yml or compare.yml with `mxcluster.job.sweep.runner`.

The plugin expands the user's lists to jobs, and runs the jobs without a result one after the other:
as children with the command line of this ansible-playbook, but train.yml and the knobs of the job.
The task fails before the first job if a job is impossible, and after a job without a verdict. If a
job only failed, the task succeeds, and the verdict is not ok. In check mode, and with plan_only,
the plugin only lists the jobs.
"""

import os
import sys
from typing import Mapping

from ansible import constants as C
from ansible import context
from ansible.utils.display import Display

from mxcluster.ansible import arguments, attempts, controller_task
from mxcluster.ansible.controller_task import ControllerTask, show
from mxcluster.errors import BadInput
from mxcluster.job.plan import inputs
from mxcluster.job.sweep import runner, summary
from mxcluster.model.inventory import Inventory
from mxcluster.model.plan import Plan
from mxcluster.model.record import Record, field, record
from mxcluster.model.sweep import Knobs

display = Display()
PLANNED = "sweep-plan"  # the job id in the plans of a dry run


class Arguments(arguments.Planning):
    """The arguments of the task."""

    knobs: Mapping[str, object] = field(arguments.json)
    """The knobs of the sweep as the user gave them."""
    cache_dir: str = field(arguments.path)
    """The folder of matplotlib's font cache."""
    plan_only: bool = field(arguments.flag, default=False)


class Verdict(Record):
    """The verdict on the sweep."""

    ok: bool = field(arguments.flag)
    """True if no job failed."""


class Result(controller_task.Result):
    """The end of the sweep."""

    verdict: Verdict = field(record(Verdict))
    sweep: str = field(arguments.text)


def means_of(given: Arguments, runs_dir: str, playbook: str) -> runner.Means:
    """Return the `runner.Means` object, whose functions plan, start and stop a job.

    Args: `given` the arguments of the task; `runs_dir` the folder of the runs; `playbook` the path
    on the command line.
    """

    def plan_of(knobs: Knobs) -> Plan:
        return inputs.plan_job(
            dict(given.options, **dict(knobs, job_id=PLANNED)),
            Inventory.decode(dict(given.inventory, forks=given.forks)),
            inputs.Folders(given.records_dir, runs_dir, given.cwd),
            given.secrets,
            anew=list(given.given) + sorted(knobs),
        ).plan

    return runner.Means(
        plan_of=plan_of,
        start=lambda knobs: attempts.run(knobs, show, playbook, "train.yml"),
        stop=lambda job: attempts.run({"job": job, "all": False}, show, playbook, "stop.yml"),
        show=lambda line: display.display(line, color=C.COLOR_CHANGED),
    )


def carry_out(given: Arguments, check: bool) -> Result:
    """Run the jobs of a sweep.

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
    state_dir = os.path.dirname(os.path.abspath(given.records_dir))
    runs_dir = os.path.abspath(inputs.results_folder(given.runs_dir, state_dir))
    own = playbooks[0]
    means = means_of(given, runs_dir, own)
    spec = runner.opened(
        os.path.basename(own),
        given.knobs,
        given.options,
        given.given,
        runs_dir,
        given.cwd,
        means.plan_of,
    )
    folder = runner.path_of(runs_dir, spec)
    if check or given.plan_only:
        lines = runner.dry_run(spec, runs_dir, means.plan_of)
        return Result(verdict=Verdict(ok=True), mxcluster_verdict_text=lines, sweep=spec.sweep)
    attempts.end_with_parent()
    try:
        records = runner.go(spec, runs_dir, means, str(given.knobs.get("again") or "").strip())
    finally:
        runner.report_on(spec, runs_dir, given.cache_dir)
    lines = summary.text(spec, records, folder)
    return Result(
        changed=True,
        verdict=Verdict(ok=not lines[0].startswith("FAILED")),
        mxcluster_verdict_text=lines,
        sweep=spec.sweep,
    )


class ActionModule(ControllerTask):
    """The action plugin of `mxcluster_sweep`, which Ansible runs on the controller."""
