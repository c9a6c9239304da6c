"""Check the last status of a node, which the training user can change."""

from typing import Optional

from mxcluster.errors import BadInput
from mxcluster.model.failures import BATCH, NODE, Failure
from mxcluster.model.plan import Plan
from mxcluster.model.shapes import Wrong
from mxcluster.model.status import Status

OF_ENGINE = (BATCH, NODE)  # the kinds of failures that the head and the submit host record


def of_file(host: str, found: object, plan: Plan) -> Status:
    """Return the status `found`, the content of the status.json of `host`, with own processes only.

    Raises BadInput if the content is invalid or belongs to another job.
    """
    try:
        status = Status.decode(found)
        if status.job != plan.job:
            raise Wrong("the job %s" % plan.job, status.job).inside(".job")
    except Wrong as wrong:
        raise BadInput(
            "the status.json of this host is invalid: %s. Find the program that changed this "
            "file on the host" % wrong
        ) from None
    return own(host, status, plan)


def own(host: str, status: Status, plan: Plan) -> Status:
    """Return the status of `host` with only the processes of this host.

    A pulse of another host's process could blame that process for a stall.
    """
    names = {process.name for process in plan.of_host(host)}
    return status.of_host(host).replaced(
        processes=[part for part in status.processes if part.name in names],
        pulses={name: pulse for name, pulse in status.pulses.items() if name in names},
    )


def failure_of_engine(found: object) -> Optional[Failure]:
    """Return the first failure in a status if the batch system or a node has caused it, else None.

    Args: `found` the content of the status.json of a batch job.
    """
    try:
        cause = Status.decode(found).first_failure
    except Wrong:
        return None
    return cause if cause and cause.kind in OF_ENGINE else None
