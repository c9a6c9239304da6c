"""Make the run folder of a job on the controller: runs/<job id>/ with verdict and report.

    plan.json verdict.json report.html curves.png events.jsonl nodes/<host>/... checkpoints/...

The report needs jinja2 and matplotlib on the controller, and imports both at the first use. Nodes
do not need these packages.
"""

import json
import os
from typing import Any, Dict, List, Optional

from mxcluster import events as event_files
from mxcluster.cluster import profile as profiles
from mxcluster.errors import BadInput
from mxcluster.file_io import replace
from mxcluster.job import stall_cause
from mxcluster.job import verdict as verdicts
from mxcluster.job.plan import measuring, paces
from mxcluster.job.report import (
    archive,
    checkpoint_arrivals,
    files,
    profile,
    series,
    sound_events,
    statuses,
)
from mxcluster.model.answers import NodeResult
from mxcluster.model.failures import Failure
from mxcluster.model.shapes import Wrong

MOST_TOLD = 500  # most characters of a line, and most lines of a node


def assemble(
    run_dir: str,
    archives: Dict[str, str],
    plan: Optional[Dict[str, Any]] = None,
    cache_dir: Optional[str] = None,
    answers: Optional[Dict[str, NodeResult]] = None,
    engine: Optional[Failure] = None,
) -> Dict[str, Any]:
    """Make the run folder of a job from the files of its nodes, and return the verdict.

    A second call with the same arguments gives the same result.

    Args:
        run_dir: the run folder.
        archives: {host: path of the tar file of the host's job folder}. A host without a usable
            archive makes the verdict a failure. The run folder keeps the files of the other hosts.
        plan: the plan, which the function writes to plan.json. None if plan.json exists already.
        cache_dir: as in `write`.
        answers: {host: `node_result`}. If a host's archive is unusable, the status in this result
            counts.
        engine: as in `verdict.compute`.
    """
    os.makedirs(run_dir, exist_ok=True)
    if plan is not None:
        files.write_json(os.path.join(run_dir, "plan.json"), plan)
    plan = files.read_plan(run_dir)
    problems = archive.unpack_all({host: archives.get(host) for host in plan["nodes"]}, run_dir)
    if plan["options"].get("savemodel"):
        checkpoint_arrivals.settle(
            os.path.join(run_dir, "checkpoints"),
            plan["options"]["network"],
            plan["options"]["keep_checkpoints"],
        )
    found = {
        host: path
        for host, path in (
            (host, os.path.join(files.node_dir(run_dir, host), event_files.FILE))
            for host in plan["nodes"]
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
    results = {
        host: _with_archive(run_dir, plan, host, one, problems.get(host))
        for host, one in ((host, (answers or {}).get(host, NodeResult())) for host in plan["nodes"])
    }
    verdict = verdicts.compute(
        plan,
        results,
        events,
        warnings=[line for line in [paces.emulated(plan)] if line]
        + sound_events.warnings({host: damaged.count(path) for host, path in found.items()})
        + series.unheard_groups(plan, events)
        + profile.drifted(plan, events)
        + [line for host, one in results.items() for line in _warnings(host, one)],
        files=sum(files.own_files(run_dir, host) for host in plan["nodes"]),
        engine=engine,
    )
    if verdict["ok"] and measuring.is_profile(plan["options"]):
        found_profile = profiles.complete(profile.measured(plan, events))
        files.write_json(os.path.join(run_dir, profile.FILE), found_profile)
        verdict["proposal"] = profile.lines(found_profile)
    files.write_json(os.path.join(run_dir, "verdict.json"), verdict)
    write(run_dir, cache_dir)
    return verdict


def _with_archive(
    run_dir: str, plan: Dict[str, Any], host: str, result: NodeResult, problem: Optional[str]
) -> NodeResult:
    """Return the result of `host` with the status and the problem of its archive.

    Args: `result` of the node's tasks; `problem` why the archive is unusable, None for a good one.
    """
    status = None
    try:
        known = None if problem else files.read_status(run_dir, host)
        status = statuses.of_file(host, known, plan) if known is not None else None
    except BadInput as refusal:
        problem = str(refusal)
    if problem:
        problem = result.problem or problem
        if result.status and result.status.job == plan["job"]:
            status = statuses.own(host, result.status, plan)
    if result.uneven and status and not status.first_failure:
        cause = stall_cause.failure(plan, host, result.uneven)
        status = status.replaced(first_failure=cause)
    return result.replaced(status=status, problem=problem)


def node_result(wait: object, contact: object = None) -> NodeResult:
    """Return the end of a job on a node from the results of two tasks of Ansible.

    Args:
        wait: the result (dict) of the task that waits for the node.
        contact: the result (dict) of the task that contacts the node.

    A value of another type counts as a missing result.
    """
    waited, contacted = (given if isinstance(given, dict) else {} for given in (wait, contact))
    packed = waited.get("packed")
    collect = packed if isinstance(packed, dict) else {}
    found = {
        "status": waited.get("status"),
        "lost": waited.get("lost") or contacted.get("lost"),
        "problem": refusal(waited) or collect.get("problem"),
        "uneven": waited.get("uneven"),
    }
    found.update((name, collect.get(name)) for name in ("left", "untrue", "behind", "outside"))
    try:
        return NodeResult.decode({name: item for name, item in found.items() if item is not None})
    except Wrong as wrong:
        return NodeResult(problem="the result of a task is invalid: %s" % wrong)


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


def _warnings(host: str, result: NodeResult) -> List[str]:
    """Return the warnings of the node `host`: files that stayed, processes outside of the unit.

    The list has at most MOST_TOLD warnings of each kind.
    """
    return [
        "%s: %s" % (host, line[:MOST_TOLD])
        for lines in (result.behind, result.outside)
        for line in lines[:MOST_TOLD]
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
