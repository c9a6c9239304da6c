"""Complete the record of what ran, run.json, at the end of a job."""

import os
from typing import Mapping, Optional

from mxcluster.errors import BadInput
from mxcluster.file_io import read_json
from mxcluster.job.report import files, statuses
from mxcluster.model.plan import Plan
from mxcluster.model.run_record import MACHINE, NodeOfRun, RunRecord, moment, now


def end(run_dir: str, plan: Plan) -> None:
    """Add the present time and unknown nodes to run.json in `run_dir`, if it lacks the end.

    Another controller may have started the job. Then the record has what the nodes and the plan
    tell, and says so.
    """
    known = files.read_record(run_dir)
    if known and known.ended:
        return
    record = known or of_nodes(run_dir, plan)
    record = record.replaced(ended=now(), nodes=_nodes(run_dir, plan, record.nodes))
    files.write_json(os.path.join(run_dir, files.RECORD), record)


def of_nodes(run_dir: str, plan: Plan) -> RunRecord:
    """Return the record of a job that another controller has started, from its plan and nodes."""
    begun = started(run_dir, plan)
    return RunRecord(
        job=plan.job,
        command=[],
        inventory=[],
        nodes={},
        given={},
        resolved=plan.options,
        attached=True,
        begun=now() if begun is None else moment(begun),
    )


def started(run_dir: str, plan: Plan) -> Optional[float]:
    """Return the time when the first agent began the job (unix seconds), None if unknown."""
    found = []
    for host in plan.nodes:
        try:
            status = statuses.read(run_dir, host, plan)
        except BadInput:
            continue  # the verdict names the damaged file
        found += [status.started] if status else []
    return min(found, default=None)


def _nodes(run_dir: str, plan: Plan, known: Mapping[str, NodeOfRun]) -> Mapping[str, NodeOfRun]:
    """Return {host: its hardware and versions} of the nodes of `plan`, with those of `known` first.

    The plan of a batch job has other nodes than its submission.
    """

    def node(host: str) -> NodeOfRun:
        if host in known and known[host].cores:
            return known[host]
        try:
            path = os.path.join(files.node_dir(run_dir, host), MACHINE)
            return read_json(path, NodeOfRun.decode) or known.get(host) or NodeOfRun()
        except BadInput:  # a program of the training user has changed the file
            return known.get(host) or NodeOfRun()

    return {host: node(host) for host in plan.nodes}
