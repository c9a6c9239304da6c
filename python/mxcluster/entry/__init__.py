"""Carry out one command of the controller on this node, and print the answer as JSON.

`python -I -m mxcluster.entry` reads the request from stdin (see `mxcluster.model.protocol`). On a
command line, other users could read the arguments.

As root, this process manages the systemd units, the firewall rules and the leftover files. A child
process with the rights of the training user carries out the command (see `entry.commands`).
"""

import os
from typing import Any, Dict, List, Optional

from mxcluster.entry import leftovers, programs, units
from mxcluster.errors import MxclusterError
from mxcluster.model.protocol import Check, Collect, Jobs, Look, RecordNode, Request, Start, Stop
from mxcluster.model.record import encode

Json = Dict[str, Any]


def run(request: Request) -> Json:
    """Carry out `request` on this node, and return the answer (dict for JSON).

    Raises MxclusterError if the command fails.
    """
    request = request.on_node()
    spool = request.spool if isinstance(request, Collect) else None
    swept = leftovers.sweep(spool) if request.SWEEPS and not request.check else []
    unit = units.unit_of(request) if isinstance(request, (Start, Stop, Collect)) else None
    if unit and isinstance(request, Start) and not (request.plan and request.plan.batch):
        return units.start(request, unit)
    if unit and isinstance(request, Stop):
        return _stop(request, unit, swept)
    seen = _seen_by_root(request, unit, swept)
    if not isinstance(request, Collect):
        return _with(programs.answer_of(request), seen)
    if units.is_spooled(request):
        return _with(units.collect_into_spool(request), seen)
    answer = dict(programs.answer_of(request), output=request.output, spooled=False)
    return _with(answer, seen)


def _stop(request: Stop, unit: str, swept: List[str]) -> Json:
    """End the job in the systemd unit `unit`, and remove the job's firewall rules.

    Returns the answer (dict). If the process of the training user fails, the function still ends
    the unit and removes the rules. Then the function raises MxclusterError. `swept`: the result of
    `leftovers.sweep`.
    """
    try:
        answer = programs.answer_of(request)
    except MxclusterError as error:
        raise MxclusterError(
            "\n".join(
                [str(error), "Root has ended the unit %s." % unit] + units.settle(request, unit)
            )
        ) from error
    return _with(answer, {"left": units.settle(request, unit) + swept})


def _seen_by_root(request: Request, unit: Optional[str], swept: List[str]) -> Json:
    """Return the fields of the answer that root itself determines (dict).

    The process of the training user cannot change these fields. `unit`: the job's systemd unit or
    None. `swept`: the result of `leftovers.sweep`.
    """
    if isinstance(request, Collect):
        untrue = units.untrue_end(request, unit) if unit else None
        left = (units.settle(request, unit) if unit else []) + swept
        return {
            "left": left,
            "untrue": untrue,
            "outside": units.outside(request) if unit else [],
        }
    if isinstance(request, Stop):
        return {"left": swept} if swept else {}
    if isinstance(request, Look):
        return {"ports_open": units.why_open(request), "problems": units.hidden(request)}
    if isinstance(request, Check):
        return {"ports_open": units.why_open(request)}
    if isinstance(request, Jobs):
        return {"units": units.jobs_with_units(request)}
    if isinstance(request, RecordNode) and os.geteuid() == 0 and request.user:
        from mxcluster.node import probe  # not at the top: each poll would import it

        # With the fields that are None: the training user decides about none of them.
        return {name: encode(value) for name, value in vars(probe.machine()).items()}
    return {}


def _with(answer: Json, seen: Json) -> Json:
    """Merge the dicts `answer` and `seen`, and return the result (dict).

    `answer` comes from the process of the training user, and `seen` from root. A field of `seen`
    replaces the field of the same name in `answer`. The function joins the lists "left" and
    "problems" of both dicts.
    """
    both = {}
    for name in ("left", "problems"):
        if name in seen:
            both[name] = (answer[name] if isinstance(answer.get(name), list) else []) + seen[name]
    return dict(answer, **dict(seen, **both))
