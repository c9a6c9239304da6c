"""The table of the functions that carry out the commands on this node.

The functions run as the training user. The process of root works without this module.
"""

from typing import Any, Callable, Dict, Type

from mxcluster.agent import checkpoint_transfer, claims, commands, engine, jobs
from mxcluster.model import protocol

Json = Dict[str, Any]


def _look(request: protocol.Look) -> Json:
    from mxcluster.node import probe  # not at the top: each poll would import it

    return probe.look(request.request, claims.held)


def _record(request: protocol.RecordNode) -> Json:
    from mxcluster.node import probe

    return probe.record(request.request)


def _check(request: protocol.Check) -> Json:
    from mxcluster.node import health_checks

    return health_checks.check(request.request)


FUNCTIONS: Dict[Type[protocol.Request], Callable[..., Json]] = {
    protocol.Look: _look,
    protocol.RecordNode: _record,
    protocol.Check: _check,
    protocol.Jobs: jobs.listing,
    protocol.Prepare: commands.prepare,
    protocol.Start: commands.start,
    protocol.Launch: engine.launch,
    protocol.Join: engine.join,
    protocol.Wait: commands.wait,
    protocol.Status: commands.status,
    protocol.Stop: commands.stop,
    protocol.Collect: commands.collect,
    protocol.Logs: commands.logs,
    protocol.ReadPlan: commands.plan,
    protocol.Piece: checkpoint_transfer.piece,
}


def carry_out(request: protocol.Request, *more: int) -> Json:
    """Carry out `request` in this process, and return the answer (dict for JSON).

    `more`: a further argument of the function, see `mxcluster.agent.commands.collect`.
    """
    return FUNCTIONS[type(request)](request, *more)
