"""Carry out one command of the controller on this node, and print the answer as JSON.

`python -I -m mxcluster.entry` reads the arguments of the module mxcluster_node as JSON from stdin.
On a command line, other users could read the arguments.

As root, this process manages the systemd units, the firewall rules and the leftover files. A child
process with the rights of the training user runs the probe or the agent.
"""

import os
from typing import Any, Dict, List

from mxcluster.entry import leftovers, programs, units
from mxcluster.errors import MxclusterError

Json = Dict[str, Any]

PATHS = ("job_dir", "jobs_dir", "output", "spool")
SWEEPING = ("start", "prepare", "stop", "collect", "jobs")


def run(asked: Json) -> Json:
    """Carry out asked["command"] on this node, and return the answer (dict for JSON).

    `asked`: the arguments of the module mxcluster_node. Raises MxclusterError if the command fails.
    """
    asked = dict(asked, **{name: os.path.expanduser(asked[name]) for name in PATHS if asked[name]})
    command = asked["command"]
    swept = leftovers.sweep(asked["spool"]) if command in SWEEPING and not asked["check"] else []
    unit = units.unit_of(asked) if command in ("start", "stop", "collect") else None
    if unit and command == "start" and not (asked["plan"] or {}).get("batch"):
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
    """End the job in the systemd unit `unit`, and remove the job's firewall rules.

    Returns the answer (dict). If the process of the training user fails, the function still ends
    the unit and removes the rules. Then the function raises MxclusterError. `swept`: the result of
    `leftovers.sweep`.
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
    """Return the fields of the answer that root itself determines (dict).

    The process of the training user cannot change these fields. `unit`: the job's systemd unit or
    None. `swept`: the result of `leftovers.sweep`.
    """
    command = asked["command"]
    if command == "collect":
        untrue = units.untrue_end(asked, unit) if unit else None
        left = (units.settle(asked, unit) if unit else []) + swept
        return {
            "left": left,
            "untrue": untrue,
            "outside": units.outside(asked) if unit else [],
        }
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


def check(asked: Any) -> Json:
    """Return `asked`, the JSON value from stdin, if the value is a command (dict with "command").

    Raises MxclusterError for any other value.
    """
    if not isinstance(asked, dict) or "command" not in asked:
        raise MxclusterError(
            "stdin of mxcluster.entry on this node holds no command: write the arguments of the "
            "module mxcluster_node to stdin, as one JSON object"
        )
    return asked
