"""The table of the functions that carry out the commands on this node.

The functions run as the training user. The process of root works without this module.
"""

import os
from typing import Callable, Dict, Mapping, Optional, Tuple, Type, TypeVar, cast

from mxcluster.agent import (
    checkpoint_transfer,
    claims,
    collecting,
    commands,
    engine,
    jobs,
    shared_folder,
)
from mxcluster.errors import BadInput
from mxcluster.model import protocol
from mxcluster.model.answers import Looked
from mxcluster.model.node_requests import CheckRequest, LookRequest, RecordRequest
from mxcluster.model.protocol import Request
from mxcluster.model.record import Record, encode
from mxcluster.model.shapes import Wrong

A = TypeVar("A", bound=Record)
R = TypeVar("R", bound=Request)
Json = Dict[str, object]
Function = Callable[[Request], object]  # returns a record of the class ANSWER, or its JSON


def _decoded(cls: Type[A], arguments: Mapping[str, object]) -> A:
    """Return `arguments` as a record. Raises BadInput if a field is invalid."""
    try:
        return cls.decode(arguments)
    except Wrong as wrong:
        raise BadInput(
            "the controller's request to this node is invalid (%s): %s"
            % (wrong, protocol.OTHER_VERSION)
        ) from None


def _look(request: protocol.Look) -> Looked:
    from mxcluster.node import probe  # not at the top: each poll would import it

    return probe.look(_decoded(LookRequest, request.arguments), claims.held)


def _record(request: protocol.RecordNode) -> Json:
    from mxcluster.node import gpus, probe

    known = _decoded(RecordRequest, request.arguments).known
    if request.shared is None:
        return probe.facts(known).encode()
    shared_folder.check(request.shared)
    return probe.facts(known).replaced(granted=gpus.granted(os.environ)).encode()


def _check(request: protocol.Check) -> Json:
    from mxcluster.node import health_checks

    return health_checks.check(_decoded(CheckRequest, request.arguments)).encode()


def _row(command: Type[R], function: Callable[[R], object]) -> Tuple[Type[Request], Function]:
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
        _row(protocol.Wait, commands.wait),
        _row(protocol.Status, commands.status),
        _row(protocol.Stop, commands.stop),
        _row(protocol.Collect, collecting.collect),
        _row(protocol.Logs, commands.logs),
        _row(protocol.ReadPlan, commands.plan),
        _row(protocol.Piece, checkpoint_transfer.piece),
    ]
)


def carry_out(request: Request, target: Optional[int] = None) -> Json:
    """Carry out `request` in this process, and return the answer (dict for JSON).

    `target`: the open descriptor of the tar file for `collect`, None for the path of the request.
    """
    if target is not None and isinstance(request, protocol.Collect):
        return collecting.collect(request, target).encode()
    return cast(Json, encode(FUNCTIONS[type(request)](request)))
