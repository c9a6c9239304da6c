"""Tell the ports and GPUs that a job takes on a node, and those that the node lacks.

A plan with free ports and GPUs never fails because of `root_port=auto`, so such ports need no
place in a queue. All functions are pure.
"""

from typing import List

from mxcluster.model.answers import Held
from mxcluster.model.node_requests import LookRequest
from mxcluster.model.plan import Plan
from mxcluster.model.ticket import Ticket

MOST = 2  # leases of the job until its ticket lapses, as a slow controller polls late


def ticket(plan: Plan, look: LookRequest, since: float, poll: float = 0.0) -> Ticket:
    """Return the ticket of a job on a node.

    Args: `look` the needs of the job on the node; `since` the time at which the job began to wait
    (unix seconds); `poll` the seconds between two polls.
    """
    named = plan.options.root_port != "auto"
    return Ticket(
        job=plan.job,
        since=since,
        lease=MOST * plan.options.lease + poll,
        address=look.address,
        ports=look.ports if named else [],
        gpus=list(range(look.all_gpus.record)) if look.all_gpus else look.gpus,
    )


def lacking(plan: Plan, host: str, look: LookRequest, held: Held) -> List[str]:
    """Return a line for each port and GPU that `host` lacks for the job, [] if there is room.

    If the job chooses among all GPUs of the host, each of its workers needs one GPU at least.
    Otherwise the job needs all GPUs of its ticket.

    Args: `look` the needs of the job on the host; `held` the ports and GPUs in use there.
    """
    wanted = ticket(plan, look, 0)
    lines = [
        "port %d on %s is in use by %s" % (port, wanted.address, held.ports[str(port)])
        for port in wanted.ports
        if str(port) in held.ports
    ]
    workers = sum(bool(process.gpus) for process in plan.of_host(host))
    least = workers if look.all_gpus else len(wanted.gpus)
    busy = [number for number in wanted.gpus if str(number) in held.gpus]
    if len(wanted.gpus) - len(busy) < least:
        lines += ["GPU %d is in use by %s" % (number, held.gpus[str(number)]) for number in busy]
    return ["%s: %s" % (host, line) for line in lines]
