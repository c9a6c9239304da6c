"""Decide whether and how mxcluster restarts a failed job (max_restarts).

A job restarts after a fault of a node, of the network or of an operator. An error of the program or
of its input causes no restart, because the error would recur.
"""

import os
import re
from typing import Any, Callable, Dict, List, Optional, Tuple

from mxcluster import exit_codes
from mxcluster.job import launchers
from mxcluster.job.option_types import is_job_id
from mxcluster.job.plan.resume import find_checkpoint
from mxcluster.model.plan import Plan

Json = Dict[str, Any]

# Failures of these kinds come from a node, the network, an engine or an operator.
OUTSIDE = ("stopped", "network", "engine", "node")
MISSING = "missing"  # the state of a node in a verdict


def after(plan: Plan, verdict: Json, run_dir: str) -> Optional[Json]:
    """Return the result of `decide` for an ended job with the run folder `run_dir`.

    The function reads the last complete checkpoint and the used ids from the folders beside
    `run_dir`.
    """
    if verdict["ok"] or not plan.options.get("max_restarts"):
        return None
    runs = os.path.dirname(os.path.abspath(run_dir))
    found = find_checkpoint(plan.job, runs, plan.options["network"]).checkpoint
    return decide(
        plan,
        verdict,
        found.epoch if found else None,
        lambda job: os.path.exists(os.path.join(runs, job)),
    )


def decide(
    plan: Plan, verdict: Json, epoch: Optional[int], used: Callable[[str], bool]
) -> Optional[Json]:
    """Return the decision about the restart of an ended job.

    Args: `plan` and `verdict` of the ended job; `epoch` of the last complete checkpoint on the
    controller, None without a checkpoint; `used(id)` returns True if a run folder has this id.

    The result is None if the job is ok or max_restarts is 0, else a dict with these entries:

    - "text": a line for the user;
    - "extra": {knob: value} for the restart, or None if the job does not restart;
    - "delay": the seconds before the restart.
    """
    options = plan.options
    more = int(options.get("max_restarts") or 0)
    if verdict["ok"] or not more:
        return None
    # Each node that was reachable at the end was searched for leftovers.
    looked = verdict.get("left") or verdict["nodes"]
    lost = [
        host
        for host, state in verdict["nodes"].items()
        if state in (MISSING, exit_codes.SHUTDOWN) or host not in looked
    ]
    is_batch = launchers.of(plan).is_batch
    reason = why_not(verdict["first_failure"], lost)
    # A batch system chooses the nodes of the next attempt.
    lost = [] if is_batch else lost
    reason = reason or _cannot(plan, lost, epoch)
    if reason:
        return refused(reason)
    job, number = next_id(plan.job, used)
    without = sorted(set(options.get("without") or []) | set(lost))
    delay = float(options.get("restart_delay") or 0)
    extra = {
        "job_id": job,
        "max_restarts": more - 1,
        "restart_delay": 2 * delay,
        "without": without,
    }
    if epoch is not None:
        extra.update(resume=plan.job, model_load_epoch=0, model_load_job="")
    words = ["job %s, %d of %d" % (job, number, number + more - 1)] + (
        ["without " + ", ".join(without)] if without else []
    )
    words += ["from the beginning" if epoch is None else "from epoch %d" % epoch, "in %g s" % delay]
    return {"text": "RESTART   " + ", ".join(words), "extra": extra, "delay": delay}


def refused(reason: str) -> Json:
    """Return the result of `decide` for a job that does not restart, with the `reason`."""
    return {"text": "RESTART   no: %s" % reason, "extra": None, "delay": 0}


def why_not(failure: Json, lost: List[str]) -> Optional[str]:
    """Return the reason why `failure` forbids a restart, or None if `failure` allows a restart.

    Args: `failure` the first failure of a verdict; `lost` the nodes that did not answer at
    the end of the job, or that were going down.
    """
    kind, code = failure.get("kind"), failure["exit_code"]
    again = (
        "the cause would most likely recur; remove the cause, then continue with -e resume=<job>"
    )
    if kind:
        return None if kind in OUTSIDE else again
    if failure["host"] in lost or failure["reason"] in (
        exit_codes.AGENT_KILLED,
        exit_codes.AGENT_HELD,
    ):
        return None
    # Without an exit code, an agent failed to start or ended the job (stop on request, lease).
    if code is None:
        return "a restart does not remove the cause; remove the cause, then start the job again"
    return None if code == exit_codes.PEER_DIED or -code in exit_codes.FROM_OUTSIDE else again


def next_id(job: str, used: Callable[[str], bool]) -> Tuple[str, int]:
    """Return (id, number) of the next restart: the first unused id of job-r1, job-r2 and so on."""
    match = re.fullmatch(r"(.+)-r([1-9][0-9]{0,3})", job)
    base, number = (match.group(1), int(match.group(2))) if match else (job, 0)
    while True:
        number += 1
        name = "%s-r%d" % (base[:90], number)
        if not used(name):
            assert is_job_id(name)
            return name, number


def _cannot(plan: Plan, lost: List[str], epoch: Optional[int]) -> Optional[str]:
    """Return the reason why a restart is impossible, or None if a restart is possible.

    Args: `lost` the nodes that did not answer or were going down; `epoch` of the last complete
    checkpoint, None without a checkpoint.
    """
    hosts = {
        role: {process.host for process in plan.of_role(role)} for role in ("scheduler", "worker")
    }
    if set(lost) >= set(plan.nodes):
        return (
            "no node answered at the end of the job; make the nodes reachable, then continue with "
            "-e resume=%s" % plan.job
        )
    if hosts["scheduler"] & set(lost):
        return (
            "%s, the only host of the group scheduler, is lost; put another host into the group "
            "scheduler, then continue with -e resume=%s "
            "-e without=%s" % (", ".join(hosts["scheduler"]), plan.job, ",".join(sorted(lost)))
        )
    if epoch is not None and epoch >= plan.options["num_epochs"]:
        return "the job has trained and saved all %d epochs, so its training is complete" % epoch
    return None
