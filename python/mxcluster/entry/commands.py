"""The table of the functions that carry out the commands on this node.

The functions run as the training user. The process of root works without this module.
"""

import functools
import os
from typing import Callable, Dict, Optional, Tuple, Type, TypeVar, cast

from mxcluster.agent import (
    checkpoint_transfer,
    claims,
    collecting,
    commands,
    engine,
    jobs,
    retention,
    shared_folder,
    stack_traces,
    tickets,
)
from mxcluster.model import protocol
from mxcluster.model.answers import Answer, CheckedNode, Held, Looked, Queued, Recorded
from mxcluster.model.protocol import Request
from mxcluster.model.record import encode

R = TypeVar("R", bound=Request)
Function = Callable[[Request], Answer]


def _look(request: protocol.Look) -> Looked:
    from mxcluster.node import probe  # not at the top: each poll would import it

    holders = functools.partial(claims.held, but=request.arguments.job)
    found = Looked.decode(encode(probe.look(request.arguments, holders)))
    root, keep = request.arguments.jobs_dir, request.arguments.keep_jobs
    return found.replaced(old_jobs=retention.old(root, keep)) if root else found


def _queue(request: protocol.Queue) -> Queued:
    from mxcluster.node import probe

    root, job, ticket = os.path.dirname(request.job_dir), request.job_id, request.ticket
    if ticket is None:
        tickets.remove(root, job)
        return Queued(held=Held(ports={}, gpus={}))
    tickets.renew(root, ticket)
    return Queued(
        held=probe.held(ticket.address, ticket.ports, claims.held(root, job)),
        after=claims.state_of(root, ticket.after) if ticket.after else "",
    )


def _record(request: protocol.RecordNode) -> Recorded:
    from mxcluster.node import cores, gpus, probe

    if request.shared is None:
        return Recorded(record=probe.facts(request.arguments.known))
    shared_folder.check(request.shared)
    found = probe.facts(request.arguments.known).replaced(cards=gpus.cards())
    limits = [one for one in (found.cpu_limit, cores.granted(os.environ)) if one is not None]
    found = found.replaced(cpu_limit=min(limits, default=None))
    # A driver that waits for a restart shows no GPU. The head then names this cause.
    waits = found.cards and found.driver and found.driver.restart_reason()
    return Recorded(record=found.replaced(granted=None if waits else gpus.granted(os.environ)))


def _check(request: protocol.Check) -> CheckedNode:
    from mxcluster.node import health_checks

    return CheckedNode(check=health_checks.check(request.arguments))


def _row(command: Type[R], function: Callable[[R], Answer]) -> Tuple[Type[Request], Function]:
    """Return a row of the table. mypy checks that the function takes the class of the command."""
    return command, cast(Function, function)


FUNCTIONS: Dict[Type[Request], Function] = dict(
    [
        _row(protocol.Look, _look),
        _row(protocol.RecordNode, _record),
        _row(protocol.Check, _check),
        _row(protocol.Jobs, jobs.listing),
        _row(protocol.Prepare, commands.prepare),
        _row(protocol.Start, commands.start),
        _row(protocol.Launch, engine.launch),
        _row(protocol.Join, engine.join),
        _row(protocol.Queue, _queue),
        _row(protocol.Wait, commands.wait),
        _row(protocol.Status, commands.status),
        _row(protocol.Stop, commands.stop),
        _row(protocol.Collect, collecting.collect),
        _row(protocol.Logs, commands.logs),
        _row(protocol.Stacks, stack_traces.of_job),
        _row(protocol.Remove, retention.of_request),
        _row(protocol.ReadPlan, commands.plan),
        _row(protocol.Piece, checkpoint_transfer.piece),
    ]
)


def carry_out(request: Request, target: Optional[int] = None) -> Answer:
    """Carry out `request` in this process, and return the answer.

    `target`: the open descriptor of the tar file for `collect`, None for the path of the request.
    """
    if target is not None and isinstance(request, protocol.Collect):
        return collecting.collect(request, target)
    return FUNCTIONS[type(request)](request)
