"""Carry out one command of the controller on this node, and print the answer as JSON.

`python -I -m mxcluster.entry` reads the request from stdin (see `mxcluster.model.protocol`). On a
command line, other users could read the arguments.

As root, this process manages the systemd units, the firewall rules and the leftover files. A child
process with the rights of the training user carries out the command (see `entry.commands`).
"""

import contextlib
import os
from typing import List, Optional, cast

from mxcluster.entry import leftovers, programs, units
from mxcluster.errors import MxclusterError
from mxcluster.model.answers import (
    Answer,
    CheckedNode,
    Collected,
    JobList,
    Looked,
    Progress,
    Recorded,
    Stopped,
)
from mxcluster.model.protocol import Collect, Look, OfJob, Request, Start, Stop, Wait


def run(request: Request) -> Answer:
    """Carry out `request` on this node, and return the answer.

    Raises MxclusterError if the command fails.
    """
    request = request.on_node()
    spool = request.spool if isinstance(request, Collect) else None
    swept = leftovers.sweep(spool) if request.SWEEPS and not request.check else []
    unit = units.unit_of(request) if isinstance(request, OfJob) else None
    if isinstance(request, Stop):
        return _stop(request, unit, swept)
    if isinstance(request, Collect):
        return _collect(request, unit, swept)
    if isinstance(request, Wait):
        return _wait(request)
    if unit and isinstance(request, Start) and not (request.plan and request.plan.batch):
        return units.start(request, unit)
    return _corrected(request, programs.answer_of(request))


def _stop(request: Stop, unit: Optional[str], swept: List[str]) -> Stopped:
    """End the job in the systemd unit `unit`, if any, and remove the job's firewall rules.

    If the process of the training user fails, the function still ends the unit and removes the
    rules. Then the function raises MxclusterError. `swept`: the result of `leftovers.sweep`.
    """
    try:
        answer = cast(Stopped, programs.answer_of(request))
    except MxclusterError as error:
        if unit is None:
            raise
        raise MxclusterError(
            "\n".join(
                [str(error), "Root has ended the unit %s." % unit] + units.settle(request, unit)
            )
        ) from error
    settled = units.settle(request, unit) if unit else []
    return answer.replaced(left=[*answer.left, *settled, *swept])


def _wait(request: Wait) -> Progress:
    """Wait for the end of the job. If this part of the job has ended well, also collect its files.

    So the last poll and the collection are one command. If the files cannot be collected, the
    answer is that of the poll, and the controller asks again for the files alone.
    """
    # The training user gives the answer, but not the files that root has collected.
    answer = cast(Progress, programs.answer_of(request)).replaced(collected=None)
    status = answer.status
    if request.collect is None or not status.has_ended or status.has_failed:
        return answer
    # After any error the answer stays: the job has ended well, and the controller's own `collect`
    # reports the error.
    with contextlib.suppress(Exception):
        collected = run(request.collect.replaced(reason=status.reason or ""))
        answer = answer.replaced(collected=cast(Collected, collected))
    return answer


def _collect(request: Collect, unit: Optional[str], swept: List[str]) -> Collected:
    """Pack the files of a job, and return the answer with the facts that root determines.

    Root looks first, because the process of the training user could change the state of the job.
    `unit`, `swept`: see `_stop`.
    """
    untrue, outside, seen = None, [], swept  # type: Optional[str], List[str], List[str]
    if unit:
        untrue = units.untrue_end(request, unit)
        seen = units.settle(request, unit) + swept
        outside = units.outside(request)
    if units.is_spooled(request):
        answer = units.collect_into_spool(request)
    else:
        answer = cast(Collected, programs.answer_of(request))
        answer = answer.replaced(output=request.output, spooled=False)
    left = [*(answer.left or []), *seen]
    return answer.replaced(left=left, untrue=untrue, outside=outside)


def _corrected(request: Request, answer: Answer) -> Answer:
    """Return `answer`, which the training user has given, with the facts that root determines."""
    if isinstance(request, Look) and isinstance(answer, Looked):
        problems = [*answer.problems, *units.hidden(request)]
        return answer.replaced(problems=problems, ports_open=units.why_open(request))
    if isinstance(answer, CheckedNode):
        check = answer.check.replaced(ports_open=units.why_open(request))
        return answer.replaced(check=check)
    if isinstance(answer, JobList):
        return answer.replaced(units=units.jobs_with_units(request))
    if isinstance(answer, Recorded) and os.geteuid() == 0 and request.user:
        from mxcluster.node import probe  # not at the top: each poll would import it

        # With the fields that are None: the training user decides about none of them.
        return answer.replaced(record=answer.record.replaced(**vars(probe.machine())))
    return answer
