"""Whether a job that has failed is tried again by itself (max_restarts), and how. `decide` is pure.

Again is tried what a machine, or a person beside it, has done to the job. An error of the program, or of what it was given, would
come again.
"""
import os
import re
import signal
from typing import Any, Callable, Dict, List, Optional, Tuple

from mxcluster import exitcodes, planning
from mxcluster.options import is_job_id

Json = Dict[str, Any]

OUTSIDE = frozenset((signal.SIGKILL, signal.SIGTERM, signal.SIGHUP))  # what no program does to itself
MISSING = "missing"  # the state of a node in a verdict


def after(plan: Json, verdict: Json, run_dir: str) -> Optional[Json]:
    """What `decide` says of the job whose results are in `run_dir`, one of the folders of all runs."""
    if verdict["ok"] or not plan["options"].get("max_restarts"):
        return None
    runs = os.path.dirname(os.path.abspath(run_dir))
    found = planning.find_checkpoint(plan["job"], runs, plan["options"]["network"])[0]
    return decide(plan, verdict, found.epoch if found else None, lambda job: os.path.exists(os.path.join(runs, job)))


def decide(plan: Json, verdict: Json, epoch: Optional[int], used: Callable[[str], bool]) -> Optional[Json]:
    """{"text": a line for people, "extra": {knob: value} of the next attempt, None for none, "delay": seconds until then}.

    None if nobody has asked for it. `epoch`: after which one a whole checkpoint is here, None for none; `used` tells of a
    job's id whether there is a run of that name.
    """
    options = plan["options"]
    more = int(options.get("max_restarts") or 0)
    if verdict["ok"] or not more:
        return None
    looked = verdict.get("left") or verdict["nodes"]  # whoever could be asked at the end was asked what is left there
    lost = [host for host, state in verdict["nodes"].items() if state == MISSING or host not in looked]
    reason = why_not(verdict["first_failure"], lost) or _cannot(plan, lost, epoch)
    if reason:
        return {"text": "RESTART   no: %s" % reason, "extra": None, "delay": 0}
    job, number = next_id(plan["job"], used)
    without = sorted(set(options.get("without") or []) | set(lost))
    delay = float(options.get("restart_delay") or 0)
    extra = {"job_id": job, "max_restarts": more - 1, "restart_delay": 2 * delay, "without": without}
    if epoch is not None:
        extra.update(resume=plan["job"], model_load_epoch=0, model_load_job="")
    words = ["job %s, %d of %d" % (job, number, number + more - 1)] + (["without " + ", ".join(without)] if without else [])
    words += ["from the beginning" if epoch is None else "from epoch %d" % epoch, "in %g s" % delay]
    return {"text": "RESTART   " + ", ".join(words), "extra": extra, "delay": delay}


def why_not(failure: Json, lost: List[str]) -> Optional[str]:
    """Why a job that failed for this cause is not tried again; None if it is. `lost`: nodes that did not answer at its end."""
    kind, code = failure.get("kind"), failure["exit_code"]
    again = "what ended it would most likely come again; mend it, then go on with -e resume=<job>"
    if kind:
        return None if kind in ("stopped", "network") else again
    if failure["host"] in lost or failure["reason"] in (exitcodes.AGENT_KILLED, exitcodes.AGENT_HELD):
        return None
    if code is None:  # the agent's own reasons: stopped on request, nobody waited, could not be started
        return "it was ended, or not even started, for a reason that a new start does not mend"
    return None if code == exitcodes.PEER_DIED or -code in OUTSIDE else again


def next_id(job: str, used: Callable[[str], bool]) -> Tuple[str, int]:
    """(the id of the next attempt, its number): job, job-r1, job-r2, ..."""
    match = re.fullmatch(r"(.+)-r([1-9][0-9]{0,3})", job)
    base, number = (match.group(1), int(match.group(2))) if match else (job, 0)
    while True:
        number += 1
        name = "%s-r%d" % (base[:90], number)
        if not used(name):
            assert is_job_id(name)
            return name, number


def _cannot(plan: Json, lost: List[str], epoch: Optional[int]) -> Optional[str]:
    """What is missing for another attempt; None if nothing is."""
    hosts = {role: {process["host"] for process in plan["processes"] if process["role"] == role}
             for role in ("scheduler", "worker")}
    if set(lost) >= set(plan["nodes"]):
        return ("none of its nodes could be asked at its end; see that they can be reached, then go on with -e resume=%s"
                % plan["job"])
    if hosts["scheduler"] & set(lost):
        return ("%s is lost, the one host of the group scheduler; put another into that group, then go on with -e resume=%s "
                "-e without=%s" % (", ".join(hosts["scheduler"]), plan["job"], ",".join(sorted(lost))))
    if epoch is not None and epoch >= plan["options"]["num_epochs"]:
        return "all its %d epochs are trained and saved" % epoch
    return None
