"""Make the run folder of a job on the controller: runs/<job id>/ with verdict and report.

    plan.json verdict.json report.html curves.png events.jsonl nodes/<host>/... checkpoints/...

The report needs jinja2 and matplotlib on the controller, and imports both at the first use. Nodes
do not need these packages.
"""

import contextlib
import json
import os
from typing import Any, Dict, List, Optional

from mxcluster import events as event_files
from mxcluster.cluster import profile as profiles
from mxcluster.errors import BadInput
from mxcluster.file_io import replace
from mxcluster.job import replies, stall_cause
from mxcluster.job import verdict as verdicts
from mxcluster.job.plan import measuring, paces
from mxcluster.job.report import archive, checkpoint_arrivals, files, profile, series, sound_events
from mxcluster.model.plan import Plan

MOST_TOLD = 500  # most characters of a line, and most lines of a node


def assemble(
    run_dir: str,
    archives: Dict[str, str],
    plan: Optional[Plan] = None,
    cache_dir: Optional[str] = None,
    answers: Optional[Dict[str, Dict[str, Any]]] = None,
    engine: Optional[Dict[str, Any]] = None,
) -> Dict[str, Any]:
    """Make the run folder of a job from the files of its nodes, and return the verdict.

    A second call with the same arguments gives the same result.

    Args:
        run_dir: the run folder.
        archives: {host: path of the tar file of the host's job folder}. A host without a usable
            archive makes the verdict a failure. The run folder keeps the files of the other hosts.
        plan: the plan, which the function writes to plan.json. None if plan.json exists already.
        cache_dir: as in `write`.
        answers: {host: result of `heard`}. If a host's archive is unusable, the status in this
            result counts.
        engine: as in `verdict.compute`.
    """
    os.makedirs(run_dir, exist_ok=True)
    if plan is not None:
        files.write_json(os.path.join(run_dir, "plan.json"), plan.encode())
    plan = files.read_plan(run_dir)
    problems = archive.unpack_all({host: archives.get(host) for host in plan.nodes}, run_dir)
    if plan.options.get("savemodel"):
        checkpoint_arrivals.settle(
            os.path.join(run_dir, "checkpoints"),
            plan.options["network"],
            plan.options["keep_checkpoints"],
        )
    found = {
        host: path
        for host, path in (
            (host, os.path.join(files.node_dir(run_dir, host), event_files.FILE))
            for host in plan.nodes
        )
        if os.path.exists(path)
    }
    damaged: List[str] = []
    lines = event_files.merge(
        {path: sound_events.own_events(plan, host) for host, path in found.items()}, damaged.append
    )
    replace(
        os.path.join(run_dir, event_files.FILE),
        "".join(json.dumps(line.content) + "\n" for line in lines),
    )
    events = [line.event for line in lines]
    statuses = {}  # type: Dict[str, Any]
    for host in plan.nodes:
        try:
            known = None if host in problems else files.read_status(run_dir, host)
            statuses[host] = replies.packed(host, known, plan) if known is not None else None
        except BadInput as refusal:
            problems[host] = str(refusal)
    said = {host: (answers or {}).get(host) or {} for host in plan.nodes}
    for host in problems:
        statuses[host] = None
        problems[host] = said[host].get("problem") or problems[host]
        with contextlib.suppress(BadInput):
            statuses[host] = (
                replies.packed(host, said[host]["status"], plan)
                if said[host].get("status")
                else None
            )
    for host, one in said.items():
        if one.get("uneven") and statuses[host] and not statuses[host].get("first_failure"):
            statuses[host]["first_failure"] = stall_cause.failure(plan, host, one["uneven"])
    verdict = verdicts.compute(
        plan,
        statuses,
        events,
        problems,
        lost={host: one["lost"] for host, one in said.items() if one.get("lost")},
        untrue={host: one["untrue"] for host, one in said.items() if one.get("untrue")},
        left={host: one["left"] for host, one in said.items() if one.get("left") is not None},
        warnings=[line for line in [paces.emulated(plan)] if line]
        + sound_events.warnings({host: damaged.count(path) for host, path in found.items()})
        + series.unheard_groups(plan, events)
        + profile.drifted(plan, events)
        + [line for host in plan.nodes for line in _told(host, said[host])],
        files=sum(files.own_files(run_dir, host) for host in plan.nodes),
        engine=engine,
    )
    if verdict["ok"] and measuring.is_profile(plan.options):
        found_profile = profiles.complete(profile.measured(plan, events))
        files.write_json(os.path.join(run_dir, profile.FILE), found_profile)
        verdict["proposal"] = profile.lines(found_profile)
    files.write_json(os.path.join(run_dir, "verdict.json"), verdict)
    write(run_dir, cache_dir)
    return verdict


