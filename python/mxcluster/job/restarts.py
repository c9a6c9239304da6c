"""Decide whether and how mxcluster restarts a failed job (max_restarts).

A job restarts after a fault of a node, of the network or of an operator. An error of the program or
of its input causes no restart, because the error would recur.
"""

import os
from typing import Callable, List, Optional, Sequence, Tuple

from mxcluster import exit_codes
from mxcluster.job.plan.resume import find_checkpoint
from mxcluster.launchers import LAUNCHERS
from mxcluster.model import names
from mxcluster.model.failures import Failure
from mxcluster.model.plan import SCHEDULER, WORKER, Plan
from mxcluster.model.record import Record, field, record
from mxcluster.model.shapes import each, optional, or_empty, text, words
from mxcluster.model.verdict import Verdict
from mxcluster.model.written import MOST, real_number, whole_number

LEAST_TIME = 10.0  # seconds of max_time without which an attempt is not worth its start
MISSING = "missing"  # the state of a node in a verdict


class Attempt(Record, strict=True):
    """The knobs of the next attempt, which override those of the command line."""

    job_id: str = field(names.job_id)
    # Ansible may give a number as text.
    max_restarts: int = field(whole_number(0, MOST))
    restart_delay: float = field(real_number(0, 1e9))
    without: Sequence[str] = field(each(text, 100000))
    max_time: Optional[float] = field(optional(real_number(0, 1e9)), default=None)
    """The seconds that the earlier attempts leave, None without a limit."""
    resume: Optional[str] = field(optional(names.job_id), default=None)
    """None for an attempt from the beginning."""
    model_load_epoch: Optional[int] = field(optional(whole_number(0, MOST)), default=None)
    model_load_job: Optional[str] = field(optional(or_empty(names.job_id)), default=None)
    after: str = field(or_empty(names.job_id), default="")
    """Empty, because the first attempt has waited for that job."""


class Decision(Record, strict=True, nulls=True):
    """The decision about the next attempt at a job."""

    text: str = field(words)
    """A line for the user."""
    extra: Optional[Attempt] = field(optional(record(Attempt)), default=None)
    """None for no attempt."""
    delay: float = field(real_number(0, 1e9), default=0.0)
    """Seconds before the attempt."""


def after(plan: Plan, verdict: Verdict, run_dir: str) -> Optional[Decision]:
    """Return the result of `decide` for an ended job with the run folder `run_dir`.

    The function reads the last complete checkpoint and the used ids from the folders beside
    `run_dir`.
    """
    if verdict.ok or not plan.options.max_restarts:
        return None
    runs = os.path.dirname(os.path.abspath(run_dir))
    found = find_checkpoint(plan.job, runs, plan.options).checkpoint
    return decide(
        plan,
        verdict,
        found.epoch if found else None,
        lambda job: os.path.exists(os.path.join(runs, job)),
    )


def decide(
    plan: Plan, verdict: Verdict, epoch: Optional[int], used: Callable[[str], bool]
) -> Optional[Decision]:
    """Return the decision about an ended job, None if the job is ok or max_restarts is 0.

    Args: `plan` and `verdict` of the ended job; `epoch` of the last complete checkpoint on the
    controller (for a script its number), None without a checkpoint; `used(id)` returns True if a
    run folder has this id.
    """
    options = plan.options
    more = options.max_restarts
    if verdict.first_failure is None or not more:
        return None
    # Each node that was reachable at the end was searched for leftovers.
    looked = verdict.left or verdict.nodes
    lost = [
        host
        for host, state in verdict.nodes.items()
        if state in (MISSING, exit_codes.SHUTDOWN) or host not in looked
    ]
    is_batch = LAUNCHERS[plan.launcher].is_batch
    reason = why_not(verdict.first_failure, lost)
    # A batch system chooses the nodes of the next attempt.
    lost = [] if is_batch else lost
    reason = reason or _cannot(plan, lost, epoch)
    if reason:
        return refused(reason)
    rest = options.max_time - verdict.seconds - options.restart_delay
    if options.max_time and rest < LEAST_TIME:
        # The knob of an attempt has the rest of the user's max_time.
        cure = "continue with -e resume=%s" % plan.job if epoch is not None else "start it again"
        return refused("the attempts have used up max_time; %s and a new max_time" % cure)
    job, number = next_id(plan.job, used)
    # An elastic attempt itself leaves out the nodes that do not answer at its start.
    without = sorted(set(options.without) | set([] if options.elastic else lost))
    delay = options.restart_delay
    extra = Attempt(job_id=job, max_restarts=more - 1, restart_delay=2 * delay, without=without)
    if options.max_time:
        extra = extra.replaced(max_time=round(rest, 1))
    if epoch is not None:
        extra = extra.replaced(resume=plan.job, model_load_epoch=0, model_load_job="")
    line = ["job %s, %d of %d" % (job, number, number + more - 1)] + (
        ["without " + ", ".join(without)] if without else []
    )
    saved = "checkpoint" if options.script else "epoch"
    line += ["with the nodes that answer"] if options.elastic else []
    line += ["from the beginning" if epoch is None else "from %s %d" % (saved, epoch)]
    line += ["in %g s" % delay]
    return Decision(text="RESTART   " + ", ".join(line), extra=extra, delay=delay)


def refused(reason: str) -> Decision:
    """Return the decision for a job that does not restart, with the `reason`."""
    return Decision(text="RESTART   no: %s" % reason)


def why_not(failure: Failure, lost: List[str]) -> Optional[str]:
    """Return the reason why `failure` forbids a restart, or None if `failure` allows a restart.

    Args: `failure` the first failure of a verdict; `lost` the nodes that did not answer at
    the end of the job, or that were going down.
    """
    restart = failure.row.restart
    return None if restart.elsewhere and failure.host in lost else restart.refusal or None


def next_id(job: str, used: Callable[[str], bool]) -> Tuple[str, int]:
    """Return (id, number) of the next restart: the first unused id of job-r1, job-r2 and so on."""
    base, number = names.attempt(job)
    while True:
        number += 1
        name = names.restart_of(base, number)
        if not used(name):
            assert names.is_job_id(name)
            return name, number


def _cannot(plan: Plan, lost: List[str], epoch: Optional[int]) -> Optional[str]:
    """Return the reason why a restart is impossible, or None if a restart is possible.

    Args: `lost` the nodes that did not answer or were going down; `epoch` of the last complete
    checkpoint, None without a checkpoint.
    """
    hosts = {role: {process.host for process in plan.of_role(role)} for role in (SCHEDULER, WORKER)}
    if set(lost) >= set(plan.nodes):
        return (
            "no node answered at the end of the job; make the nodes reachable, then continue with "
            "-e resume=%s" % plan.job
        )
    if hosts[SCHEDULER] & set(lost):
        return (
            "%s, the only host of the group scheduler, is lost; put another host into the group "
            "scheduler, then continue with -e resume=%s "
            "-e without=%s" % (", ".join(hosts[SCHEDULER]), plan.job, ",".join(sorted(lost)))
        )
    options = plan.options
    if epoch is not None and not options.script and epoch >= options.num_epochs:
        return "the job has trained and saved all %d epochs, so its training is complete" % epoch
    return None
