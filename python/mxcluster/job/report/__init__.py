"""Make the run folder of a job on the controller: runs/<job id>/ with verdict and report.

    plan.json verdict.json report.html curves.png events.jsonl nodes/<host>/... checkpoints/...

The report needs jinja2 and matplotlib on the controller, and imports both at the first use. Nodes
do not need these packages.
"""

import json
import os
from typing import Any, Dict, List, Mapping, Optional, Tuple

from mxcluster import events as event_files
from mxcluster.cluster import profile as profiles
from mxcluster.errors import BadInput
from mxcluster.file_io import replace
from mxcluster.job import replies, stall_cause
from mxcluster.job import verdict as verdicts
from mxcluster.job.plan import measuring, paces
from mxcluster.job.report import (
    archive,
    checkpoint_arrivals,
    files,
    node_ends,
    profile,
    series,
    sound_events,
)
from mxcluster.model.events import Event
from mxcluster.model.node_end import NodeEnd
from mxcluster.model.verdict import Verdict

Plan = Dict[str, Any]
Status = Dict[str, Any]


def assemble(
    run_dir: str,
    archives: Mapping[str, str],
    plan: Optional[Plan] = None,
    cache_dir: Optional[str] = None,
    ends: Optional[Mapping[str, NodeEnd]] = None,
    engine: Optional[Dict[str, Any]] = None,
) -> Verdict:
    """Make the run folder of a job from the files of its nodes, and return the verdict.

    A second call with the same arguments gives the same result.

    Args:
        run_dir: the run folder.
        archives: {host: path of the tar file of the host's job folder}. A host without a usable
            archive makes the verdict a failure. The run folder keeps the files of the other hosts.
        plan: the plan, which the function writes to plan.json. None if plan.json exists already.
        cache_dir: as in `write`.
        ends: {host: NodeEnd}. If a host's archive is unusable, the status in its NodeEnd counts.
        engine: as in `verdict.compute`.
    """
    os.makedirs(run_dir, exist_ok=True)
    if plan is not None:
        files.write_json(os.path.join(run_dir, "plan.json"), plan)
    plan = files.read_plan(run_dir)
    known = {host: (ends or {}).get(host) or NodeEnd() for host in plan["nodes"]}
    problems = archive.unpack_all({host: archives.get(host) for host in plan["nodes"]}, run_dir)
    if plan["options"].savemodel:
        checkpoint_arrivals.settle(
            os.path.join(run_dir, "checkpoints"),
            plan["options"].network,
            plan["options"].keep_checkpoints,
        )
    events, damaged = _merged_events(plan, run_dir)
    statuses = {host: _status(plan, host, run_dir, end, problems) for host, end in known.items()}
    slowness = paces.emulated(plan)
    content = verdicts.compute(
        plan,
        statuses,
        events,
        problems,
        lost={host: end.lost.encode() for host, end in known.items() if end.lost},
        untrue={host: end.untrue for host, end in known.items() if end.untrue},
        left={host: list(end.left) for host, end in known.items() if end.left is not None},
        warnings=([slowness] if slowness else [])
        + sound_events.warnings(damaged)
        + series.dropped_groups(plan, events)
        + profile.drifted(plan, events)
        + [line for host, end in known.items() for line in node_ends.warnings(host, end)],
        files=sum(files.own_files(run_dir, host) for host in plan["nodes"]),
        engine=engine,
    )
    verdict = Verdict.decode(content)
    if verdict.ok and measuring.is_profile(plan["options"]):
        found_profile = profiles.complete(profile.measured(plan, events))
        files.write_json(os.path.join(run_dir, profile.FILE), found_profile.encode())
        verdict = verdict.replaced(proposal=profile.lines(found_profile))
    files.write_json(os.path.join(run_dir, "verdict.json"), verdict.encode())
    write(run_dir, cache_dir)
    return verdict


def _merged_events(plan: Plan, run_dir: str) -> Tuple[List[Event], Dict[str, int]]:
    """Merge the events of all nodes into events.jsonl of the run folder.

    Returns (events, {host: number of damaged events}).
    """
    paths = {
        host: os.path.join(files.node_dir(run_dir, host), event_files.FILE)
        for host in plan["nodes"]
    }
    found = {host: path for host, path in paths.items() if os.path.exists(path)}
    damaged: List[str] = []
    lines = event_files.merge(
        {path: sound_events.own_events(plan, host) for host, path in found.items()}, damaged.append
    )
    replace(
        os.path.join(run_dir, event_files.FILE),
        "".join(json.dumps(line.content) + "\n" for line in lines),
    )
    return [line.event for line in lines], {host: damaged.count(found[host]) for host in found}


def _status(
    plan: Plan, host: str, run_dir: str, end: NodeEnd, problems: Dict[str, str]
) -> Optional[Status]:
    """Return the last status of `host`, or None without a valid status.

    A problem with the node's files goes to `problems`, {host: problem}. The status in `end` then
    counts.
    """
    status: Optional[Status] = None
    if host not in problems:
        try:
            known = files.read_status(run_dir, host)
            status = None if known is None else replies.packed(host, known, plan)
        except BadInput as refusal:
            problems[host] = str(refusal)
    if host in problems:
        problems[host] = end.problem or problems[host]
        try:
            status = replies.packed(host, end.status, plan) if end.status else None
        except BadInput:
            status = None
    if status and end.uneven and not status.get("first_failure"):
        status["first_failure"] = stall_cause.failure(plan, host, end.uneven.encode())
    return status


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
    verdict = verdict.replaced(warnings=[*verdict.warnings, *told])
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
