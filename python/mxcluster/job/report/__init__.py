"""Make the run folder of a job on the controller: runs/<job id>/ with verdict and report.

    plan.json verdict.json report.html curves.png events.jsonl nodes/<host>/... checkpoints/...

The report needs jinja2 and matplotlib on the controller, and imports both at the first use. Nodes
do not need these packages.
"""

import json
import os
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from mxcluster import checkpoints
from mxcluster import events as event_files
from mxcluster.cluster import profile as profiles
from mxcluster.errors import BadInput
from mxcluster.file_io import replace
from mxcluster.job import stall_cause
from mxcluster.job import verdict as verdicts
from mxcluster.job.plan import paces, resume
from mxcluster.job.report import (
    archive,
    bottleneck,
    checkpoint_arrivals,
    ended_record,
    files,
    history,
    node_ends,
    profile,
    scheme_table,
    series,
    sound_events,
    statuses,
)
from mxcluster.model.answers import NodeResult
from mxcluster.model.events import Event
from mxcluster.model.failures import Failure
from mxcluster.model.plan import Plan
from mxcluster.model.verdict import Verdict

CURVES = "curves.js"


def assemble(
    run_dir: str,
    archives: Mapping[str, str],
    plan: Optional[Plan] = None,
    cache_dir: Optional[str] = None,
    ends: Optional[Mapping[str, NodeResult]] = None,
    engine: Optional[Failure] = None,
    inventory: str = "",
) -> Verdict:
    """Make the run folder of a job from the files of its nodes, and return the verdict.

    The run also enters the history. A second call with the same arguments gives the same result.

    Args:
        run_dir: the run folder.
        archives: {host: path of the tar file of the host's job folder}. A host without a usable
            archive makes the verdict a failure. The run folder keeps the files of the other hosts.
        plan: the plan, which the function writes to plan.json. None if plan.json exists already.
        cache_dir: as in `write`.
        ends: {host: the end of the job on the host}. If a host's archive is unusable, the status
            in `ends` counts.
        engine: as in `verdict.compute`.
        inventory: the argument of -i in commands for the user, "" for no -i.
    """
    os.makedirs(run_dir, exist_ok=True)
    if plan is not None:
        files.write_json(os.path.join(run_dir, "plan.json"), plan)
    plan = files.read_plan(run_dir)
    problems = archive.unpack_all({host: archives.get(host) for host in plan.nodes}, run_dir)
    last, best = _settle_checkpoints(run_dir, plan)
    events, damaged = _merged_events(plan, run_dir)
    known = {host: (ends or {}).get(host) or NodeResult() for host in plan.nodes}
    results = {
        host: _with_archive(run_dir, plan, host, end, problems.get(host))
        for host, end in known.items()
    }
    slowness = paces.emulated(plan)
    verdict = verdicts.compute(
        plan,
        results,
        events,
        warnings=([slowness] if slowness else [])
        + sound_events.warnings(damaged)
        + series.dropped_groups(plan, events)
        + profile.drifted(plan, events)
        + [line for host, end in results.items() for line in node_ends.warnings(host, end)],
        files=sum(files.own_files(run_dir, host) for host in plan.nodes),
        engine=engine,
    )
    verdict = verdict.replaced(
        bottleneck=bottleneck.find(plan, events), complete=node_ends.complete(results)
    )
    verdict = verdict.replaced(checkpoint=last, best_checkpoint=best)
    if verdict.ok and plan.options.measures_cluster:
        verdict = verdict.replaced(proposal=_profile(run_dir, plan, events, inventory))
    files.write_json(os.path.join(run_dir, "verdict.json"), verdict)
    ended_record.end(run_dir, plan)
    history.add(run_dir, plan, verdict, events)
    write(run_dir, cache_dir)
    return verdict


def _profile(run_dir: str, plan: Plan, events: Sequence[Event], inventory: str) -> List[str]:
    """Write profile.json to the run folder, and return the lines about it for the user."""
    found = profiles.complete(profile.measured(plan, events))
    files.write_json(os.path.join(run_dir, profile.FILE), found)
    return profile.lines(found) + scheme_table.lines(found, plan, inventory)


