"""Decide whether and how a failed job restarts by itself (max_restarts).

A job restarts after a fault of a machine, of the network or of an operator. An error of the program
or of its input would recur, so it causes no restart.
"""

import os
import re
import signal
from typing import Any, Callable, Dict, List, Optional, Tuple

from mxcluster import exit_codes
from mxcluster.job.option_types import is_job_id
from mxcluster.job.plan import inputs

Json = Dict[str, Any]

# Signals that come from outside the program.
OUTSIDE = frozenset((signal.SIGKILL, signal.SIGTERM, signal.SIGHUP))
MISSING = "missing"  # the state of a node in a verdict


def after(plan: Json, verdict: Json, run_dir: str) -> Optional[Json]:
    """Return the result of `decide` for an ended job whose run folder is `run_dir`.

    The last complete checkpoint and the used ids come from the runs beside `run_dir`.
    """
    if verdict["ok"] or not plan["options"].get("max_restarts"):
        return None
    runs = os.path.dirname(os.path.abspath(run_dir))
    found = inputs.find_checkpoint(plan["job"], runs, plan["options"]["network"])[0]
    return decide(
        plan,
        verdict,
        found.epoch if found else None,
        lambda job: os.path.exists(os.path.join(runs, job)),
    )


def decide(
    plan: Json, verdict: Json, epoch: Optional[int], used: Callable[[str], bool]
) -> Optional[Json]:
    """Decide about the next attempt at a job that has ended.

    Args: `epoch` of the last complete checkpoint on the controller, None for none; `used(id)` True
    if a run of that name exists.

    Returns:
        None if the job is ok or max_restarts is 0, else {"text": a line for the user, "extra":
        {knob: value} of the next attempt, None for no attempt, "delay": the seconds until the
        attempt starts}.
    """
    options = plan["options"]
    more = int(options.get("max_restarts") or 0)
    if verdict["ok"] or not more:
        return None
    # Each node that was reachable at the end was searched for leftovers.
    looked = verdict.get("left") or verdict["nodes"]
    lost = [
        host for host, state in verdict["nodes"].items() if state == MISSING or host not in looked
    ]
    reason = why_not(verdict["first_failure"], lost) or _cannot(plan, lost, epoch)
    if reason:
        return refused(reason)
    job, number = next_id(plan["job"], used)
    without = sorted(set(options.get("without") or []) | set(lost))
    delay = float(options.get("restart_delay") or 0)
    extra = {
        "job_id": job,
        "max_restarts": more - 1,
        "restart_delay": 2 * delay,
        "without": without,
    }
    if epoch is not None:
        extra.update(resume=plan["job"], model_load_epoch=0, model_load_job="")
    words = ["job %s, %d of %d" % (job, number, number + more - 1)] + (
        ["without " + ", ".join(without)] if without else []
    )
    words += ["from the beginning" if epoch is None else "from epoch %d" % epoch, "in %g s" % delay]
    return {"text": "RESTART   " + ", ".join(words), "extra": extra, "delay": delay}


def refused(reason: str) -> Json:
    """Return a result of `decide` that allows no other attempt and names the `reason`."""
    return {"text": "RESTART   no: %s" % reason, "extra": None, "delay": 0}


def why_not(failure: Json, lost: List[str]) -> Optional[str]:
    """Return the reason why `failure` causes no restart, None if it causes one.

    Args: `failure` the first failure of a verdict; `lost` the nodes that did not answer at
    the end of the job.
    """
    kind, code = failure.get("kind"), failure["exit_code"]
    again = "the cause would most likely recur; remove it, then continue with -e resume=<job>"
    if kind:
        return None if kind in ("stopped", "network", "engine") else again
    if failure["host"] in lost or failure["reason"] in (
        exit_codes.AGENT_KILLED,
        exit_codes.AGENT_HELD,
    ):
        return None
    # The agent's own reasons: stopped on request, lease ran out, could not start.
    if code is None:
        return "a restart does not remove the cause; remove it, then start the job again"
    return None if code == exit_codes.PEER_DIED or -code in OUTSIDE else again


def next_id(job: str, used: Callable[[str], bool]) -> Tuple[str, int]:
    """Return (id, number) of the first unused attempt after `job`: job-r1, job-r2 and so on."""
    match = re.fullmatch(r"(.+)-r([1-9][0-9]{0,3})", job)
    base, number = (match.group(1), int(match.group(2))) if match else (job, 0)
    while True:
        number += 1
        name = "%s-r%d" % (base[:90], number)
        if not used(name):
            assert is_job_id(name)
            return name, number


def _cannot(plan: Json, lost: List[str], epoch: Optional[int]) -> Optional[str]:
    """Return the reason why another attempt is impossible, None if it is possible.

    Args: `lost` the nodes that did not answer; `epoch` of the last complete checkpoint.
    """
    hosts = {
        role: {process["host"] for process in plan["processes"] if process["role"] == role}
        for role in ("scheduler", "worker")
    }
    if set(lost) >= set(plan["nodes"]):
        return (
            "no node answered at the end of the job; make the nodes reachable, then continue with "
            "-e resume=%s" % plan["job"]
        )
    if hosts["scheduler"] & set(lost):
        return (
            "%s is lost, the only host of the group scheduler; put another host into that group, "
            "then continue with -e resume=%s "
            "-e without=%s" % (", ".join(hosts["scheduler"]), plan["job"], ",".join(sorted(lost)))
        )
    if epoch is not None and epoch >= plan["options"]["num_epochs"]:
        return "all %d epochs are trained and saved, so nothing is left to train" % epoch
    return None
