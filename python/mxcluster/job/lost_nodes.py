"""Find the nodes that the last jobs have lost, from the runs on the controller."""

import contextlib
import os
from typing import Collection, Dict, List

from mxcluster.errors import BadInput
from mxcluster.job.kept_runs import VERDICT
from mxcluster.job.report import files
from mxcluster.lists import grouped, listed
from mxcluster.model import failures
from mxcluster.model.cluster_verdict import Line, warned

RUNS = 20  # the last jobs that count
OFTEN = 2  # a node that so many of these jobs have lost is named


def of_runs(runs_dir: str) -> Dict[str, List[str]]:
    """Return {node: the jobs that have lost it} of the last RUNS jobs in `runs_dir`.

    A job has lost a node if the loss is its first failure. Each attempt of a job is a job.
    """
    times = {}
    for job in os.listdir(runs_dir) if os.path.isdir(runs_dir) else []:
        with contextlib.suppress(OSError):
            times[job] = os.stat(os.path.join(runs_dir, job, VERDICT)).st_mtime
    pairs = []
    for job in sorted(sorted(times, key=lambda one: times[one])[-RUNS:]):
        with contextlib.suppress(BadInput, OSError):
            verdict = files.read_verdict(os.path.join(runs_dir, job))
            failure = verdict.first_failure if verdict else None
            if failure and failure.kind == failures.LOST:
                pairs.append((failure.host, job))
    return grouped(pairs)


def line(runs_dir: str, hosts: Collection[str]) -> Line:
    """Return the line of verify.yml about the nodes of `hosts` that several jobs have lost."""
    lost = of_runs(runs_dir)
    return warned(
        "nodes of the last %d jobs" % RUNS,
        [
            "%s: %d of the last jobs have lost this node (%s): look at its power, network and "
            "memory, or leave it out with -e without=%s"
            % (host, len(lost[host]), listed(lost[host]), host)
            for host in sorted(hosts)
            if len(lost.get(host, [])) >= OFTEN
        ],
    )
