"""Read the last status of a node, which the training user can change."""

import os
from typing import Optional

from mxcluster.file_io import read_json
from mxcluster.job.report import files
from mxcluster.model.failures import BATCH, NODE, Failure
from mxcluster.model.plan import Plan
from mxcluster.model.shapes import Wrong
from mxcluster.model.status import Status

OF_ENGINE = (BATCH, NODE)  # the kinds of failures that the head and the submit host record
CURE = "find the program that changed this file on the host"


def read(run_dir: str, host: str, plan: Plan) -> Optional[Status]:
    """Return the last status.json of `host` with own processes only, or None without this file.

    Raises BadInput if the content is damaged or belongs to another job.
    """

    def of_job(value: object) -> Status:
        status = Status.decode(value)
        if status.job != plan.job:
            raise Wrong("the job %s" % plan.job, status.job, ".job")
        return status

    status = read_json(os.path.join(files.node_dir(run_dir, host), "status.json"), of_job, CURE)
    return status and own(host, status, plan)


def own(host: str, status: Status, plan: Plan) -> Status:
    """Return the status of `host` with only the processes of this host.

    A pulse of another host's process could blame that process for a stall.
    """
    names = {process.name for process in plan.of_host(host)}
    return status.of_host(host).replaced(
        processes=[part for part in status.processes if part.name in names],
        pulses={name: pulse for name, pulse in status.pulses.items() if name in names},
    )


def failure_of_engine(status: Optional[Status]) -> Optional[Failure]:
    """Return the first failure if the batch system or a node has caused it, else None.

    Args: `status` of a batch job, from the head or the submit host.
    """
    cause = status and status.first_failure
    return cause if cause and cause.kind in OF_ENGINE else None