def _settle_checkpoints(run_dir: str, plan: Plan) -> Tuple[Optional[str], Optional[str]]:
    """Settle the checkpoints in the run folder, and return the names of the last and best one.

    The last one may be that of an earlier job from which this job has resumed. The names are None
    for a job without such a checkpoint.
    """
    options = plan.options
    if not options.savemodel and not options.script:
        return None, None
    folder = os.path.join(run_dir, checkpoints.FOLDER)
    checkpoint_arrivals.settle(folder, options.keep_checkpoints, options.keep_best)
    runs = os.path.dirname(os.path.abspath(run_dir))
    last = resume.find_checkpoint(plan.job, runs, options, digests=False).checkpoint
    best = checkpoints.best(folder, options.network) if options.keep_best else ""
    return last.name if last else None, best or None


def _merged_events(plan: Plan, run_dir: str) -> Tuple[List[Event], Dict[str, int]]:
    """Merge the events of all nodes into events.jsonl of the run folder.

    Returns (events, {host: number of damaged events}).
    """
    paths = {
        host: os.path.join(files.node_dir(run_dir, host), event_files.FILE) for host in plan.nodes
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
    return event_files.first_hand(line.event for line in lines), {
        host: damaged.count(found[host]) for host in found
    }


def _with_archive(
    run_dir: str, plan: Plan, host: str, end: NodeResult, problem: Optional[str]
) -> NodeResult:
    """Return the end of the job on `host` with the status and the problem of its archive.

    Args: `end` of the node's tasks; `problem` why the archive is unusable, None for a good one.
    """
    status = None
    try:
        status = None if problem else statuses.read(run_dir, host, plan)
    except BadInput as refusal:
        problem = str(refusal)
    if problem:
        problem = end.problem or problem
        if end.status and end.status.job == plan.job:
            status = statuses.own(host, end.status, plan)
    if end.uneven and status and not status.first_failure:
        status = status.replaced(first_failure=stall_cause.failure(plan, host, end.uneven))
    return end.replaced(status=status, problem=problem)


def write(run_dir: str, cache_dir: Optional[str] = None) -> List[str]:
    """Write report.html and the other files for readers into `run_dir`, and return the paths.

    These files are curves.png, events.csv, tensorboard/, and curves.js for the history page. If no
    event has a value to draw, the function removes curves.png.

    Args: `cache_dir` the folder of matplotlib's font list, None for a temporary folder. This
    folder keeps matplotlib's files out of the home folder.

    Raises BadInput if `run_dir` holds no run.
    """
    from mxcluster.job.report import curves, exports, figures, job_figures, page

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
    left_out = sound_events.warnings({event_files.FILE: len(damaged)})
    verdict = verdict.replaced(warnings=[*verdict.warnings, *left_out])
    events = event_files.first_hand(line.event for line in lines)
    data = series.collect(plan, events)
    data = data._replace(
        begin=data.begin if data.begin is not None else ended_record.started(run_dir, plan),
        profile=profiles.of_file(os.path.join(run_dir, profile.FILE)),
    )
    drawn = curves.draw(data, plan, verdict, cache_dir)
    html, picture = os.path.join(run_dir, "report.html"), os.path.join(run_dir, "curves.png")
    if drawn:
        replace(picture, drawn)
    elif os.path.exists(picture):
        os.remove(picture)  # An earlier attempt drew this picture.
    shown = job_figures.of_job(data, plan, verdict)
    replace(os.path.join(run_dir, CURVES), figures.call(plan.job, shown))
    exports.write_csv(os.path.join(run_dir, exports.CSV), lines)
    exports.write_tensorboard(os.path.join(run_dir, exports.TENSORBOARD), data)
    beside = [name for name in page.FILES if os.path.exists(os.path.join(run_dir, name))]
    logs, record = files.logs(run_dir, plan), files.read_record(run_dir)
    drawn_all = job_figures.with_resources(shown, data, plan, verdict)
    replace(html, page.render(data, plan, verdict, drawn_all, logs, record, beside))
    return [html, picture] if drawn else [html]
