"""Warn of workers of a script that train on the same data."""

from typing import List, Sequence

from mxcluster.lists import spans
from mxcluster.model.events import Done, Event
from mxcluster.model.plan import WORKER, Plan


def unasked(plan: Plan, events: Sequence[Event]) -> List[str]:
    """Return [a warning] if several workers of a script never asked for their share, else [].

    Args: `plan` of the job; `events` of all nodes.
    """
    silent = sorted(
        {
            event.index
            for event in events
            if isinstance(event, Done)
            and event.role == WORKER
            and event.asked is False
            and event.index is not None
        }
    )
    if not plan.options.script or len(silent) < 2:
        return []
    return [
        "the workers %s never asked for their share of the data, so each of them read the same "
        "samples, unless the files on their nodes differ: divide the data with mxcluster.share "
        "(docs/script-data.md)" % ", ".join(spans(silent))
    ]
