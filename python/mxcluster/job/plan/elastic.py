"""Choose the hosts that an elastic job may lose: every attempt takes the hosts that answer."""

from typing import List, Mapping, Sequence

from mxcluster.errors import BadInput
from mxcluster.lists import unique
from mxcluster.model.job_knobs import Options
from mxcluster.model.knob import read


def hosts_to_try(
    elastic: object, without: object, groups: Mapping[str, Sequence[str]]
) -> List[str]:
    """Return the hosts that may have a part in an elastic job, [] for every other job.

    If a knob is wrong, the result is [], and the planner refuses the knob.

    Args: `groups` {group: hosts}; the others are the knobs as the user wrote them.
    """
    given = {"elastic": elastic, "without": without}
    try:
        knobs = read(Options, given)
    except BadInput:
        return []
    if not knobs.elastic:
        return []
    hosts = unique(
        host for group in ("scheduler", "servers", "workers") for host in groups.get(group, ())
    )
    return [host for host in hosts if host not in knobs.without]
