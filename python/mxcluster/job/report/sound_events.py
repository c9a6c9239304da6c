"""Choose the events of a run that fit its plan, and report the number of damaged events.

The training user may run any program on a node, so an event may have any content. The classes of
`mxcluster.model.events` check the fields. This module checks what only the plan knows.
"""

from typing import Callable, Dict, List, Optional

from mxcluster.lists import several
from mxcluster.model.events import Event, NodeUsage, PlannedEvent, Updates
from mxcluster.model.plan import Plan


def own_events(plan: Plan, host: Optional[str] = None) -> Callable[[Event], bool]:
    """Return a function(event) that returns True for events of the processes of `host`.

    The function returns False for an event of a process on another node, because a node reports
    only about its own processes. With `host` None the function returns True for events of all
    processes of the plan. It returns True for an event without a role, unless only processes of the
    plan write events of this kind.
    """
    own = {
        (process.role, process.index)
        for process in plan.processes
        if host is None or process.host == host
    }
    groups = len(plan.groups)

    def is_own(event: Event) -> bool:
        if event.role is None:
            is_of = not isinstance(event, PlannedEvent)
        else:
            is_of = (event.role, event.index) in own
        return (
            is_of
            and (event.host is None or event.host in plan.nodes)
            and not (isinstance(event, NodeUsage) and host not in (None, event.host))
            and not (isinstance(event, Updates) and event.group >= groups)
        )

    return is_own


def warnings(damaged: Dict[str, int]) -> List[str]:
    """Return a message for each place in `damaged`, {host or file: number of damaged events}."""
    return [
        "%s: the report leaves out %s" % (place, several(number, "damaged event"))
        for place, number in damaged.items()
        if number
    ]