def heard(wait: Any, contact: Any = None) -> Dict[str, Any]:
    """Return a node's entry (dict) in the `answers` of `assemble`, with None for unknown values.

    Args:
        wait: the result (dict) of the task that waits for the node.
        contact: the result (dict) of the task that contacts the node.

    A value of another type counts as a missing result.
    """
    wait, contact = (given if isinstance(given, dict) else {} for given in (wait, contact))
    collect = wait.get("packed") if isinstance(wait.get("packed"), dict) else {}
    problem = refusal(wait) or collect.get("problem")
    return {
        "status": wait.get("status"),
        "lost": wait.get("lost") or contact.get("lost"),
        "left": collect.get("left"),
        "problem": problem,
        "untrue": collect.get("untrue"),
        "behind": collect.get("behind"),
        "outside": collect.get("outside"),
        "uneven": wait.get("uneven"),
    }


def refusal(result: Dict[str, Any]) -> Optional[str]:
    """Return the reason why a task failed on a node, or None if the task succeeded.

    If a module crashed, the reason holds the last line of the module's stderr.

    Args:
        result: the result of the task (dict).
    """
    if not (result.get("failed") or result.get("unreachable")):
        return None
    message = str(result.get("msg") or "Ansible gave no reason")
    if message.startswith("MODULE FAILURE"):
        lines = (
            str(result.get("module_stderr") or result.get("module_stdout") or "")
            .strip()
            .splitlines()
        )
        message = "the module of a task crashed on the node: %s" % (
            lines[-1].strip() if lines else "the module printed no error"
        )
    return message


def _told(host: str, said: Dict[str, Any]) -> List[str]:
    """Return the warnings of the node `host`: files that stayed, processes outside of the unit.

    The list has at most MOST_TOLD warnings of each kind. Args: `said` the node's result of `heard`.
    """
    return [
        "%s: %s" % (host, line[:MOST_TOLD])
        for told in (said.get("behind"), said.get("outside"))
        for line in (told if isinstance(told, list) else [])[:MOST_TOLD]
        if isinstance(line, str)
    ]


def write(run_dir: str, cache_dir: Optional[str] = None) -> List[str]:
    """Write curves.png and report.html from the other files of `run_dir`, and return the paths.

    If no event has a value to draw, the function removes curves.png and returns one path.

    Args: `cache_dir` the folder of matplotlib's font list, None for a temporary folder. This
    folder keeps matplotlib's files out of the home folder.

    Raises BadInput if `run_dir` holds no run.
    """
    from mxcluster.job.report import curves, page

    plan = files.read_plan(run_dir)
    verdict = files.read_verdict(run_dir)
    path = os.path.join(run_dir, event_files.FILE)
    if verdict is None or not os.path.exists(path):
        raise BadInput(
            "%s has no verdict.json or no events.jsonl: fetch the results of the job with "
            "train.yml -e attach=<job>" % run_dir
        )
    damaged: List[str] = []
    lines = event_files.merge({path: sound_events.own_events(plan)}, damaged.append)
    told = sound_events.warnings({event_files.FILE: len(damaged)})
    verdict = dict(verdict, warnings=verdict.get("warnings", []) + told)
    data = series.collect(plan, [line.event for line in lines])._replace(
        profile=profiles.of_file(os.path.join(run_dir, profile.FILE))
    )
    drawn = curves.draw(data, plan, verdict, cache_dir)
    html, picture = os.path.join(run_dir, "report.html"), os.path.join(run_dir, "curves.png")
    if drawn:
        replace(picture, drawn)
    elif os.path.exists(picture):
        os.remove(picture)  # An earlier attempt drew this picture.
    replace(html, page.render(data, plan, verdict, drawn, files.logs(run_dir, plan)))
    return [html, picture] if drawn else [html]
