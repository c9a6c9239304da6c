"""Check the events of a run before the report uses them, and report the number of damaged events.

The training user may run any program on a node, so an event may have any content.
"""

from typing import Any, Callable, Dict, Iterable, List, Optional, Set, Tuple

from mxcluster.job import replies
from mxcluster.lists import several
from mxcluster.model import shapes

Json = Dict[str, Any]

MOST_TIME = 1e11  # unix seconds, in the year 5138; datetime accepts it
MOST_FIGURE = 1e100  # sums of such figures stay finite
MOST_LEVELS = 50  # nested lists and dicts in an event
_figure = shapes.optional(shapes.number)
_OF_KIND = {
    "start": shapes.fields(
        {}, {"samples_in_share": _figure, "repeated": _figure}, rest=lambda value: value
    ),
    "kv": shapes.fields({}, {"waited_s": _figure, "seconds": _figure}, rest=lambda value: value),
}
# Only a process of the plan writes these kinds.
_OF_PROCESSES = ("balance", "gsync", "profile", "server_speed")


def own_events(plan: Json, host: Optional[str] = None) -> Callable[[Json], bool]:
    """Return a function(event) that returns True for valid events of the processes of `host`.

    The function returns False for an event of a process on another node, because a node reports
    only about its own processes. With `host` None the function returns True for valid events of
    all processes of the plan. It returns True for a valid event without a role.
    """
    own = {
        (process["role"], process["index"])
        for process in plan["processes"]
        if host is None or process["host"] == host
    }
    return lambda event: _is_of(event, own) and _fits(event, plan) and replies.is_event(event)


def warnings(damaged: Dict[str, int]) -> List[str]:
    """Return a message for each place in `damaged`, {host or file: number of damaged events}."""
    return [
        "%s: the report leaves out %s" % (place, several(number, "damaged event"))
        for place, number in damaged.items()
        if number
    ]


def _is_of(event: Json, own: Set[Tuple[Any, Any]]) -> bool:
    """Return True if the event names no process, or a process of `own`, {(role, index)}."""
    role, index = event.get("role"), event.get("index")
    if not isinstance(event.get("event"), str) or not (index is None or type(index) is int):
        return False
    if role is None:
        return event["event"] not in _OF_PROCESSES
    return isinstance(role, str) and (role, index) in own


def _fits(event: Json, plan: Json) -> bool:
    """Return True if a job with this plan can have the event's host, group and figures."""
    host, kind = event.get("host"), event["event"]
    if host is not None and not (isinstance(host, str) and host in plan["nodes"]):
        return False
    try:
        moment = shapes.number(event.get("time"))
        if kind in _OF_KIND:
            _OF_KIND[kind](event)
        if kind == "gsync":
            shapes.whole(0, len(plan.get("groups") or []) - 1)(event.get("group"))
    except shapes.Wrong:
        return False
    return 0 <= moment <= MOST_TIME and _is_flat(event) and not any(map(_is_huge, event.values()))


def _is_huge(value: Any) -> bool:
    return isinstance(value, (int, float)) and abs(value) > MOST_FIGURE


def _is_flat(event: Json) -> bool:
    """Return True if the event has at most MOST_LEVELS levels. json.dumps refuses deep levels."""
    level: Iterable[Any] = [event]
    for _ in range(MOST_LEVELS):
        inner: List[Any] = []
        for value in level:
            if isinstance(value, (dict, list)):
                inner += value.values() if isinstance(value, dict) else value
        if not inner:
            return True
        level = inner
    return False
