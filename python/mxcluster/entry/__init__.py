"""Entry point on a node: carry out one command of the controller and print a JSON object.

`python -I -m mxcluster.entry` reads the arguments of the module mxcluster_node as JSON from stdin,
so that no argument is on a command line. As root, this process handles the systemd units, the
firewall and the leftovers. A child process with the rights of the training user runs the probe or
the agent.
"""

import os
from typing import Any, Dict, List

from mxcluster.entry import leftovers, programs, units
from mxcluster.errors import MxclusterError

Json = Dict[str, Any]

PATHS = ("job_dir", "jobs_dir", "output", "spool")
SWEEPING = ("start", "stop", "collect", "jobs")


def run(asked: Json) -> Json:
    """Carry out asked["command"] on this node and return the answer (dict for JSON).

    `asked` has the arguments of the module mxcluster_node. Raises MxclusterError if the command
    fails.
    """
    asked = dict(asked, **{name: os.path.expanduser(asked[name]) for name in PATHS if asked[name]})
    command = asked["command"]
    swept = leftovers.sweep(asked["spool"]) if command in SWEEPING and not asked["check"] else []
    unit = units.unit_of(asked) if command in ("start", "stop", "collect") else None
    if unit and command == "start":
        return units.start(asked, unit)
    if unit and command == "stop":
        return _stop(asked, unit, swept)
    seen = _seen_by_root(asked, unit, swept)
    if command == "collect" and units.is_spooled(asked):
        return _with(units.collect_into_spool(asked), seen)
    answer = programs.answer_of(asked)
    if command == "collect":
        answer.update(output=os.path.abspath(asked["output"]), spooled=False)
    return _with(answer, seen)


def _stop(asked: Json, unit: str, swept: List[str]) -> Json:
    """End a job that runs as the systemd unit `unit`, close the firewall, and return the answer.

    If the user's process fails, the function still ends the unit and closes the firewall, and then
    raises MxclusterError. `swept` are the lines of `leftovers.sweep`.
    """
    try:
        answer = programs.answer_of(asked)
    except MxclusterError as error:
        raise MxclusterError(
            "\n".join(
                [str(error), "Root has ended the unit %s." % unit] + units.settle(asked, unit)
            )
        ) from error
    return _with(answer, {"left": units.settle(asked, unit) + swept})


def _seen_by_root(asked: Json, unit: Any, swept: List[str]) -> Json:
    """Return the fields of the answer that root itself determines.

    The answer of the user's process cannot change these fields. `swept` are the lines of
    `leftovers.sweep`.
    """
    command = asked["command"]
    if command == "collect":
        untrue = units.untrue_end(asked, unit) if unit else None
        return {"left": (units.settle(asked, unit) if unit else []) + swept, "untrue": untrue}
    if command == "stop":
        return {"left": swept} if swept else {}
    if command == "look":
        return {"ports_open": units.why_open(asked), "problems": units.hidden(asked)}
    if command == "check":
        return {"ports_open": units.why_open(asked)}
    if command == "jobs":
        return {"units": units.jobs_with_units(asked)}
    if command == "record" and os.geteuid() == 0 and asked["user"]:
        return programs.answer_of(dict(asked, command="machine", user=""))
    return {}


def _with(answer: Json, seen: Json) -> Json:
    """Return `answer` with the fields of `seen`, which replace fields of the same name.

    The user's process has made `answer`, and root `seen`. The result joins the lists "left" and
    "problems" of both.
    """
    both = {}
    for name in ("left", "problems"):
        if name in seen:
            both[name] = (answer[name] if isinstance(answer.get(name), list) else []) + seen[name]
    return dict(answer, **dict(seen, **both))


def check(asked: Any) -> Json:
    """Return `asked`, the JSON value from stdin. Raise MxclusterError if it is not a command."""
    if not isinstance(asked, dict) or "command" not in asked:
        raise MxclusterError(
            "stdin holds no command: mxcluster.entry needs the arguments of the module "
            "mxcluster_node there, as one JSON object"
        )
    return asked
